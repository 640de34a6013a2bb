//! What the tests of rules share: a site of two nodes and a stranger, packets that are really sent, a table of what
//! their sources should be, and a stream of new connections.
//!
//! Everything looks from outside, with sockets and the programs an operator has, so that no test trusts the code that
//! it tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and a test stops at the first surprise"
)]

mod firewalld;
mod listing;
mod mode;
mod netns;
mod proxy;
mod services;
mod site;
mod stream;
mod tally;
mod truth;

pub use firewalld::Firewalld;
pub use flannel_plan::family::Family;
pub use listing::{listing, of_flannel};
pub use mode::{Folder, Mode};
pub use netns::Netns;
pub use proxy::{Proxy, ProxyMode, Service};
pub use site::Site;
pub use stream::{Connections, Outcome};
pub use truth::{Case, Protocol, cases};
