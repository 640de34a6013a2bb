//! Looks at the network state of Linux and changes it: acts, and decides nothing.
//!
//! [`Kernel`] is the only seam between what should be and what is. [`Linux`] speaks to the kernel of this
//! machine in blocking calls (tests have one in memory); [`watch::Watch`] tells when it is worth to look again.

mod abi;
pub mod address;
mod apply;
mod batch;
pub mod bridge;
pub mod child;
mod error;
pub mod file;
pub mod firewall;
#[cfg(fuzzing)]
pub mod fuzz;
mod link;
mod linux;
pub mod living;
pub mod memory;
mod module;
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

pub use error::{ApplyError, Failure, ObserveError};
pub use linux::Linux;
pub use netlink::NetlinkError;

/// Whether something is more urgent than an observation.
pub type Urgent = Arc<dyn Fn() -> bool + Send + Sync>;

/// What there is, and a way to change it.
pub trait Kernel {
    /// Finds out what is there, and what is asked of the host besides; whose it is, is for others to say.
    fn observe(&mut self, scope: &Scope) -> Result<Observation, ObserveError>;

    /// Applies the changes in order; goes on after a failure, and returns all failures.
    fn apply(&mut self, changes: &[Change]) -> Vec<Failure>;
}
