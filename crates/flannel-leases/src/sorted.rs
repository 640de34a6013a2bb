//! Leases in the order of their subnets, kept so: of thousands one changes at a time, and a snapshot wants all.

use std::sync::Arc;

use flannel_plan::lease::Lease;

/// Leases in the order of their subnets.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    leases: Vec<Arc<Lease>>,
}

impl Sorted {
    /// Takes one out, if it is there, and puts another one in.
    pub(crate) fn replace(&mut self, old: Option<&Arc<Lease>>, new: Option<&Arc<Lease>>) {
        if old.map(Arc::as_ptr) == new.map(Arc::as_ptr) {
            return;
        }
        if let Some(old) = old {
            let from = self.leases.partition_point(|lease| lease.subnets < old.subnets);
            let same = self.leases[from..].iter().take_while(|lease| lease.subnets == old.subnets);
            if let Some(at) = same.map(Arc::as_ptr).position(|lease| lease == Arc::as_ptr(old)) {
                self.leases.remove(from + at);
            }
        }
        if let Some(new) = new {
            let at = self.leases.partition_point(|lease| lease.subnets <= new.subnets);
            self.leases.insert(at, Arc::clone(new));
        }
    }

    /// Keeps those of which it is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Lease) -> bool) {
        self.leases.retain(|lease| keep(lease));
    }

    pub(crate) fn to_vec(&self) -> Vec<Arc<Lease>> {
        self.leases.clone()
    }
}

impl FromIterator<Arc<Lease>> for Sorted {
    fn from_iter<I: IntoIterator<Item = Arc<Lease>>>(leases: I) -> Self {
        let mut leases: Vec<_> = leases.into_iter().collect();
        leases.sort_by_key(|lease| lease.subnets);
        Self { leases }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_plan::family::ByFamily;
    use flannel_plan::lease::Announcement;

    fn lease(owner: &str, subnet: &str) -> Arc<Lease> {
        let subnets = ByFamily { v4: subnet.parse().ok(), v6: None };
        let announcement = Announcement {
            public: ByFamily::default(),
            backend: "vxlan".into(),
            detail: ByFamily::default(),
        };
        Arc::new(Lease { owner: owner.into(), subnets, announcement, since: 0 })
    }

    fn owners(sorted: &Sorted) -> Vec<String> {
        sorted.to_vec().iter().map(|lease| lease.owner.clone()).collect()
    }

    #[test]
    fn leases_stay_in_order_while_they_come_go_and_move() {
        let (a, b) = (lease("a", "10.0.9.0/24"), lease("b", "10.0.1.0/24"));
        // As long as two nodes claim the same, both are here: who is right is decided elsewhere.
        let (twin, moved) = (lease("twin", "10.0.1.0/24"), lease("a", "10.0.0.0/24"));
        let mut sorted = Sorted::default();
        for new in [&a, &b, &twin] {
            sorted.replace(None, Some(new));
        }
        assert_eq!(owners(&sorted), ["b", "twin", "a"]);
        sorted.replace(Some(&a), Some(&moved));
        assert_eq!(owners(&sorted), ["a", "b", "twin"]);
        sorted.replace(Some(&twin), None);
        sorted.replace(Some(&twin), None);
        assert_eq!(owners(&sorted), ["a", "b"]);
        sorted.retain(|lease| lease.owner != "b");
        assert_eq!(owners(&sorted), ["a"]);
    }
}
