//! Decides, from plain data, what a flannel node should look like.
//!
//! Nothing here reads a file, asks the kernel, looks at a clock or throws dice: every function takes values
//! and gives values. `flannel-kernel` says what is there ([`observation::Observation`]), `flannel-leases` says who is there
//! ([`lease::Lease`]), and this crate turns both into a [`state::State`] to be reached and the
//! [`diff::Change`]s that reach it.

pub mod allocate;
pub mod annotations;
pub mod backend;
mod backend_data;
pub mod backoff;
pub mod claim;
pub mod config;
pub mod config_change;
pub mod delta;
pub mod desired;
pub mod device_in_the_way;
pub mod diff;
pub mod family;
pub mod finding;
pub mod firewall;
pub mod firewall_backend;
pub mod inputs;
pub mod lease;
pub mod lease_list;
pub mod link_name;
pub mod mac;
pub mod mark;
pub mod masq_agent;
mod number;
pub mod observation;
pub mod ownership;
pub mod peers;
pub mod pod_bridge;
pub mod pod_cidrs;
pub mod quoted;
pub mod report;
pub mod rules;
pub mod secret;
pub mod snapshot_file;
pub mod state;
pub mod subnet_env;
pub mod underlay;
