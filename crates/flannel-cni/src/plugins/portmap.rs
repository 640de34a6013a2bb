//! portmap: ports of the host lead to a container. It stands behind the plugin that made the container's
//! addresses, and gives that plugin's answer on.
//!
//! The rules are those of Go's plugin, by iptables or nftables. Where no ports are asked for nothing is run; what
//! may be left of an attachment is looked up without running anything.

mod conditions;
mod config;
mod iptables;
mod nftables;
mod owner;

use std::net::IpAddr;

use flannel_kernel::firewall::conntrack;
use flannel_kernel::firewall::localnet::let_localhost_reach;
use ipnet::IpNet;

use self::config::{Config, Transport, container_addresses, host_ports};
use crate::error::{CniError, OrInternal, code};
use crate::firewall::backend::FirewallBackend;
use crate::firewall::{Meant, NatTable, clean_legacy, delete, in_nft};
use crate::request::Request;
use crate::result::Attachment;

/// Reads the configuration as DEL does, which takes what it can, and as ADD does.
pub(super) fn read(request: &Request) -> Result<(), CniError> {
    let _ = owner::of(request);
    Config::read(request).map(drop)
}

/// Makes the rules for the ports that the runtime asks for.
pub fn add(request: &Request) -> Result<Attachment, CniError> {
    let (config, previous) = understand(request).map_err(unreadable)?;
    let previous = previous.ok_or_else(|| CniError::internal("must be called as chained plugin"))?;
    if config.mappings.is_empty() {
        return Ok(previous);
    }
    let addresses = container_addresses(&previous, &request.ifname);
    match config.backend().map_err(unreadable)? {
        FirewallBackend::Iptables => iptables::set_up(request, &config, &addresses)?,
        FirewallBackend::Nftables => nftables::set_up(request, &config, &addresses)?,
    }
    let is_udp = |mapping: &&config::Mapping| mapping.transport == Transport::UDP;
    forget(config.mappings.iter().filter(is_udp).map(|mapping| mapping.host_port).collect());
    if config.snat {
        let_localhost_in(&addresses)?;
    }
    Ok(previous)
}

/// Removes what is left of an attachment, whichever backend and whichever plugin made it.
pub fn del(request: &Request) -> Result<(), CniError> {
    let (outcome, mut udp) = clean(Meant::Attachment(&owner::of(request)));
    // A flow of before would go on to the address of a container that is gone, or to the next that has it.
    udp.extend(host_ports(request).1);
    forget(udp);
    outcome
}

/// Are the rules there?
pub fn check(request: &Request) -> Result<(), CniError> {
    let (config, previous) = understand(request)?;
    let previous = previous.ok_or_else(|| CniError::internal("Required prevResult missing"))?;
    if config.mappings.is_empty() {
        return Ok(());
    }
    let addresses = container_addresses(&previous, &request.ifname);
    match config.backend()? {
        FirewallBackend::Iptables => iptables::check(request, &config, &addresses),
        FirewallBackend::Nftables => nftables::check(request, &config, &addresses),
    }
}

/// Removes the rules of all attachments of this network but the valid ones.
pub fn gc(request: &Request) -> Result<(), CniError> {
    match request.valid_attachments()? {
        Some(valid) => {
            let (outcome, udp) = clean(Meant::AllBut(&request.network, &valid));
            forget(udp);
            outcome
        }
        None => Ok(()),
    }
}

/// Can rules be made?
pub fn status(request: &Request) -> Result<(), CniError> {
    let config = Config::read(request).map_err(unreadable)?;
    let backend = config.backend().map_err(unreadable)?;
    if backend.is_usable() {
        return Ok(());
    }
    let text = format!("port mappings cannot be made: {} is not usable on this host", backend.name());
    Err(CniError::new(code::NOT_AVAILABLE, text))
}

fn understand(request: &Request) -> Result<(Config, Option<Attachment>), CniError> {
    let previous = request.prev_result()?;
    let config = Config::read(request)?;
    if config.is_particular() {
        config.backend()?; // settings of the other one are a fault even where there is nothing to do
    }
    Ok((config, previous))
}

fn unreadable(error: CniError) -> CniError {
    let words = "failed to parse config";
    let error = CniError { code: code::INTERNAL, ..error };
    if error.msg.starts_with(words) { error } else { error.context(words) }
}

/// Forgets UDP flows to these ports: they would go on as before the rules. It works without, only later.
fn forget(ports: Vec<u16>) {
    let _ = conntrack::forget_udp(&ports);
}

fn let_localhost_in(addresses: &[IpNet]) -> Result<(), CniError> {
    for address in addresses {
        if let IpAddr::V4(address) = address.addr() {
            let_localhost_reach(address).or_internal(format_args!("unable to enable route_localnet"))?;
        }
    }
    Ok(())
}

/// Removes in one transaction what lies in nftables, that of iptables too, and by its program what does not; and
/// tells the ports of UDP that were found on the way.
fn clean(meant: Meant<'_>) -> (Result<(), CniError>, Vec<u16>) {
    let mut udp = Vec::new();
    let by_netlink = delete("error deleting nftables rules", |nft, transaction| {
        nftables::leftovers(nft, transaction, meant, &mut udp)?;
        in_nft(nft, transaction, |table, _| iptables::leftovers(table, meant, &mut udp))
    });
    let may_hold = |table: &[u8]| meant.may_be_in(table, &iptables::SHARED.map(|(_, own)| own), "dnat ");
    let by_program = |table: &mut NatTable<'_>, _| iptables::leftovers(table, meant, &mut udp);
    (by_netlink.and(clean_legacy("could not teardown dnat", may_hold, by_program)), udp)
}
