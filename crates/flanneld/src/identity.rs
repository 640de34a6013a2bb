//! Who this node is: the hardware addresses of its tunnel devices, chosen before anything is built.
//!
//! Peers hold these addresses in permanent entries. So they are kept for ever: the lease's first, else the
//! device's, else made once.

use flannel_plan::backend::{self, BackendKind};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::lease::Lease;
use flannel_plan::mac::Mac;
use flannel_plan::observation::Observation;

/// The hardware addresses of this node's devices; remembers those that were made.
#[derive(Debug, Default)]
pub struct Identity {
    made: ByFamily<Mac>,
}

impl Identity {
    /// The address of each device that the configuration has.
    pub fn macs(
        &mut self,
        config: &NetworkConfig,
        lease: Option<&Lease>,
        observation: &Observation,
    ) -> std::io::Result<ByFamily<Mac>> {
        let mut macs = ByFamily::default();
        if BackendKind::of(&config.backend) != BackendKind::Vxlan {
            return Ok(macs);
        }
        let leased = lease.map(|lease| backend::macs(&lease.announcement)).unwrap_or_default();
        for (family, name) in backend::links(config).iter() {
            let device =
                observation.links.iter().find(|fact| fact.link.name == *name).map(|fact| fact.link.mac);
            let known = leased.get(family).copied().or(*self.made.slot(family)).or(device);
            *macs.slot(family) = Some(match known.filter(|mac| mac.is_unicast()) {
                Some(mac) => mac,
                None => self.make(family)?,
            });
        }
        Ok(macs)
    }

    fn make(&mut self, family: Family) -> std::io::Result<Mac> {
        let mut bytes = [0; 6];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(*self.made.slot(family).insert(Mac::from_random(bytes)))
    }
}
