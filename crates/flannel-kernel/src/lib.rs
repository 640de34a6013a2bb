//! Looks at the network state of Linux and changes it: acts, and decides nothing.
//!
//! [`Kernel`] is the only seam between what should be and what is. [`Linux`] speaks to the kernel of this
//! machine in blocking calls; [`fake::Fake`] is a kernel in memory for tests. [`watch::Watch`] tells when it is
//! worth to look again.

mod abi;
mod address;
mod apply;
pub mod arena;
mod batch;
pub mod bridge;
pub mod bridge_probe;
pub mod child;
mod error;
pub mod fake;
pub mod file;
pub mod firewall;
mod link;
mod linux;
mod listener;
pub mod living;
pub mod memory;
pub mod module;
mod names;
mod neighbour;
mod netlink;
pub mod netns;
mod route;
pub mod signals;
pub mod stack;
pub mod sysctl;
pub mod veth;
mod vxlan;
pub mod watch;
pub mod wiring;

use std::sync::Arc;

use flannel_plan::diff::Change;
use flannel_plan::observation::{Observation, Scope};
use flannel_plan::state::Link;

use firewall::rules::Rules;

pub use error::{ApplyError, Failure, ObserveError};
pub use linux::Linux;
pub use netlink::NetlinkError;

/// Whether something is more urgent than a look.
pub type Urgent = Arc<dyn Fn() -> bool + Send + Sync>;

/// What there is, and a way to change it.
pub trait Kernel {
    /// Finds out what is there; whose it is, is for others to say.
    fn observe(&mut self, scope: &Scope) -> Result<Observation, ObserveError>;

    /// The same, but gives way to what is more urgent: then the error [says so](LookError::gave_way). Thousands of
    /// objects take longer to dump than a new peer should wait.
    fn observe_unless(&mut self, scope: &Scope, urgent: Urgent) -> Result<Observation, ObserveError>;

    /// Applies the changes in order; goes on after a failure, and returns all failures.
    fn apply(&mut self, changes: &[Change]) -> Vec<Failure>;

    /// Makes a device like this one for a moment, under another name: whether that works here. What is there stays.
    fn try_link(&mut self, link: &Link) -> Result<(), ApplyError>;

    /// What holds the rules of this machine; none where there is no machine.
    fn rules(&mut self) -> Option<&mut Rules>;
}
