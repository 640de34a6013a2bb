//! Whether the kernel can make a device: known only by trying, which is done for a moment and under another name,
//! so that what is in use is not given up for what cannot be.

use std::time::{Duration, Instant};

use flannel_kernel::{Failure, Kernel};
use flannel_plan::backoff::Backoff;
use flannel_plan::diff::Change;
use flannel_plan::finding::Finding;
use flannel_plan::state::{Item, Key, Link};

/// What a device that is only tried is called; the number of this process follows.
const NAME: &str = "fltry";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The last trial.
#[derive(Debug, Default)]
pub struct Trial {
    devices: Option<Vec<Link>>,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    why: Finding,
    backoff: Backoff,
    again: Instant,
}

impl Trial {
    /// Why these devices cannot be made, if they cannot. What was found is believed, a failure only for a while.
    pub fn failure(&mut self, devices: &[Link], kernel: &mut impl Kernel, now: Instant) -> Option<Finding> {
        let is_new = self.devices.as_deref() != Some(devices);
        if is_new {
            *self = Self { devices: Some(devices.to_vec()), failed: None };
        }
        if is_new || self.again().is_some_and(|again| now >= again) {
            let first = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            let mut backoff = self.failed.as_ref().map_or(first, |failed| failed.backoff);
            let why = devices.iter().find_map(|device| attempt(device, kernel));
            self.failed = why.map(|why| Failed { why, again: now + backoff.grow(), backoff });
        }
        self.failed.as_ref().map(|failed| failed.why.clone())
    }

    /// When to try again, if the last trial failed.
    pub fn again(&self) -> Option<Instant> {
        self.failed.as_ref().map(|failed| failed.again)
    }
}

/// Makes a device like this one and removes it: why that fails, in the words of the device that is meant.
fn attempt(device: &Link, kernel: &mut impl Kernel) -> Option<Finding> {
    let in_its_place = |failure: Failure| match failure.change {
        Change::Create(_) => failure.why.of(device),
        _ => failure.why,
    };
    // What was not made is not there to be removed, either: the first failure is the reason.
    let why = kernel.apply(&changes(device)).into_iter().next().map(in_its_place)?;
    Some(why.finding(&Key::Link(device.name)))
}

/// With our mark on it: if this process dies in between, the next observation finds the device, and it is removed.
fn changes(device: &Link) -> [Change; 2] {
    // Ten digits at most: that is always a name.
    let name = format!("{NAME}{}", std::process::id()).parse().unwrap_or(device.name);
    let trial = Item::Link(Box::new(Link { name, ..device.clone() }));
    [Change::Create(trial.clone()), Change::Remove(trial)]
}

#[cfg(test)]
mod tests {
    use fake_kernel::Fake;
    use flannel_kernel::NetlinkError;
    use flannel_plan::finding::Code;
    use flannel_plan::mac::Mac;
    use flannel_plan::observation::Observation;
    use flannel_plan::state::LinkKind;

    use super::*;

    fn device(name: &str) -> Link {
        let kind = LinkKind::Other("vxlan".into());
        Link {
            name: name.parse().unwrap(),
            mac: Some(Mac([2; 6])),
            mtu: 1450,
            up: true,
            alias: "".into(),
            kind,
        }
    }

    #[test]
    fn a_device_that_cannot_be_made_is_tried_again_after_growing_pauses() {
        let (mut trial, mut kernel, mut now) = (Trial::default(), Fake::default(), Instant::now());
        let devices = [device("flannel.7")];
        let why = NetlinkError { errno: rustix::io::Errno::OPNOTSUPP, message: None };
        let trial_of = |device| changes(device)[0].key();
        kernel.refuses.insert(trial_of(&devices[0]), why.clone());
        let words = trial.failure(&devices, &mut kernel, now).unwrap();
        assert_eq!(words.code, Code::KernelLacksBackend, "{words}");
        kernel.refuses.clear();
        assert_eq!(trial.failure(&devices, &mut kernel, now), Some(words.clone()), "believed for a while");
        kernel.refuses.insert(trial_of(&devices[0]), why);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            assert_eq!(trial.again(), Some(now + pause));
            now += pause;
            assert_eq!(trial.failure(&devices, &mut kernel, now), Some(words.clone()));
        }
        kernel.refuses.clear();
        assert_eq!(trial.failure(&[device("flannel.8")], &mut kernel, now), None, "another device");
        assert_eq!(kernel.made, changes(&device("flannel.8")));
        assert_eq!(kernel.now, Observation::default(), "nothing of it stays");
        assert_eq!(trial.failure(&devices, &mut kernel, now), None);
        assert_eq!(trial.again(), None);
    }
}
