//! A way in for the fuzz targets: the kernel's messages, read without a kernel.

use flannel_plan::link_name::LinkName;

use crate::abi::{AF_INET, AF_INET6};
use crate::names::Names;
use crate::netlink::{Attributes, error_of, messages};
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
