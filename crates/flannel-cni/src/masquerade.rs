//! Masquerade of one attachment (`ipMasq` of bridge): what leaves a container for another network gets the
//! address of the host. Takes the addresses of the container, makes the same rules as Go's plugins.
//!
//! Rules are made by one backend and removed from both: the host, or its settings, may have changed since.

mod iptables;
mod nftables;

use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::backend::FirewallBackend;
use crate::firewall::{Meant, NatTable, Owner, clean_legacy, delete, in_nft};
use crate::request::{AttachmentId, Request};

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
    clean(Meant::Attachment(&Owner { request, addresses: addresses.to_vec(), ports: Vec::new() }))
}

/// Removes the rules of all attachments of this network but the valid ones.
pub fn gc(request: &Request, valid: &[AttachmentId]) -> Result<(), CniError> {
    clean(Meant::AllBut(&request.network, valid))
}

/// Removes in one transaction what lies in nftables, that of iptables too, and by its program what does not.
fn clean(meant: Meant<'_>) -> Result<(), CniError> {
    let what = "cannot remove masquerading";
    let in_iptables = |table: &mut NatTable<'_>, family| iptables::leftovers(table, family, meant);
    let by_netlink = delete(what, |nft, transaction| {
        transaction.extend(nftables::TABLE, nftables::leftovers(nft, meant)?);
        in_nft(nft, transaction, in_iptables)
    });
    let may_hold = |table: &[u8]| meant.may_be_in(table, &[iptables::OWN], "");
    by_netlink.and(clean_legacy(what, may_hold, in_iptables))
}
