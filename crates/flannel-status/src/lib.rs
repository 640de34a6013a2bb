//! How a node is: what its flanneld says, checked against what is really there.
//!
//! Takes [`Evidence`], which others gather; gives a [`Comparison`] of what should be with what is, and a [`NodeStatus`]
//! with every peer's [`PeerStatus`]. Plain data in, plain data out: no I/O, no clock, no words but those of findings.

mod comparison;
mod daemon;
mod evidence;
mod node;
mod peer;
mod readiness;

pub use comparison::{Comparison, Differences, Verdict};
pub use daemon::{DaemonProcess, Life};
pub use evidence::Evidence;
pub use node::{DaemonStatus, NodeStatus, ObjectCount, OwnStatus, RuleStatus, node_status};
pub use peer::{PeerState, PeerStatus, Reach};
pub use readiness::{Readiness, differs};
