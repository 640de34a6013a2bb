//! How many reservations are opened: the kernel tells, as it tells every watcher of a folder.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use flannel_cni::version::Version;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde_json::{Value, json};

use crate::place::{Place, owned_by};

const MANY: usize = 1000;

/// Hears of every file of the folder that is opened.
struct Watcher(OwnedFd);

impl Watcher {
    fn on(place: &Place) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&queue, place.folder(), WatchFlags::OPEN).unwrap();
        Self(queue)
    }

    /// The reservations that were opened since the last time.
    fn opened(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut opened = Vec::new();
        while let Ok(event) = reader.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            let name = event.file_name().map(|name| name.to_str().unwrap().to_owned());
            opened.extend(name.filter(|name| name.parse::<IpAddr>().is_ok()));
        }
        opened
    }
}

fn config(place: &Place) -> Value {
    place.config(Version::NEWEST, &json!({ "subnet": "10.1.0.0/20" }))
}

/// A folder of many reservations of ours, and what was said to each.
fn filled() -> (Place, Value) {
    let place = Place::new();
    let config = config(&place);
    for number in 0..MANY {
        place.add(&format!("c{number}"), &config).unwrap();
    }
    (place, config)
}

#[test]
fn add_opens_no_reservation_however_many_there_are() {
    let (place, config) = filled();
    let watcher = Watcher::on(&place);
    place.add("new", &config).unwrap();
    assert_eq!(watcher.opened(), [""; 0]);
    let words = place.add("c500", &config).unwrap_err();
    assert_eq!(
        words,
        "failed to allocate for range 0: 10.1.1.246 has been allocated to c500, duplicate allocation is not allowed"
    );
    assert_eq!(watcher.opened(), ["10.1.1.246"]);
}

#[test]
fn del_and_check_open_what_is_the_containers() {
    let (place, config) = filled();
    let watcher = Watcher::on(&place);
    place.check("c7", &config).unwrap();
    place.del("c7", &config).unwrap();
    assert_eq!(watcher.opened(), ["10.1.0.9", "10.1.0.9"]);
    place.del("unknown", &config).unwrap();
    place.del("c7", &config).unwrap();
    assert_eq!(watcher.opened(), [""; 0]);
    place.add("c7", &config).unwrap();
    assert_eq!(watcher.opened(), [""; 0]);
}

#[test]
fn what_others_wrote_is_opened_once() {
    let (place, config) = filled();
    for number in 0..3 {
        place.write(&format!("10.1.15.{number}"), &owned_by(&format!("go{number}")));
    }
    std::fs::remove_file(place.file("10.1.0.5")).unwrap();
    place.write("10.1.0.5", &owned_by("go4"));
    let watcher = Watcher::on(&place);
    place.add("new", &config).unwrap();
    let mut opened = watcher.opened();
    opened.sort();
    assert_eq!(opened, ["10.1.0.5", "10.1.15.0", "10.1.15.1", "10.1.15.2"]);
    place.add("another", &config).unwrap();
    assert_eq!(watcher.opened(), [""; 0]);
    for id in ["go0", "go4", "c77"] {
        let words = place.add(id, &config).unwrap_err();
        assert!(words.contains(&format!("has been allocated to {id}, duplicate")), "{words}");
    }
}

#[test]
fn what_was_forgotten_is_opened_once() {
    let (place, config) = filled();
    place.forget();
    let watcher = Watcher::on(&place);
    place.add("new", &config).unwrap();
    assert_eq!(watcher.opened().len(), MANY);
    place.add("another", &config).unwrap();
    assert_eq!(watcher.opened(), [""; 0]);
    place.add("c77", &config).unwrap_err();
}

#[test]
fn without_a_place_for_the_cache_everything_is_as_right_and_only_slower() {
    let mut place = Place::new();
    let config = config(&place);
    place.machine.run = place.data.path().join("file");
    std::fs::write(&place.machine.run, "").unwrap();
    for id in ["a", "b", "c"] {
        place.add(id, &config).unwrap();
    }
    place.add("b", &config).unwrap_err();
    place.del("b", &config).unwrap();
    assert_eq!(
        place.reservations(),
        [("10.1.0.2".into(), owned_by("a")), ("10.1.0.4".into(), owned_by("c"))]
    );
}

#[test]
fn the_cache_goes_with_the_last_container() {
    let place = Place::new();
    let config = config(&place);
    let caches = || std::fs::read_dir(&place.machine.run).map_or(0, Iterator::count);
    let mut seen = Vec::new();
    for id in ["a", "b"] {
        place.add(id, &config).unwrap();
        seen.push(caches());
    }
    for id in ["a", "b", "b"] {
        place.del(id, &config).unwrap();
        seen.push(caches());
    }
    assert_eq!(seen, [1, 1, 1, 0, 0]);
}

#[test]
fn a_change_right_after_ours_is_seen() {
    // The kernel's clock stands still for milliseconds: a folder's time alone would not tell.
    let place = Place::new();
    let config = config(&place);
    for number in 0..300 {
        let id = format!("c{number}");
        place.add(&id, &config).unwrap();
        let address = place.files()["last_reserved_ip.0"].clone();
        let id_of_go = format!("go{number}");
        std::fs::remove_file(place.file(&address)).unwrap();
        place.write(&address, &owned_by(&id_of_go));
        let words = place.add(&id_of_go, &config).unwrap_err();
        assert!(words.contains(&format!("{address} has been allocated to {id_of_go}")), "{words}");
        place.del(&id_of_go, &config).unwrap();
        assert_eq!(place.reservations(), []);
    }
}
