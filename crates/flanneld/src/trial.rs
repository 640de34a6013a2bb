//! Whether the kernel can make a device: known only by trying, which is done for a moment and under another name,
//! so that what is in use is not given up for what cannot be.

use std::time::{Duration, Instant};

use flannel_kernel::{ApplyError, Kernel};
use flannel_plan::backoff::Backoff;
use flannel_plan::state::Link;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The last trial.
#[derive(Debug, Default)]
pub struct Trial {
    devices: Vec<Link>,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
enum Outcome {
    Made,
    Failed { why: String, backoff: Backoff, again: Instant },
}

impl Trial {
    /// Why these devices cannot be made, if they cannot. What was found is believed, a failure only for a while.
    pub fn failure(&mut self, devices: &[Link], kernel: &mut impl Kernel, now: Instant) -> Option<String> {
        if self.devices != devices {
            *self = Self { devices: devices.to_vec(), outcome: None };
        }
        let due = match &self.outcome {
            None => Some(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)),
            Some(Outcome::Failed { backoff, again, .. }) => (now >= *again).then_some(*backoff),
            Some(Outcome::Made) => None,
        };
        if let Some(mut backoff) = due {
            let error = devices.iter().find_map(|device| kernel.try_link(device).err());
            self.outcome = Some(error.map_or(Outcome::Made, |error| {
                let again = now + backoff.grow();
                Outcome::Failed { why: in_words(&error), backoff, again }
            }));
        }
        match &self.outcome {
            Some(Outcome::Failed { why, .. }) => Some(why.clone()),
            _ => None,
        }
    }

    /// When to try again, if the last trial failed.
    pub fn again(&self) -> Option<Instant> {
        match &self.outcome {
            Some(Outcome::Failed { again, .. }) => Some(*again),
            _ => None,
        }
    }
}

fn in_words(error: &ApplyError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use flannel_kernel::NetlinkError;
    use flannel_kernel::fake::Fake;
    use flannel_plan::mac::Mac;
    use flannel_plan::state::{Key, LinkKind};

    use super::*;

    fn device(name: &str) -> Link {
        let kind = LinkKind::Other("vxlan".into());
        Link { name: name.parse().unwrap(), mac: Mac([2; 6]), mtu: 1450, up: true, alias: "".into(), kind }
    }

    #[test]
    fn a_device_that_cannot_be_made_is_tried_again_after_growing_pauses() {
        let (mut trial, mut kernel, mut now) = (Trial::default(), Fake::default(), Instant::now());
        let devices = [device("flannel.7")];
        let why = NetlinkError { errno: rustix::io::Errno::OPNOTSUPP, message: None };
        kernel.refuses.insert(Key::Link(devices[0].name), why.clone());
        let words = trial.failure(&devices, &mut kernel, now).unwrap();
        assert!(words.contains("the kernel has no vxlan: `modprobe vxlan`"), "{words}");
        kernel.refuses.clear();
        assert_eq!(trial.failure(&devices, &mut kernel, now), Some(words.clone()), "believed for a while");
        kernel.refuses.insert(Key::Link(devices[0].name), why);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            assert_eq!(trial.again(), Some(now + pause));
            now += pause;
            assert_eq!(trial.failure(&devices, &mut kernel, now), Some(words.clone()));
        }
        assert_eq!(trial.failure(&[device("flannel.8")], &mut kernel, now), None, "another device");
        kernel.refuses.clear();
        assert_eq!(trial.failure(&devices, &mut kernel, now), None);
        assert_eq!(trial.again(), None);
    }
}
