//! Which file a record goes to, who finds it, and what a sweep leaves.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::request::Environment;

fn request(container: &str, ifname: &str, network: &str) -> Request {
    let environment = Environment {
        command: "DEL".into(),
        container_id: container.into(),
        ifname: ifname.into(),
        path: "/".into(),
        ..Environment::default()
    };
    Request::read(&environment, json!({"name": network}).to_string().as_bytes()).unwrap()
}

fn config(network: &str, mtu: u32) -> Map<String, Value> {
    json!({"type": "bridge", "name": network, "mtu": mtu}).as_object().unwrap().clone()
}

struct Stage {
    folder: tempfile::TempDir,
    records: Records,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("cni/flannel"));
        Self { folder, records }
    }

    fn save(&self, container: &str, ifname: &str, config: &Map<String, Value>) -> WrittenRecord {
        let network = name(config).unwrap();
        self.records.save(&request(container, ifname, network), config).unwrap()
    }

    fn found(&self, container: &str, ifname: &str) -> Option<Option<Map<String, Value>>> {
        self.records.find(&request(container, ifname, "n")).map(|record| record.config)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join("cni/flannel").join(file)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
        let mut files: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }
}

fn age(path: &Path) {
    let old = std::time::SystemTime::now() - SETTLED * 2;
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

#[test]
fn a_record_is_the_file_that_go_reads_with_its_modes() {
    let stage = Stage::new();
    let _ = stage.save("c1", "eth0", &config("n", 1450));
    assert_eq!(stage.files(), ["c1"]);
    assert_eq!(fs::read_to_string(stage.path("c1")).unwrap(), r#"{"mtu":1450,"name":"n","type":"bridge"}"#);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&stage.path("c1")), mode(&stage.path(""))), (0o600, 0o700));
}

#[test]
fn a_single_interface_has_that_file_whatever_its_name_is() {
    let stage = Stage::new();
    let _ = stage.save("c1", "net1", &config("n", 1450));
    assert_eq!(stage.files(), ["c1"]);
    assert_eq!(stage.found("c1", "net1"), Some(Some(config("n", 1450))));
}

#[test]
fn a_second_interface_has_a_file_of_its_own() {
    let stage = Stage::new();
    let _ = stage.save("c1", "eth0", &config("n", 1450));
    let _ = stage.save("c1", "net1", &config("n", 1400));
    let _ = stage.save("c1", "net2", &config("other", 1300));
    assert_eq!(stage.files(), ["c1", "c1-net1", "c1-net2"]);
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("n", 1450))));
    assert_eq!(stage.found("c1", "net1"), Some(Some(config("n", 1400))));
    assert_eq!(stage.found("c1", "net2"), Some(Some(config("other", 1300))));
}

#[test]
fn a_repeated_add_overwrites_its_own_file() {
    let stage = Stage::new();
    for mtu in [1450, 1400] {
        let _ = stage.save("c1", "eth0", &config("n", mtu));
        let _ = stage.save("c1", "net1", &config("n", mtu - 1));
    }
    assert_eq!(stage.files(), ["c1", "c1-net1"]);
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("n", 1400))));
    assert_eq!(stage.found("c1", "net1"), Some(Some(config("n", 1399))));
}

#[test]
fn the_file_of_another_network_is_not_overwritten() {
    let stage = Stage::new();
    let _ = stage.save("c1", "net1", &config("other", 1300));
    let _ = stage.save("c1", "eth0", &config("n", 1450));
    assert_eq!(stage.files(), ["c1", "c1-eth0"]);
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("n", 1450))));
}

#[test]
fn the_file_of_another_network_is_found_by_the_first_interface_only() {
    let stage = Stage::new();
    let _ = stage.save("c1", "eth0", &config("before-it-was-renamed", 1450));
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("before-it-was-renamed", 1450))));
    assert_eq!(stage.found("c1", "net1"), None);
}

#[test]
fn what_a_crash_left_is_a_record_without_a_configuration_and_is_overwritten() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("")).unwrap();
    for content in ["", "{", "[]", "null", "{}", r#"{"type":""}"#, "\0\0\0\0"] {
        fs::write(stage.path("c1"), content).unwrap();
        assert_eq!(stage.found("c1", "eth0"), Some(None), "{content:?}");
    }
    let _ = stage.save("c1", "net1", &config("n", 1450));
    assert_eq!(stage.files(), ["c1"]);
}

#[test]
fn a_container_without_a_file_has_no_record() {
    let stage = Stage::new();
    assert_eq!(stage.found("c1", "eth0"), None);
    assert_eq!(stage.found(&"x".repeat(300), "eth0"), None);
    let long = stage.records.save(&request(&"x".repeat(300), "eth0", "n"), &config("n", 1)).unwrap_err();
    assert!(long.msg.starts_with("failed to save netconf "), "{long}");
}

#[test]
fn forgetting_removes_the_file_that_was_found_and_twice_is_no_failure() {
    let stage = Stage::new();
    let _ = stage.save("c1", "eth0", &config("n", 1450));
    let _ = stage.save("c1", "net1", &config("n", 1450));
    let request = request("c1", "net1", "n");
    let record = stage.records.find(&request).unwrap();
    assert_eq!(stage.records.forget(&request, Some(&record)), Ok(()));
    assert_eq!(stage.records.forget(&request, Some(&record)), Ok(()));
    assert_eq!(stage.files(), ["c1"]);
}

#[test]
fn what_a_killed_add_left_of_a_record_is_written_over_and_forgotten() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("")).unwrap();
    let left = |content: &str| {
        [".c1", ".c1-net1", ".c2"].iter().for_each(|file| fs::write(stage.path(file), content).unwrap());
    };
    left("longer than any record, which has to be cut off before it can be anybody's record");
    let _ = stage.save("c1", "eth0", &config("n", 1450));
    assert_eq!(stage.files(), [".c1-net1", ".c2", "c1"]);
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("n", 1450))));
    left("");
    assert_eq!(stage.found("c1", "net1"), Some(Some(config("n", 1450))), "a draft is no record");
    assert_eq!(stage.records.forget(&request("c1", "net1", "n"), None), Ok(()));
    assert_eq!(stage.files(), [".c2", "c1"]);
    assert_eq!(stage.records.forget(&request(&"x".repeat(300), "eth0", "n"), None), Ok(()));
}

#[test]
fn a_sweep_removes_what_belongs_to_no_attachment_of_its_network() {
    let stage = Stage::new();
    for container in ["c1", "c2"] {
        let _ = stage.save(container, "eth0", &config("n", 1450));
        let _ = stage.save(container, "net1", &config("n", 1450));
    }
    let _ = stage.save("c3", "eth0", &config("other", 1450));
    for (file, is_old) in [("empty", true), (".draft.7", true), ("new", false), (".draft.8", false)] {
        fs::write(stage.path(file), "").unwrap();
        if is_old {
            age(&stage.path(file));
        }
    }
    fs::create_dir(stage.path("folder")).unwrap();
    let valid = [AttachmentId { container_id: "c1".into(), ifname: "eth0".into() }];
    assert_eq!(stage.records.sweep("n", &valid), Ok(()));
    assert_eq!(stage.files(), [".draft.8", "c1", "c3", "folder", "new"]);
    assert_eq!(stage.records.sweep("n", &[]), Ok(()));
    assert_eq!(stage.files(), [".draft.8", "c3", "folder", "new"]);
}

#[test]
fn a_sweep_of_a_folder_that_is_not_there_has_nothing_to_do() {
    assert_eq!(Stage::new().records.sweep("n", &[]), Ok(()));
}

#[test]
fn a_record_that_is_taken_back_leaves_what_was_there_before() {
    let stage = Stage::new();
    stage.records.take_back(&stage.save("c1", "eth0", &config("n", 1450))).unwrap();
    assert_eq!(stage.files(), [""; 0]);
    let _ = (stage.save("c1", "eth0", &config("n", 1450)), stage.save("c1", "net1", &config("n", 1400)));
    let again = [stage.save("c1", "eth0", &config("n", 9000)), stage.save("c1", "net1", &config("n", 9000))];
    again.iter().for_each(|saved| stage.records.take_back(saved).unwrap());
    assert_eq!(stage.found("c1", "eth0"), Some(Some(config("n", 1450))));
    assert_eq!(stage.found("c1", "net1"), Some(Some(config("n", 1400))));
    assert_eq!(stage.files(), ["c1", "c1-net1"]);
}
