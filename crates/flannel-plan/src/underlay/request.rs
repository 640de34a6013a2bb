//! One way to ask for a device, and the candidates that it leads to on this host.

use std::fmt;
use std::net::IpAddr;

use super::candidate::{Candidate, fitness, is_cable_of_pods, usable_addresses};
use super::{Choice, Pattern, RejectedCandidate, Situation, Underlay, UnderlayOptions, best};
use crate::family::{ByFamily, Family};
use crate::link_name::LinkName;
use crate::observation::RouteFact;
use crate::state::{PROTOCOL, RouteKind};

/// One way to ask for a device.
pub(super) enum Request<'a> {
    Iface(&'a str),
    Pattern(&'a Pattern),
    /// By an address that it leads to.
    CanReach(IpAddr),
    /// By the public address, because nothing else is said.
    Public(IpAddr),
    /// By the default route, because nothing at all is said.
    DefaultRoute,
}

/// The option that sets the public address.
pub(super) fn public_option(family: Family) -> &'static str {
    match family {
        Family::V4 => "--public-ip",
        Family::V6 => "--public-ipv6",
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iface(text) => write!(f, "--iface={text}"),
            Self::Pattern(pattern) => write!(f, "--iface-regex={}", pattern.text),
            Self::CanReach(target) => write!(f, "--iface-can-reach={target}"),
            Self::Public(address) => write!(f, "{}={address}", public_option(Family::of(*address))),
            Self::DefaultRoute => f.write_str("default route"),
        }
    }
}

impl<'a> Request<'a> {
    /// All that the wishes ask for, in the order in which it is tried.
    pub(super) fn all(wishes: &'a UnderlayOptions) -> Vec<Self> {
        let mut requests: Vec<_> = wishes.ifaces.iter().map(|text| Self::Iface(text)).collect();
        requests.extend(wishes.patterns.iter().map(Self::Pattern));
        requests.extend(wishes.can_reach.map(Self::CanReach));
        if requests.is_empty() {
            let public = wishes.families.iter().find_map(|family| wishes.public.get(*family));
            requests.push(public.map_or(Self::DefaultRoute, |address| Self::Public(*address)));
        }
        requests
    }

    /// What the operator can do if it leads to nothing.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Public(_) => {
                "a public address alone means the interface that has it; if a router translates it, \
                 name the interface too, with --iface=NAME"
            }
            Self::DefaultRoute => "name the interface, with --iface=NAME or --iface=ADDRESS",
            _ => "name an interface that the host has, is up, and has an address in each family",
        }
    }

    /// Whether it means this device: routes come and go, so a wish that follows them means what they once led to.
    pub(super) fn names(&self, underlay: &Underlay) -> bool {
        let has = |address: IpAddr| underlay.addresses.iter().any(|(_, own)| *own == address);
        match self {
            Self::Iface(text) => match text.parse::<IpAddr>() {
                Ok(address) => has(address.to_canonical()),
                Err(_) => *text == underlay.link.as_str(),
            },
            Self::Pattern(pattern) => {
                let matches = |text: &str| pattern.matches.contains(text);
                let mut addresses = underlay.addresses.iter();
                matches(underlay.link.as_str()) || addresses.all(|(_, own)| matches(&own.to_string()))
            }
            Self::Public(address) => has(*address),
            Self::CanReach(_) | Self::DefaultRoute => true,
        }
    }

    /// The device in use, if it means that one, which is still there with its addresses.
    pub(super) fn keep(&self, situation: Situation<'_>) -> Option<Choice> {
        let current = situation.current.filter(|current| self.names(current))?;
        let because = "it is in use, and has its addresses".to_owned();
        let candidate = Candidate { link: current.link, fixed: ByFamily::default(), because };
        candidate.keep(situation, current)
    }

    /// The first candidate that will do and why, or why none will.
    pub(super) fn answer(
        &self,
        situation: Situation<'_>,
    ) -> Result<(Underlay, Vec<String>), Vec<RejectedCandidate>> {
        let candidates = self
            .candidates(situation)
            .map_err(|reason| vec![RejectedCandidate { candidate: self.to_string(), reason }])?;
        let mut refused = Vec::new();
        for candidate in candidates {
            match candidate.examine(situation) {
                Ok((underlay, why)) => {
                    let reasons = refused.iter().map(RejectedCandidate::to_string);
                    let asked = format!("{}: {}", candidate.link, candidate.because);
                    return Ok((underlay, reasons.chain([asked]).chain(why).collect()));
                }
                Err(reason) => {
                    let named = matches!(self, Self::Iface(text) if *text == candidate.link.as_str());
                    let led = if named { self.to_string() } else { format!("{self} is {}", candidate.link) };
                    refused.push(RejectedCandidate { candidate: led, reason });
                }
            }
        }
        Err(refused)
    }

    /// The devices that it leads to, at least one.
    fn candidates(&self, situation: Situation<'_>) -> Result<Vec<Candidate>, String> {
        let because = format!("{self} asks for it");
        match self {
            Self::Iface(text) => match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
                Ok(address) => {
                    let fixed = ByFamily::from_iter([(Family::of(address), address)]);
                    owners(situation, address, fixed, &because)
                }
                Err(_) => named(situation, text, because),
            },
            Self::Pattern(pattern) => matching(situation, pattern, &because),
            Self::CanReach(target) => leading_to(situation, *target).map(|candidate| vec![candidate]),
            Self::Public(address) => {
                let UnderlayOptions { public, families, .. } = situation.wishes;
                let fixed = public.iter().filter(|(family, _)| families.contains(family));
                owners(situation, *address, fixed.map(|(family, ip)| (family, *ip)).collect(), &because)
            }
            Self::DefaultRoute => of_default_route(situation).map(|candidate| vec![candidate]),
        }
    }
}

fn named(situation: Situation<'_>, text: &str, because: String) -> Result<Vec<Candidate>, String> {
    let found = situation.host.observation.links.iter().find(|fact| fact.link.name.as_str() == text);
    let link = found.ok_or("the host has no interface of this name")?.link.name;
    Ok(vec![Candidate { link, fixed: ByFamily::default(), because }])
}

fn owners(
    situation: Situation<'_>,
    address: IpAddr,
    fixed: ByFamily<IpAddr>,
    because: &str,
) -> Result<Vec<Candidate>, String> {
    let family = Family::of(address);
    if !situation.wishes.families.contains(&family) {
        return Err(format!("{family} is not on in the network configuration"));
    }
    let owners = situation.host.observation.addresses.iter().filter(|fact| fact.address.addr() == address);
    let candidates: Vec<_> =
        owners.map(|fact| Candidate { link: fact.link, fixed, because: because.to_owned() }).collect();
    if candidates.is_empty() { Err("no interface has this address".to_owned()) } else { Ok(candidates) }
}

/// Addresses count before names. An interface counts by address only if one matches in *each* family, and all
/// are its own: a match on one interface never lends its address to another.
fn matching(situation: Situation<'_>, pattern: &Pattern, because: &str) -> Result<Vec<Candidate>, String> {
    let observation = situation.host.observation;
    let meant = || observation.links.iter().filter(|fact| !is_cable_of_pods(fact, observation));
    let links = || meant().map(|fact| fact.link.name);
    let candidate = |link, fixed| Candidate { link, fixed, because: because.to_owned() };
    let by_address = |link: LinkName| {
        let fixed = |family: &Family| {
            let mut usable = usable_addresses(situation.host, link, *family).into_iter();
            Some((*family, usable.find(|ip| pattern.matches.contains(&ip.to_string()))?))
        };
        Some(candidate(link, situation.wishes.families.iter().map(fixed).collect::<Option<_>>()?))
    };
    let mut candidates: Vec<_> = links().filter_map(by_address).collect();
    if candidates.is_empty() {
        let by_name = links().filter(|link| pattern.matches.contains(link.as_str()));
        candidates = by_name.map(|link| candidate(link, ByFamily::default())).collect();
    }
    if candidates.is_empty() {
        return Err("it matches no interface: neither a usable address in each family nor a name".to_owned());
    }
    Ok(candidates)
}

fn leading_to(situation: Situation<'_>, target: IpAddr) -> Result<Candidate, String> {
    let routes = foreign_routes(situation);
    let found = best(routes, target, |fact| (fact.route.destination, fact.metric))
        .ok_or("the host has no route to this address")?;
    let link = single_link(found)?;
    let source = found.source.map(|source| (Family::of(source), source)).filter(|(family, source)| {
        situation.wishes.families.contains(family)
            && usable_addresses(situation.host, link, *family).contains(source)
    });
    let fixed = source.into_iter().collect();
    Ok(Candidate { link, fixed, because: format!("the route to {target} leads through it") })
}

/// Both families have to leave by the same device. One without a default route is fine if the other's device
/// has a global address for it: nodes of one segment need no router.
fn of_default_route(situation: Situation<'_>) -> Result<Candidate, String> {
    let mut links = ByFamily::default();
    for family in &situation.wishes.families {
        *links.slot(*family) = default_link(situation, *family)?;
    }
    let link = match (links.v4, links.v6) {
        (Some(v4), Some(v6)) if v4 != v6 => {
            return Err(format!("that of IPv4 leads through {v4} and that of IPv6 through {v6}"));
        }
        (None, None) => return of_only_address(situation),
        (Some(link), _) | (None, Some(link)) => link,
    };
    let mut because = "the default route leads through it".to_owned();
    for family in situation.wishes.families.iter().filter(|family| links.get(**family).is_none()) {
        let usable = usable_addresses(situation.host, link, *family);
        let global = usable.iter().find(|address| !is_link_local(**address)).ok_or_else(|| {
            format!("there is none of {family}, and {link} of the other has no global {family} address")
        })?;
        because = format!("{because}; {family} has no default route, but {link} has {global}");
    }
    Ok(Candidate { link, fixed: ByFamily::default(), because })
}

/// A host without a default route that has a usable address in each family on one device alone leaves no choice.
fn of_only_address(situation: Situation<'_>) -> Result<Candidate, String> {
    let observation = situation.host.observation;
    let has_all = |link: LinkName| {
        let has =
            |family| usable_addresses(situation.host, link, family).iter().any(|ip| !is_link_local(*ip));
        situation.wishes.families.iter().all(|family| has(*family))
    };
    let fit = observation.links.iter().filter(|fact| fact.link.up && fitness(fact, situation.host).is_ok());
    let links: Vec<LinkName> = fit.map(|fact| fact.link.name).filter(|link| has_all(*link)).collect();
    match links[..] {
        [link] => {
            let because = "there is no default route, and no other device has a usable address".to_owned();
            Ok(Candidate { link, fixed: ByFamily::default(), because })
        }
        [] => Err("the host has none".to_owned()),
        _ => {
            let names: Vec<&str> = links.iter().map(LinkName::as_str).collect();
            Err(format!("the host has none, and {} could be meant", names.join(", ")))
        }
    }
}

fn default_link(situation: Situation<'_>, family: Family) -> Result<Option<LinkName>, String> {
    let routes = foreign_routes(situation).filter(|fact| {
        fact.route.destination == family.everything()
            && matches!(fact.route.kind, RouteKind::Unicast | RouteKind::Multipath)
            && !fact.route.link.is_some_and(|link| situation.host.links.contains(&link))
    });
    routes.min_by_key(|fact| fact.metric).map(single_link).transpose()
}

fn foreign_routes<'a>(situation: Situation<'a>) -> impl Iterator<Item = &'a RouteFact> {
    situation.host.observation.routes.iter().filter(|fact| fact.route.protocol != PROTOCOL)
}

fn single_link(fact: &RouteFact) -> Result<LinkName, String> {
    let destination = fact.route.destination;
    match (fact.route.kind, fact.route.link) {
        (RouteKind::Unicast, Some(link)) => Ok(link),
        (RouteKind::Multipath, _) => Err(format!("the route {destination} leads several ways at once")),
        _ => Err(format!("the route {destination} leads to no interface")),
    }
}

/// Whether an address counts on one segment only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
