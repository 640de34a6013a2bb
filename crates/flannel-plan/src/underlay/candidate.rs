//! Whether one device will do, and which of its addresses are taken.

use std::net::IpAddr;

use super::request::{is_link_local, public_option};
use super::{Choice, Host, Situation, Underlay};
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::link_name::LinkName;
use crate::mark::ALIAS_PREFIX;
use crate::observation::{AddressFact, LinkFact, Observation};
use crate::state::LinkKind;

/// A device that was asked for.
pub(super) struct Candidate {
    pub(super) link: LinkName,
    /// Its addresses, where those were asked for too.
    pub(super) fixed: ByFamily<IpAddr>,
    pub(super) because: String,
}

impl Candidate {
    /// The device with its addresses and why these, or why it will not do.
    pub(super) fn examine(&self, situation: Situation<'_>) -> Result<(Underlay, Vec<String>), String> {
        let fact = self.found(situation)?;
        if !fact.link.up && fitness(fact, situation.host).is_ok() {
            return Err("it is down".to_owned());
        }
        self.with_addresses(fact, situation)
    }

    /// The same for the device in use, if it has not lost an address: it may be down, or without a carrier.
    pub(super) fn keep(&self, situation: Situation<'_>, current: &Underlay) -> Option<Choice> {
        let fact = self.found(situation).ok()?;
        let families = &situation.wishes.families;
        let mut used = current.addresses.iter().filter(|(family, _)| families.contains(family));
        let has = |(family, address)| usable_addresses(situation.host, self.link, family).contains(address);
        if !used.all(has) {
            return None;
        }
        let (underlay, why) = self.with_addresses(fact, situation).ok()?;
        let reasons = [format!("{}: {}", self.link, self.because)].into_iter().chain(why).collect();
        let down = || {
            Finding::new(Code::InterfaceLost, "interface", format!("{} is down", self.link))
                .because("no other node can be reached until it is up again")
        };
        let note = (!fact.link.up).then(down);
        Some(Choice { underlay, reasons, note })
    }

    fn found<'a>(&self, situation: Situation<'a>) -> Result<&'a LinkFact, String> {
        let found = situation.host.observation.links.iter().find(|fact| fact.link.name == self.link);
        found.ok_or_else(|| "it is gone".to_owned())
    }

    fn with_addresses(
        &self,
        fact: &LinkFact,
        situation: Situation<'_>,
    ) -> Result<(Underlay, Vec<String>), String> {
        fitness(fact, situation.host)?;
        let mut why = Vec::new();
        if fact.link.up && !fact.running {
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
        let usable = usable_addresses(situation.host, self.link, family);
        if let Some(fixed) = self.fixed.get(family) {
            return match usable.contains(fixed) {
                true => Ok((*fixed, "as asked for".to_owned())),
                false => Err(not_usable(situation.host.observation, self.link, *fixed)),
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
            [] => Err(none_usable(situation.host.observation, self.link, family)),
            [only] => Ok((only, format!("its only usable {family} address"))),
            [best, ..] => Ok((best, format!("the best of its {} usable {family} addresses", usable.len()))),
        }
    }
}

/// Whether a device could be the one, as far as its addresses and its state leave that open.
pub(super) fn fitness(fact: &LinkFact, host: Host<'_>) -> Result<(), String> {
    let is_ours = host.links.contains(&fact.link.name) || fact.link.alias.starts_with(ALIAS_PREFIX);
    let fault = if is_ours {
        "it is one of flannel's own, which the pod network is made of"
    } else if fact.loopback {
        "it only speaks to this host"
    } else if fact.link.mtu == 0 {
        "it has no MTU"
    } else if let Some(address) = address_of_pods(host, fact.link.name) {
        return Err(format!("it has {address}, an address of the pod network: it leads to pods"));
    } else {
        return Ok(());
    };
    Err(fault.to_owned())
}

/// The address by which a device leads to pods: one with a segment of them behind it, or of their own if it has no
/// other. A lone address of theirs beside those of a node, a virtual one, leads nowhere.
fn address_of_pods(host: Host<'_>, link: LinkName) -> Option<IpAddr> {
    let global = host.observation.addresses.iter().filter(|fact| !is_link_local(fact.address.addr()));
    let (pods, others): (Vec<_>, Vec<_>) =
        global.filter(|fact| fact.link == link).partition(|fact| is_of_pods(host, fact.address.addr()));
    let has_segment = |fact: &&&AddressFact| fact.address.prefix_len() < fact.address.max_prefix_len();
    let found = pods.iter().find(has_segment).or(pods.first().filter(|_| others.is_empty()));
    found.map(|fact| fact.address.addr())
}

fn is_of_pods(host: Host<'_>, address: IpAddr) -> bool {
    let family = Family::of(address);
    host.own.get(family).is_some_and(|own| own.contains(&address))
        || host.networks.get(family).is_some_and(|network| {
            // Where somebody else gives out subnets, nobody can say which are not.
            network.is_for_pods(address) && !network.is_given_out_elsewhere()
        })
}

/// Whether a device has the looks of a pod's cable or of the bridge that pods hang on: no address that it has counts
/// beyond its segment. What a pattern catches by chance is not meant.
pub(super) fn is_cable_of_pods(fact: &LinkFact, observation: &Observation) -> bool {
    let is_kind = matches!(&fact.link.kind, LinkKind::Other(kind) if matches!(&**kind, "veth" | "bridge"));
    let addresses = observation.addresses.iter().filter(|address| address.link == fact.link.name);
    let mut addresses = addresses.map(|address| is_link_local(address.address.addr())).peekable();
    is_kind && addresses.peek().is_some() && addresses.all(|is_link_local| is_link_local)
}

/// The addresses that other nodes can send to, the best first: a node's before those of pods, global before
/// link-local, permanent before leased, lasting before temporary; equals as the kernel lists them.
pub(super) fn usable_addresses(host: Host<'_>, link: LinkName, family: Family) -> Vec<IpAddr> {
    let mut usable: Vec<_> =
        on(host.observation, link, family).filter(|fact| fault(fact).is_none()).collect();
    usable.sort_by_key(|fact| {
        let address = fact.address.addr();
        (is_of_pods(host, address), is_link_local(address), !fact.permanent, fact.temporary)
    });
    usable.iter().map(|fact| fact.address.addr()).collect()
}

fn on(observation: &Observation, link: LinkName, family: Family) -> impl Iterator<Item = &AddressFact> {
    observation
        .addresses
        .iter()
        .filter(move |fact| fact.link == link && Family::of_net(fact.address) == family)
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

fn not_usable(observation: &Observation, link: LinkName, address: IpAddr) -> String {
    let found = on(observation, link, Family::of(address)).find(|fact| fact.address.addr() == address);
    match found.and_then(fault) {
        Some(fault) => format!("{address} {fault}"),
        None => format!("it does not have {address}"),
    }
}

fn none_usable(observation: &Observation, link: LinkName, family: Family) -> String {
    let faults = on(observation, link, family).filter_map(|fact| Some((fact.address.addr(), fault(fact)?)));
    let faults: Vec<_> = faults.map(|(address, fault)| format!("{address} {fault}")).collect();
    match faults.is_empty() {
        true => format!("it has no {family} address"),
        false => format!("it has no usable {family} address: {}", faults.join(", ")),
    }
}

/// Every device of the host with its state and addresses.
pub(super) fn present(observation: &Observation) -> Vec<String> {
    let line = |fact: &LinkFact| {
        let state = if fact.link.up { "up" } else { "down" };
        let addresses = observation.addresses.iter().filter(|address| address.link == fact.link.name);
        let addresses: String = addresses.map(|address| format!(" {}", address.address)).collect();
        format!("{} {state}{addresses}", fact.link.name)
    };
    observation.links.iter().map(line).collect()
}
