//! ip-masq-agent: what leaves a node gets the node's address, except to networks that a file names.
//!
//! [`config`] reads the file, [`spec`] says which tables of rules there should be; [`crate::rules`] compares them with
//! what is there, as it does for flanneld.

pub mod config;
pub mod duration;
pub mod spec;
