//! Pretends to be a cluster: racks, routers, nodes and pods made of Linux namespaces.
//!
//! Takes a [`Topology`] and a net-conf ([`LabOptions`]), gives a running [`Lab`] whose [`Node`]s run the real
//! `flanneld`. Nothing of it is in the host's network, and dropping the [`Lab`] removes all of it. Used by the
//! program of the same name and by the tests of the other crates; needs root.

mod attach;
mod capture;
mod carrier;
mod error;
mod etcd;
mod faults;
mod flanneld;
mod http;
mod kubernetes;
mod lab;
mod machine;
mod net_conf;
mod node;
mod options;
mod owner;
pub mod packet;
mod pod;
mod process;
mod program;
mod relay;
mod service;
mod store;
pub mod topology;
mod wait;
mod wiring;

pub use capture::{Capture, PING};
pub use error::LabError;
pub use etcd::{Entry, Etcd};
pub use faults::{Broken, Fault};
pub use kubernetes::Kubernetes;
pub use lab::Lab;
pub use machine::Machine;
pub use net_conf::{Backend, Families};
pub use node::Node;
pub use options::{Flanneld, LabOptions, unique_name};
pub use pod::Pod;
pub use process::{LabProcess, lab_processes};
pub use relay::Relay;
pub use rustix::process::Signal;
pub use service::Service;
pub use store::Store;
pub use topology::{NodeSpec, Rack, Topology};
pub use wait::{Interrupt, wait_for};

/// What the lab's own functions return.
pub type Result<T> = std::result::Result<T, LabError>;
