//! The CNI plugins `flannel`, `bridge`, `host-local`, `portmap` and `loopback` in one program, and the side of
//! the runtime that calls plugins.
//!
//! A call is a [`request::Request`]: environment and standard input, read once. A plugin is a function from it
//! to a [`result::Attachment`] or a [`error::CniError`]; [`program`] turns either into what the CNI
//! specification wants on standard output. Nothing here is async: one call, one answer, exit.

pub mod attachment;
pub mod delegate;
pub mod error;
mod firewall;
pub mod install;
pub mod json;
pub mod macspoof;
pub mod masquerade;
pub mod plugins;
mod process;
pub mod program;
pub mod record;
pub mod request;
pub mod result;
pub mod runtime;
pub mod sandbox;
pub mod version;
