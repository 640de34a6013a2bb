//! Which net-conf and which lease hold: the store's new ones, or those that the running pods depend on.

use std::sync::Arc;

use flannel_leases::Snapshot;
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::{ByFamily, overlap};
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;

use crate::gather::NotYet;
use crate::planned::Planned;

/// What holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    pub config: NetworkConfig,
    /// This node's lease; none while it has none that fits.
    pub own: Option<Lease>,
}

impl InForce {
    /// What a plan was made from.
    pub fn of_plan(planned: &Planned) -> Self {
        Self { config: planned.inputs.config.clone(), own: Some(planned.inputs.own.clone()) }
    }

    /// What a store says, if it has a net-conf at all.
    pub fn of_store(snapshot: &Snapshot) -> Result<Self, NotYet> {
        let config = snapshot.config.clone().map_err(|fault| NotYet::Config(Box::new(fault.finding())))?;
        Ok(Self { config, own: snapshot.own.as_deref().cloned() })
    }

    /// The subnets of this node's pods; none while it has none that fit.
    pub fn subnets(&self) -> ByFamily<IpNet> {
        self.own.as_ref().map(|own| own.subnets).unwrap_or_default()
    }

    /// Whether a store shows that what was remembered of it holds no more: this node has another subnet by now, or
    /// another node has this one.
    pub fn is_refuted_by(&self, snapshot: &Snapshot) -> bool {
        let Some(own) = &self.own else { return true };
        let shares = |lease: &Lease| {
            lease
                .subnets
                .iter()
                .any(|(family, net)| own.subnets.get(family).is_some_and(|own| overlap(*own, *net)))
        };
        let moved = |now: &Lease| {
            let same = |(family, net)| own.subnets.get(family).is_none_or(|own| own == net);
            !now.subnets.iter().all(same)
        };
        snapshot.own.as_deref().is_some_and(moved) || snapshot.peers.iter().any(|peer| shares(peer))
    }

    /// This node's lease under its present announcement: what the store has may be a moment old.
    pub fn own_lease(&self, announcement: &Announcement) -> Option<Lease> {
        let own = self.own.as_ref()?;
        let whole = self.config.networks.iter().all(|(family, _)| own.subnets.get(family).is_some());
        whole.then(|| Lease { announcement: announcement.clone(), ..own.clone() })
    }

    /// What is worth remembering of a snapshot: what holds, not what is held back.
    pub fn to_remember(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        if snapshot.config.as_ref().ok() == Some(&self.config) {
            return Arc::clone(snapshot);
        }
        let (config, own) = (Ok(self.config.clone()), self.own.clone().map(Arc::new));
        Arc::new(Snapshot { config, own, own_is_damaged: false, ..(**snapshot).clone() })
    }
}

#[cfg(test)]
mod tests {
    use flannel_leases::Fault;
    use flannel_plan::finding::Code;

    use super::*;

    fn config(text: &str) -> NetworkConfig {
        NetworkConfig::parse(text).unwrap()
    }

    fn lease(owner: &str, subnet: &str) -> Lease {
        let subnets = ByFamily { v4: Some(subnet.parse().unwrap()), v6: None };
        let announcement = Announcement {
            public: ByFamily::default(),
            backend: "vxlan".to_owned(),
            detail: ByFamily::default(),
        };
        Lease { owner: owner.to_owned(), subnets, announcement, since: 1 }
    }

    fn held() -> InForce {
        let own = Some(lease("me", "10.244.1.0/24"));
        InForce { config: config(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#), own }
    }

    fn snapshot(own: Option<Lease>, peers: &[Lease]) -> Snapshot {
        Snapshot {
            origin: None,
            version: None,
            is_stale: false,
            config: Err(Fault::new(Code::NetConfUnusable, "config.json", "holds no net-conf")),
            own: own.map(Arc::new),
            own_is_damaged: false,
            rival: None,
            announced: ByFamily::default(),
            public: ByFamily::default(),
            peers: peers.iter().cloned().map(Arc::new).collect(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn what_was_remembered_holds_until_the_store_shows_otherwise() {
        let refuted = |own: Option<Lease>, peers: &[Lease]| held().is_refuted_by(&snapshot(own, peers));
        assert!(!refuted(None, &[lease("other", "10.244.2.0/24")]));
        assert!(!refuted(Some(lease("me", "10.244.1.0/24")), &[]));
        assert!(refuted(Some(lease("me", "10.244.7.0/24")), &[]), "this node has moved");
        assert!(refuted(None, &[lease("other", "10.244.1.0/24")]), "another has the subnet");
        assert!(InForce { own: None, ..held() }.is_refuted_by(&snapshot(None, &[])), "nothing to hold");
    }

    #[test]
    fn what_is_held_back_is_not_remembered() {
        let told = Arc::new(snapshot(None, &[lease("other", "10.244.2.0/24")]));
        let remembered = held().to_remember(&told);
        assert_eq!(remembered.config.clone().unwrap(), held().config);
        assert_eq!((remembered.own.as_deref(), &remembered.peers), (held().own.as_ref(), &told.peers));
        let same = Arc::new(Snapshot { config: Ok(held().config), ..(*told).clone() });
        assert!(Arc::ptr_eq(&held().to_remember(&same), &same));
    }
}
