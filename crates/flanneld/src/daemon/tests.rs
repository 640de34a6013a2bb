//! The whole daemon on a kernel and a store in memory: what it makes of the kernel, and what it says of itself.

mod findings;
mod firewall;
mod memory;
mod net_conf;
mod peers;
mod repairs;
mod stage;
mod starting;
mod store;
