//! Which net-conf and which lease hold now: the store's new ones, or those that the running pods depend on.

use flannel_leases::Snapshot;
use flannel_plan::config::NetworkConfig;
use flannel_plan::config_change::{Verdict, judge};
use flannel_plan::lease::{Announcement, Lease};

use crate::gather::NotYet;
use crate::planned::Planned;

/// What holds now.
#[derive(Debug, PartialEq, Eq)]
pub struct InForce {
    /// The net-conf.
    pub config: NetworkConfig,
    /// This node's lease; none while it has none that fits.
    pub own: Option<Lease>,
    /// Why the store's net-conf is not followed; nothing if it is.
    pub held_back: Vec<String>,
    /// What a person should know of a net-conf that is followed from now on.
    pub consequences: Vec<String>,
}

impl InForce {
    /// Decides between the store's last word and the plan in force.
    pub fn of(snapshot: &Snapshot, planned: Option<&Planned>) -> Result<Self, NotYet> {
        let new = snapshot.config.as_ref().map_err(|fault| NotYet::Config(fault.to_string()))?;
        let followed = |consequences| {
            let own = snapshot.own.as_deref().cloned();
            Self { config: new.clone(), own, held_back: Vec::new(), consequences }
        };
        let Some(inputs) = planned.map(|planned| &planned.inputs).filter(|inputs| inputs.config != *new)
        else {
            return Ok(followed(Vec::new()));
        };
        Ok(match judge(&inputs.config, new, &inputs.own.subnets) {
            Verdict::Follow(consequences) => followed(consequences),
            Verdict::Restart(held_back) => {
                let (config, own) = (inputs.config.clone(), Some(inputs.own.clone()));
                Self { config, own, held_back, consequences: Vec::new() }
            }
        })
    }

    /// This node's lease under its present announcement: what the store has may be a moment old.
    pub fn own_lease(&self, announcement: &Announcement) -> Option<Lease> {
        let own = self.own.as_ref()?;
        let whole = self.config.networks.iter().all(|(family, _)| own.subnets.get(family).is_some());
        whole.then(|| Lease { announcement: announcement.clone(), ..own.clone() })
    }
}
