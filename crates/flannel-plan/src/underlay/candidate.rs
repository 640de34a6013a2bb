//! Whether one device will do, and which of its addresses are taken.

use std::net::IpAddr;

use super::request::{is_link_local, public_option};
use super::{Situation, Underlay};
use crate::family::{ByFamily, Family};
use crate::link_name::LinkName;
use crate::look::{AddressFact, LinkFact, Look};

/// A device that was asked for.
pub(super) struct Candidate {
    /// The device.
    pub(super) link: LinkName,
    /// Its addresses, where those were asked for too.
    pub(super) fixed: ByFamily<IpAddr>,
    /// Why it is a candidate.
    pub(super) because: String,
}

impl Candidate {
    /// The device with its addresses and why these, or why it will not do.
    pub(super) fn examine(&self, situation: Situation<'_>) -> Result<(Underlay, Vec<String>), String> {
        let found = situation.look.links.iter().find(|fact| fact.link.name == self.link);
        let fact = found.ok_or("it is gone")?;
        fitness(fact, situation.own)?;
        let mut why = Vec::new();
        if !fact.running {
            why.push(format!("{}: it is up, but has no carrier now", self.link));
        }
        let mut underlay = Underlay {
            link: self.link,
            mtu: fact.link.mtu,
            addresses: ByFamily::default(),
            public: ByFamily::default(),
        };
        for family in &situation.wishes.families {
            let (address, reason) = self.address(situation, *family)?;
            why.push(format!("{}: {address}, {reason}", self.link));
            let public = situation.wishes.public.get(*family).copied();
            if let Some(public) = public.filter(|public| *public != address) {
                why.push(format!(
                    "{}: other nodes are told {public}, by {}",
                    self.link,
                    public_option(*family)
                ));
            }
            *underlay.addresses.slot(*family) = Some(address);
            *underlay.public.slot(*family) = Some(public.unwrap_or(address));
        }
        Ok((underlay, why))
    }

    /// The address of one family: the one that was asked for, else the public one, else the one in use, else
    /// the best.
    fn address(&self, situation: Situation<'_>, family: Family) -> Result<(IpAddr, String), String> {
        let usable = usable_addresses(situation.look, self.link, family);
        if let Some(fixed) = self.fixed.get(family) {
            return match usable.contains(fixed) {
                true => Ok((*fixed, "as asked for".to_owned())),
                false => Err(not_usable(situation.look, self.link, *fixed)),
            };
        }
        if let Some(public) = situation.wishes.public.get(family).filter(|public| usable.contains(public)) {
            return Ok((*public, format!("as {} says", public_option(family))));
        }
        let current = situation.current.filter(|current| current.link == self.link);
        let current = current.and_then(|current| current.addresses.get(family));
        let has_global = usable.first().is_some_and(|best| !is_link_local(*best));
        match current {
            // A link-local address is a makeshift: it gives way, and it does not stand in for one that is away.
            Some(current) if usable.contains(current) && (!is_link_local(*current) || !has_global) => {
                return Ok((*current, "as before".to_owned()));
            }
            Some(current) if !is_link_local(*current) && !has_global && !usable.is_empty() => {
                return Err(format!(
                    "it has no {family} address but link-local ones since it lost {current}"
                ));
            }
            _ => {}
        }
        match usable[..] {
            [] => Err(none_usable(situation.look, self.link, family)),
            [only] => Ok((only, format!("its only usable {family} address"))),
            [best, ..] => Ok((best, format!("the best of its {} usable {family} addresses", usable.len()))),
        }
    }
}

fn fitness(fact: &LinkFact, own: &[LinkName]) -> Result<(), String> {
    let fault = if own.contains(&fact.link.name) {
        "it is one of flannel's own, which the pod network is made of"
    } else if fact.loopback {
        "it only speaks to this host"
    } else if !fact.link.up {
        "it is down"
    } else if fact.link.mtu == 0 {
        "it has no MTU"
    } else {
        return Ok(());
    };
    Err(fault.to_owned())
}

/// The addresses that other nodes can send to, the best first: global before link-local, permanent before
/// leased, lasting before temporary; equals as the kernel lists them.
pub(super) fn usable_addresses(look: &Look, link: LinkName, family: Family) -> Vec<IpAddr> {
    let mut usable: Vec<_> = on(look, link, family).filter(|fact| fault(fact).is_none()).collect();
    usable.sort_by_key(|fact| (is_link_local(fact.address.addr()), !fact.permanent, fact.temporary));
    usable.iter().map(|fact| fact.address.addr()).collect()
}

fn on(look: &Look, link: LinkName, family: Family) -> impl Iterator<Item = &AddressFact> {
    look.addresses.iter().filter(move |fact| fact.link == link && Family::of_net(fact.address) == family)
}

fn fault(fact: &AddressFact) -> Option<&'static str> {
    let address = fact.address.addr();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if fact.unusable {
        Some("is being checked for a double, or is one")
    } else if fact.deprecated {
        Some("is deprecated")
    } else if address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_broadcast {
        Some("cannot be sent to by other hosts")
    } else {
        None
    }
}

fn not_usable(look: &Look, link: LinkName, address: IpAddr) -> String {
    let found = on(look, link, Family::of(address)).find(|fact| fact.address.addr() == address);
    match found.and_then(fault) {
        Some(fault) => format!("{address} {fault}"),
        None => format!("it does not have {address}"),
    }
}

fn none_usable(look: &Look, link: LinkName, family: Family) -> String {
    let faults = on(look, link, family).filter_map(|fact| Some((fact.address.addr(), fault(fact)?)));
    let faults: Vec<_> = faults.map(|(address, fault)| format!("{address} {fault}")).collect();
    match faults.is_empty() {
        true => format!("it has no {family} address"),
        false => format!("it has no usable {family} address: {}", faults.join(", ")),
    }
}

/// Every device of the host with its state and addresses.
pub(super) fn present(look: &Look) -> Vec<String> {
    let line = |fact: &LinkFact| {
        let state = if fact.link.up { "up" } else { "down" };
        let addresses = look.addresses.iter().filter(|address| address.link == fact.link.name);
        let addresses: String = addresses.map(|address| format!(" {}", address.address)).collect();
        format!("{} {state}{addresses}", fact.link.name)
    };
    look.links.iter().map(line).collect()
}
