//! Masquerade of one attachment (`ipMasq` of bridge): what leaves a container for another network gets the
//! address of the host. Takes the addresses of the container, makes the same rules as Go's plugins.
//!
//! Rules are made by one backend and removed from both: the host, or its settings, may have changed since.

mod iptables;
mod nftables;

use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::backend::FirewallBackend;
use crate::firewall::{NatTable, clean_legacy, delete, failure, in_nft};
use crate::request::Request;

/// What is to be deleted.
#[derive(Clone, Copy, Debug)]
enum Meant<'a> {
    /// Everything of one attachment, which has these addresses; none are known if there are none.
    Attachment(&'a Request, &'a [IpNet]),
    /// Everything of the request's network but what belongs to these containers and interfaces.
    AllBut(&'a Request, &'a [(&'a str, &'a str)]),
}

/// Makes the rules for the addresses of an attachment; the backend is chosen as Go does if none is asked for.
pub fn set_up(request: &Request, addresses: &[IpNet], backend: Option<&str>) -> Result<(), CniError> {
    let unknown = |name: &str| CniError::internal(format!("unknown ipmasq backend {name:?}"));
    let backend = match backend {
        Some(name) => FirewallBackend::parse(name).ok_or_else(|| unknown(name))?,
        None => FirewallBackend::of_this_host(),
    };
    match backend {
        FirewallBackend::Iptables => iptables::set_up(request, addresses),
        FirewallBackend::Nftables => nftables::set_up(request, addresses),
    }
}

/// Removes the rules of an attachment, whichever backend made them; works without its addresses.
pub fn tear_down(request: &Request, addresses: &[IpNet]) -> Result<(), CniError> {
    clean(Meant::Attachment(request, addresses))
}

/// Removes the rules of all attachments of this network but the valid ones: container and interface.
pub fn gc(request: &Request, valid: &[(&str, &str)]) -> Result<(), CniError> {
    clean(Meant::AllBut(request, valid))
}

/// Removes in one transaction what lies in nftables, that of iptables too, and by its program what does not.
fn clean(meant: Meant<'_>) -> Result<(), CniError> {
    let by_netlink = delete(|nft| {
        let mut edits = nftables::leftovers(nft, meant)?;
        edits.join(in_nft(nft, |table, family| iptables::leftovers(table, family, meant))?);
        Ok(edits)
    });
    let what = "cannot remove masquerading";
    let by_program = |table: &mut NatTable<'_>, family| iptables::leftovers(table, family, meant);
    by_netlink.map_err(|why| failure(what, &why)).and(clean_legacy(
        what,
        |table| iptables::may_hold(table, meant),
        by_program,
    ))
}
