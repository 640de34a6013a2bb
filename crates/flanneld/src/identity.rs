//! Who this node is to its peers, chosen before anything is built.
//!
//! Peers hold the MACs of its tunnel devices in permanent entries. So they are kept for ever: the lease's first, else
//! the device's, else made once.

use flannel_plan::backend;
use flannel_plan::claim::{Identity, IdentitySource};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::lease::Lease;
use flannel_plan::mac::Mac;
use flannel_plan::observation::Observation;

/// Chooses the identity of this node; remembers the MACs that were made.
#[derive(Debug, Default)]
pub struct IdentityChoice {
    made: ByFamily<Mac>,
}

impl IdentityChoice {
    /// The identity in each family where the backend needs one.
    pub fn identity(
        &mut self,
        config: &NetworkConfig,
        lease: Option<&Lease>,
        observation: &Observation,
    ) -> std::io::Result<ByFamily<Identity>> {
        let leased = lease.map(|lease| backend::identity(&lease.announcement)).unwrap_or_default();
        let mut chosen = ByFamily::default();
        for (family, source) in backend::identity_sources(config).iter() {
            let IdentitySource::Device(name) = source;
            let leased = leased.get(family).map(|Identity::Mac(mac)| *mac);
            let device = observation.links.iter().find(|fact| fact.link.name == *name);
            let known = leased.or(*self.made.slot(family)).or(device.and_then(|fact| fact.link.mac));
            let mac = known.filter(|mac| mac.is_unicast()).map_or_else(|| self.make(family), Ok)?;
            *chosen.slot(family) = Some(Identity::Mac(mac));
        }
        Ok(chosen)
    }

    fn make(&mut self, family: Family) -> std::io::Result<Mac> {
        let mut bytes = [0; 6];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(*self.made.slot(family).insert(Mac::from_random(bytes)))
    }
}
