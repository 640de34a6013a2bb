//! The pods' view of a fault: packets flow, and no kernel loses anything, from before the fault to after its end.

use cluster_tests::{PingFlood, Toll};
use flannel_lab::Node;

use crate::Fleet;
use crate::kernel::Watch;

/// A watch on all kernels of a fleet, and a thousand packets a second between its first two nodes.
#[derive(Debug)]
pub struct Calm<'a> {
    watches: Vec<Watch<'a>>,
    flood: PingFlood,
}

impl<'a> Calm<'a> {
    /// Begins to watch.
    pub fn begin(fleet: &'a Fleet) -> Self {
        Self::of(fleet, &fleet.nodes().iter().collect::<Vec<_>>())
    }

    /// Begins to watch some nodes.
    pub fn of(fleet: &'a Fleet, nodes: &[&'a Node]) -> Self {
        let pods = fleet.pods().unwrap();
        let flood = PingFlood::begin(&pods[0], pods[1].address());
        Self { watches: nodes.iter().map(|node| Watch::begin(node)).collect(), flood }
    }

    /// Ends it: nothing was lost.
    #[track_caller]
    pub fn held(self) {
        self.held_but(&[]);
    }

    /// Ends it: no packet was lost, and in the kernels at most what is about these subnets, addresses or MACs.
    #[track_caller]
    pub fn held_but(self, allowed: &[&str]) {
        self.watches.iter().for_each(|watch| watch.assert_lost_only(allowed));
        let Toll { sent, came } = self.flood.end();
        assert_eq!(came, sent, "packets between the first two nodes");
    }
}
