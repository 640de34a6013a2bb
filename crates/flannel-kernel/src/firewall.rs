//! The firewall of this machine: nftables by netlink, iptables by its programs, and connection tracking.
//!
//! Acts and looks, and decides nothing: which rules there should be is for the callers to say. [`rules`] keeps
//! those of a node, in whichever of the systems.

mod abi;
pub mod conntrack;
pub mod iptables;
pub mod localnet;
mod netfilter;
pub mod nft;
pub mod rules;
