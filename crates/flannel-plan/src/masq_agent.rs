//! ip-masq-agent: what leaves a node gets the node's address, except to networks that a file names.

pub mod cidr;
