//! A way in for the fuzz targets: the kernel's messages, read without a kernel.

use flannel_plan::link_name::LinkName;
use flannel_plan::rules::Rule;

use crate::abi::{AF_INET, AF_INET6};
use crate::firewall::nft::compile::compile;
use crate::firewall::nft::decompile::decompile;
use crate::firewall::nft::listing::{read_chain, read_elements, read_nat_chain, read_set, read_table};
use crate::firewall::nft::{TableFamily, read_rule, set, userdata};
use crate::link::Names;
use crate::netlink::{Attributes, Outbox, error_of, messages};
use crate::{address, link, neighbour, route, stack, vxlan};

/// Reads a buffer of routing messages with every reader of them, and gives how many there are.
pub fn netlink(bytes: &[u8]) -> usize {
    let Ok(name) = "flannel.1".parse::<LinkName>() else { return 0 };
    let names: Names = (0..4).map(|index| (index, name)).collect();
    let each = messages(bytes).map(|message| {
        let error = error_of(&message).map(|error| error.to_string());
        let devices = (link::read_name(&message), stack::read(&message), link::read(&message).is_some());
        let addresses = (address::read_mention(&message), address::read(&message, &names));
        let routes = [AF_INET, AF_INET6].map(|family| route::read_fact(&message, &names, family));
        let entry = neighbour::read_mention(&message).map(|mention| mention.link);
        let device = (entry.unwrap_or_default(), name);
        let entries = (neighbour::read_neighbour(&message, device), neighbour::read_fdb(&message, device));
        let tunnel = vxlan::read(Attributes(message.payload));
        drop((error, devices, addresses, routes, entries, tunnel));
        walk(Attributes(message.payload), 0);
    });
    each.count()
}

/// Walks through attributes in attributes.
fn walk(attributes: Attributes<'_>, depth: usize) {
    for (_, value) in attributes.filter(|_| depth < 8) {
        walk(Attributes(value), depth + 1);
    }
}

/// Reads the expressions of a rule of nftables in tables of every family; what was understood and is written again
/// reads the same.
pub fn nft_rule(bytes: &[u8]) {
    for family in [TableFamily::Ip, TableFamily::Ip6, TableFamily::Inet, TableFamily::Bridge] {
        let written = rewritten(&decompile(family, bytes), family);
        let read = decompile(family, &written);
        assert_eq!(decompile(family, &rewritten(&read, family)), read);
    }
}

fn rewritten(rule: &Rule, family: TableFamily) -> Vec<u8> {
    let outbox = Outbox::of(0, 0, |list| compile(family, rule).iter().for_each(|it| it.write(list)));
    messages(outbox.as_bytes()).next().map(|message| message.payload.to_vec()).unwrap_or_default()
}

/// Reads what stands beside a rule; what is written again reads the same.
pub fn nft_userdata(bytes: &[u8]) {
    let (comment, tag) = userdata::read(bytes);
    let read = userdata::read(&userdata::write(comment.as_deref(), tag.as_deref()));
    assert_eq!(userdata::read(&userdata::write(read.0.as_deref(), read.1.as_deref())), read);
}

/// Reads a buffer of messages of nftables with every reader of them.
pub fn nft_messages(bytes: &[u8]) {
    for message in messages(bytes) {
        let objects = (read_table(&message), read_chain(&message), read_nat_chain(&message));
        let rules = [TableFamily::Ip, TableFamily::Inet].map(|family| read_rule(&message, family, "t"));
        let elements = read_elements(&message).map(|edges| set::networks(edges).len());
        drop((objects, rules, elements, read_set(&message, "t")));
    }
}
