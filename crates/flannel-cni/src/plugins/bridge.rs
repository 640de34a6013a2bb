//! The bridge plugin: a bridge on the host, a veth pair from it into each pod, addresses from IPAM.
//!
//! Takes what Go's bridge plugin takes and makes the same objects, with one netlink socket in each namespace.
//! What was made is taken back when ADD fails; DEL frees all it can find, and goes on after a failure.

mod add;
mod check;
mod config;
mod del;
mod gateway;
mod host;
mod inside;
mod veth;

pub use add::add;
pub use check::check;
pub(super) use config::bridge_name as name;
pub use del::del;

use std::borrow::Cow;

use crate::delegate;
use crate::error::CniError;
use crate::request::{Command, Request};
use crate::{macspoof, masquerade};

/// Reads the configuration.
pub(super) fn read(request: &Request) -> Result<(), CniError> {
    config::Config::read(request).map(drop)
}

/// Frees what belongs to no attachment any more: addresses at IPAM, and rules.
pub fn gc(request: &Request) -> Result<(), CniError> {
    let mut failures = Vec::new();
    if let Some(ipam) = config::ipam(request.config())? {
        failures.extend(delegate::call(request, Command::Gc, ipam, &request.config).err());
    }
    // Without a list nobody knows what is valid: then nothing is removed.
    if let Some(valid) = request.valid_attachments()? {
        failures.extend(masquerade::gc(request, &valid).err());
        failures.extend(macspoof::gc(request, &valid).err());
    }
    all(failures)
}

/// Whether pods can be attached: only IPAM can run out of something.
pub fn status(request: &Request) -> Result<(), CniError> {
    match config::ipam(request.config())? {
        Some(ipam) => delegate::call(request, Command::Status, ipam, &request.config).map(drop),
        None => Ok(()),
    }
}

/// What IPAM is asked: a hardware address in `CNI_ARGS` is for us, and must not be an unknown word to it.
fn request_to_ipam(request: &Request) -> Cow<'_, Request> {
    let has = |key: &str| request.args.split(';').any(|pair| pair.starts_with(key));
    if !has("MAC=") || has("IgnoreUnknown=") {
        return Cow::Borrowed(request);
    }
    Cow::Owned(Request { args: format!("{};IgnoreUnknown=1", request.args), ..request.clone() })
}

/// Several failures as one: the code of the first, the words of all.
fn all(failures: Vec<CniError>) -> Result<(), CniError> {
    let mut failures = failures.into_iter();
    let Some(mut first) = failures.next() else { return Ok(()) };
    for other in failures {
        first.msg = format!("{}; {other}", first.msg);
    }
    Err(first)
}
