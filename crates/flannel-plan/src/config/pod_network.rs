//! The pod network of one family: its keys, defaults and limits, which differ between the families only in
//! names and numbers. Takes the fields of a net-conf, gives a [`PodNetwork`] or notes the faults.

use std::net::IpAddr;

use ipnet::IpNet;

use super::PodNetwork;
use super::fields::{Fields, Noted};
use crate::family::Family;
use crate::number::{address, number, reach, span};

/// What a net-conf says of one family: each value of its type; whether they agree is not yet known.
pub(super) struct Stated {
    family: Family,
    network: Result<Option<IpNet>, Noted>,
    subnet_len: Result<Option<u8>, Noted>,
    subnet_min: Result<Option<IpAddr>, Noted>,
    subnet_max: Result<Option<IpAddr>, Noted>,
}

/// The key of a family: `Network` and `IPv6Network`, likewise `SubnetLen`, `SubnetMin` and `SubnetMax`.
fn key(family: Family, name: &str) -> String {
    match family {
        Family::V4 => name.to_owned(),
        Family::V6 => format!("IPv6{name}"),
    }
}

/// The prefix that a subnet has where the network is large enough.
fn usual_len(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

/// The longest prefix of a subnet: four addresses, for the network, the bridge and at least one pod.
fn longest_len(family: Family) -> u8 {
    family.bits() - 2
}

pub(super) fn read(fields: &mut Fields<'_>, family: Family) -> Stated {
    let longest = longest_len(family);
    let expected = format!("a whole number up to {longest}: a subnet needs at least four addresses");
    Stated {
        family,
        network: fields.network(&key(family, "Network"), family),
        // For Go, 0 is the same as absent.
        subnet_len: fields
            .number(&key(family, "SubnetLen"), &expected, |length| length <= longest)
            .map(|length| length.filter(|length| *length > 0)),
        subnet_min: fields.address(&key(family, "SubnetMin"), family),
        subnet_max: fields.address(&key(family, "SubnetMax"), family),
    }
}

/// Fills in what is not said, and notes all that does not agree.
pub(super) fn check(fields: &mut Fields<'_>, stated: Stated) -> Result<PodNetwork, Noted> {
    let family = stated.family;
    let (min_key, max_key) = (key(family, "SubnetMin"), key(family, "SubnetMax"));
    let network = check_network(fields, family, stated.network?)?;
    let subnet_len = stated.subnet_len.and_then(|length| check_len(fields, network, length));
    let subnet_reach = subnet_len.as_ref().ok().and_then(|length| reach(family, *length));
    let mut check_bound = |key: &str, bound: Option<IpAddr>| match bound {
        Some(bound) => check_bound(fields, key, bound, network, subnet_reach).map(Some),
        None => Ok(None),
    };
    let stated_min = stated.subnet_min.and_then(|bound| check_bound(&min_key, bound));
    let stated_max = stated.subnet_max.and_then(|bound| check_bound(&max_key, bound));

    let (subnet_len, subnet_reach) = (subnet_len?, subnet_reach.ok_or(Noted)?);
    let (stated_min, stated_max) = (stated_min?, stated_max?);
    let (first, last) = span(network);
    // The first subnet is left out: its base, which a device gets as its address, is that of the whole network.
    let subnet_min = stated_min.or(address(family, first + subnet_reach + 1)).ok_or(Noted)?;
    let subnet_max = stated_max.or(address(family, last - subnet_reach)).ok_or(Noted)?;
    if subnet_min > subnet_max {
        return Err(match stated_min {
            Some(_) => fields.note(&min_key, format!("at most {subnet_max}, the last subnet")),
            None => fields.note(&max_key, format!("at least {subnet_min}, the first subnet")),
        });
    }
    Ok(PodNetwork { network, subnet_len, subnet_min, subnet_max })
}

/// Takes the network alone: any subnet of it may be given to a node, also all of it.
pub(super) fn whole(fields: &mut Fields<'_>, stated: Stated) -> Result<PodNetwork, Noted> {
    let family = stated.family;
    let network = match stated.network? {
        Some(network) => network,
        None => check_network(fields, family, None)?,
    };
    let (first, last) = span(network);
    let subnet_min = address(family, first).ok_or(Noted)?;
    let subnet_max = address(family, last).ok_or(Noted)?;
    Ok(PodNetwork { network, subnet_len: network.prefix_len(), subnet_min, subnet_max })
}

fn check_network(fields: &mut Fields<'_>, family: Family, network: Option<IpNet>) -> Result<IpNet, Noted> {
    let key = &key(family, "Network");
    let longest = longest_len(family) - 2;
    match network {
        None => Err(fields.note(key, format!("the addresses of all pods, because {family} is on"))),
        Some(network) if network.prefix_len() == 0 => {
            Err(fields.note(key, "a part of the address space, not all of it"))
        }
        Some(network) if network.prefix_len() > longest => {
            Err(fields.note(key, format!("/{longest} or larger: room for four subnets of four addresses")))
        }
        Some(network) => Ok(network),
    }
}

fn check_len(fields: &mut Fields<'_>, network: IpNet, length: Option<u8>) -> Result<u8, Noted> {
    let family = Family::of_net(network);
    let shortest = network.prefix_len() + 2;
    match length {
        None => Ok(shortest.max(usual_len(family))),
        Some(length) if length < shortest => {
            let expected = format!("at least {shortest}: {network} must have room for four subnets");
            Err(fields.note(&key(family, "SubnetLen"), expected))
        }
        Some(length) => Ok(length),
    }
}

/// Checks that a bound is in the network and, where the length of a subnet is known, that it begins one.
fn check_bound(
    fields: &mut Fields<'_>,
    key: &str,
    bound: IpAddr,
    network: IpNet,
    subnet_reach: Option<u128>,
) -> Result<IpAddr, Noted> {
    if !network.contains(&bound) {
        return Err(fields.note(key, format!("an address of {network}")));
    }
    let begun = |reach: u128| address(Family::of(bound), number(bound) & !reach);
    match subnet_reach.and_then(begun) {
        Some(base) if base != bound => {
            Err(fields.note(key, format!("the first address of a subnet, such as {base}")))
        }
        _ => Ok(bound),
    }
}
