//! The device below the pod network: chosen from what the kernel was found to be, with the reasons.
//!
//! Takes the operator's [`UnderlayOptions`] and a [`Observation`], gives a [`Choice`] or, for each candidate, why it will not
//! do. Also who is on-link: [`best_route`] and [`on_link`] answer that from the host's routes.

mod candidate;
mod request;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::PodNetwork;
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::inputs::HostRoute;
use crate::link_name::LinkName;
use crate::observation::Observation;
use crate::state::RouteKind;
use request::Request;

/// The device below the pod network, and this node's addresses on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    pub link: LinkName,
    pub mtu: u32,
    /// Its address in each family in use.
    pub addresses: ByFamily<IpAddr>,
    /// The addresses that other nodes are told to send to.
    pub public: ByFamily<IpAddr>,
}

/// What the operator says about the device below the pod network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderlayOptions {
    pub families: Vec<Family>,
    /// Names or addresses of devices, the dearest first (`--iface`).
    pub ifaces: Vec<String>,
    /// Patterns for them, the dearest first (`--iface-regex`).
    pub patterns: Vec<Pattern>,
    /// An address that the device leads to (`--iface-can-reach`).
    pub can_reach: Option<IpAddr>,
    /// The addresses that other nodes are told to send to (`--public-ip`, `--public-ipv6`).
    pub public: ByFamily<IpAddr>,
}

/// A pattern, and what of the host it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub text: String,
    /// The names and the addresses, without their length, that it matches.
    pub matches: BTreeSet<String>,
}

/// The host that a device is chosen on, and what of it the pod network is made of.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub observation: &'a Observation,
    /// The devices that are ours by name.
    pub links: &'a [LinkName],
    /// The pod networks: a device with an address that may be a pod's leads to pods, not to nodes.
    pub networks: &'a ByFamily<PodNetwork>,
    /// This node's own parts of them.
    pub own: ByFamily<IpNet>,
}

/// The device that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub underlay: Underlay,
    /// Why this one, and why none that was asked for before it; one sentence each.
    pub reasons: Vec<String>,
    /// What is wrong with it now, where it is kept all the same.
    pub note: Option<Finding>,
}

const NONE_WILL_DO: &str = "no network interface can carry the pod network";

/// No device will do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{NONE_WILL_DO}: {} (the host has {})", cause(.refused), .present.join("; "))]
pub struct NoUnderlay {
    pub refused: Vec<RejectedCandidate>,
    /// Every device of the host with its addresses.
    pub present: Vec<String>,
    pub hint: String,
}

/// A candidate that will not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{candidate}: {reason}")]
pub struct RejectedCandidate {
    /// What was asked for, and the device that it led to if it did.
    pub candidate: String,
    pub reason: String,
}

impl NoUnderlay {
    /// The same to be told. Those who are not on the node must not know which interfaces it has.
    pub fn finding(&self) -> Finding {
        self.told(Code::NoInterface, format!(" (the host has {})", self.present.join("; ")))
    }

    /// The same without all that the host has.
    pub fn brief_finding(&self) -> Finding {
        self.told(Code::NoInterface, String::new())
    }

    fn told(&self, code: Code, more: String) -> Finding {
        let cause = cause(&self.refused);
        let finding = Finding::new(code, "interface", format!("{NONE_WILL_DO}: {cause}{more}"));
        finding.with_parts(Some(cause), None).or_do(&self.hint).told_outside_as(NONE_WILL_DO)
    }
}

fn cause(refused: &[RejectedCandidate]) -> String {
    refused.iter().map(RejectedCandidate::to_string).collect::<Vec<_>>().join("; ")
}

/// All that the choice depends on.
#[derive(Clone, Copy)]
struct Situation<'a> {
    wishes: &'a UnderlayOptions,
    host: Host<'a>,
    current: Option<&'a Underlay>,
}

/// Chooses the device below the pod network.
///
/// The one in use is kept while it exists, has its addresses and the wishes name it, whatever becomes of carrier
/// and routes: peers send to it, and a better route is no reason to move a node. If it has lost its addresses, the
/// device is taken that the wishes lead to first and that will do; if none will, the last one stays.
///
/// Without a wish the default route leads to the device, and where there is none, the only usable address; with a
/// wish there is no falling back to either. A device will do if it is up, leads to no pods, speaks to other
/// hosts, and has a usable address in each family.
pub fn choose(
    wishes: &UnderlayOptions,
    host: Host<'_>,
    current: Option<&Underlay>,
) -> Result<Choice, NoUnderlay> {
    let situation = Situation { wishes, host, current };
    let refuse = |refused, hint: &str| NoUnderlay {
        refused,
        present: candidate::present(host.observation),
        hint: hint.to_owned(),
    };
    if let Some((refusal, hint)) = contradiction(wishes) {
        return Err(refuse(vec![refusal], hint));
    }
    let requests = Request::all(wishes);
    if let Some(kept) = requests.iter().find_map(|request| request.keep(situation)) {
        return Ok(kept);
    }
    let mut refused = Vec::new();
    for request in &requests {
        match request.answer(situation) {
            Ok((underlay, why)) => {
                let reasons = refused.iter().map(RejectedCandidate::to_string).chain(why).collect();
                return Ok(Choice { underlay, reasons, note: None });
            }
            Err(more) => refused.extend(more),
        }
    }
    let none = refuse(refused, requests.last().map_or("", Request::hint));
    let last = current.filter(|last| {
        let is_whole = wishes.families.iter().all(|family| last.addresses.get(*family).is_some());
        is_whole && requests.iter().any(|request| request.names(last))
    });
    last.map(|last| last_in_force(last, &none)).ok_or(none)
}

/// What is in place goes on to be repaired, and peers to be followed: the device may come back any moment.
fn last_in_force(last: &Underlay, none: &NoUnderlay) -> Choice {
    let note = none.told(Code::InterfaceLost, format!("; {} stays in force", last.link));
    Choice { underlay: last.clone(), reasons: vec![note.text.clone()], note: Some(note) }
}

/// The device that a lease was announced from, where one device has all of its public addresses.
pub fn announced_from(public: &ByFamily<IpAddr>, observation: &Observation) -> Option<Underlay> {
    let has = |link: LinkName, address: IpAddr| {
        observation.addresses.iter().any(|fact| fact.link == link && fact.address.addr() == address)
    };
    let fact = observation
        .links
        .iter()
        .find(|fact| !public.is_empty() && public.iter().all(|(_, address)| has(fact.link.name, *address)))?;
    Some(Underlay { link: fact.link.name, mtu: fact.link.mtu, addresses: *public, public: *public })
}

/// Options that no host can fulfil, and what to do about them.
fn contradiction(wishes: &UnderlayOptions) -> Option<(RejectedCandidate, &'static str)> {
    if wishes.families.is_empty() {
        let refusal =
            RejectedCandidate { candidate: "any".to_owned(), reason: "no address family is on".to_owned() };
        return Some((refusal, "set EnableIPv4 or EnableIPv6 in the network configuration"));
    }
    let (family, address) =
        wishes.public.iter().find(|(family, address)| Family::of(**address) != *family)?;
    let reason = format!("{address} is not an {family} address");
    let refusal = RejectedCandidate { candidate: request::public_option(family).to_owned(), reason };
    Some((refusal, "give an IPv4 address to --public-ip and an IPv6 address to --public-ipv6"))
}

/// The route that packets to an address take: the longest match, of several the lowest metric.
pub fn best_route(routes: &[HostRoute], target: IpAddr) -> Option<&HostRoute> {
    best(routes, target, |route| (route.destination, route.metric))
}

/// The device on which an address is a neighbour, so that packets reach it without a router.
pub fn on_link(routes: &[HostRoute], target: IpAddr) -> Option<LinkName> {
    let route = best_route(routes, target)?;
    route.link.filter(|_| route.kind == RouteKind::Unicast && route.via.is_none())
}

fn best<'a, R>(
    routes: impl IntoIterator<Item = &'a R>,
    target: IpAddr,
    key: impl Fn(&R) -> (IpNet, u32),
) -> Option<&'a R> {
    let matching = routes.into_iter().filter(|route| key(route).0.contains(&target));
    matching.min_by_key(|route| {
        let (destination, metric) = key(route);
        (Reverse(destination.prefix_len()), metric)
    })
}
