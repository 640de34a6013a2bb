//! ip-masq-agent: what leaves a node gets the node's address, except to networks that a file names.
//!
//! [`config`] reads the file, [`spec`] says the rules once, [`iptables`] spells them as the original does;
//! `flannel-kernel` speaks nftables and compares with what is there.

pub mod cidr;
pub mod config;
pub mod duration;
pub mod iptables;
pub mod spec;
