//! Pretends to be a cluster: racks, routers, nodes and pods made of Linux namespaces.
//!
//! Takes a [`Topology`] and a net-conf ([`LabOptions`]), gives a running [`Lab`] whose [`Node`]s run the real
//! `flanneld`. Nothing of it is in the host's network, and dropping the [`Lab`] removes all of it. Used by
//! `flannelctl lab` and by the tests of the other crates; needs root.

mod error;
mod flanneld;
mod http;
mod lab;
mod machine;
mod node;
mod owner;
mod pod;
mod process;
mod program;
pub mod topology;
mod wait;
mod wiring;

pub use error::LabError;
pub use lab::{Flanneld, Lab, LabOptions, unique_name};
pub use machine::Machine;
pub use node::Node;
pub use pod::Pod;
pub use process::{LabProcess, lab_processes};
pub use rustix::process::Signal;
pub use topology::{NodeSpec, Rack, Topology};
pub use wait::{Interrupt, wait_for};

/// What the lab's own functions return.
pub type Result<T> = std::result::Result<T, LabError>;
