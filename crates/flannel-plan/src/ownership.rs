//! What is ours among what was found.
//!
//! Ours is what carries our mark. What Go flannel left is recognised by its shape and adopted. All else is
//! foreign: it is named, and never changed or removed, unless it stands exactly where something of ours has
//! to be (see [`claim`]).

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::backend;
use crate::family::Family;
use crate::finding::{Code, Finding};
use crate::inputs::HostRoute;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::mark::{Mark, sign_of_life};
use crate::observation::{AddressFact, Observation, RouteFact, Scope};
use crate::rules::found::Unreadable;
use crate::rules::observed as rules;
use crate::state::{Address, FdbEntry, Item, Key, Link, Neighbour, PROTOCOL, PROTOCOL_KERNEL, State};

/// What was found, sorted by whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// What this instance made, or Go flannel before it.
    pub ours: State,
    /// What others put next to it: on our devices, in our networks or under our names.
    pub foreign: Vec<Item>,
    /// The routes of the host that are none of ours.
    pub routes: Vec<HostRoute>,
    pub unreadable: Vec<Unreadable>,
}

/// Sorts what was found by whose it is.
pub fn observed(scope: &Scope, observation: &Observation) -> Observed {
    let Observation { links, addresses, routes, neighbours, fdb, sysctls, files, rules, .. } = observation;
    let (owned, others) = (owned_links(scope, observation), links_of_others(scope, observation));
    let sorter = Sorter { scope, links: owned, others };
    let is_ours = |link: LinkName| sorter.links.contains(&link);
    let (mut ours, mut foreign) = (Vec::with_capacity(3 * routes.len()), Vec::new());
    let mut put = |is_ours: bool, item: Item| if is_ours { &mut ours } else { &mut foreign }.push(item);
    for fact in links.iter().filter(|fact| sorter.concerns_link(&fact.link)) {
        put(is_ours(fact.link.name), Item::Link(Box::new(fact.link.clone())));
    }
    for fact in addresses.iter().filter(|fact| sorter.concerns_address(fact)) {
        let item = Item::Address(Address { link: fact.link, address: fact.address });
        put(sorter.in_networks(fact.address), item);
    }
    for sysctl in sysctls.iter().filter(|sysctl| sysctl.link().is_none_or(is_ours)) {
        put(true, Item::Sysctl(Box::new(sysctl.clone())));
    }
    let mut peers = BTreeSet::new();
    for neighbour in neighbours.iter().filter(|neighbour| is_ours(neighbour.link)) {
        let is_ours = sorter.owns_neighbour(neighbour);
        if is_ours {
            peers.insert((neighbour.link, neighbour.mac));
        }
        put(is_ours, Item::Neighbour(*neighbour));
    }
    for entry in fdb.iter().filter(|entry| is_ours(entry.link)) {
        put(owns_fdb(entry, &peers), Item::Fdb(*entry));
    }
    for fact in routes.iter().filter(|fact| sorter.concerns_route(fact)) {
        put(sorter.owns_route(fact), Item::Route(fact.route));
    }
    let tables = rules::observed(&scope.rules(), &rules.tables);
    tables.into_iter().for_each(|table| put(true, Item::Rules(Box::new(table))));
    files.iter().for_each(|file| put(true, Item::File(Box::new(file.clone()))));
    let routes = routes.iter().filter(|fact| sorter.is_host_route(fact)).map(host_route).collect();
    Observed { ours: ours.into_iter().collect(), foreign, routes, unreadable: rules.unreadable.clone() }
}

/// The devices of this instance: by our mark, or by name where no other instance that lives has marked it.
pub(crate) fn owned_links(scope: &Scope, observation: &Observation) -> BTreeSet<LinkName> {
    let links = observation.links.iter().map(|fact| &fact.link);
    links
        .filter(|link| link.kind.is_made_here() && owns_link(scope, observation, link))
        .map(|link| link.name)
        .collect()
}

/// The devices that another flanneld on this host has marked.
fn links_of_others(scope: &Scope, observation: &Observation) -> BTreeSet<LinkName> {
    let links = observation.links.iter().map(|fact| &fact.link);
    let is_marked = |link: &&Link| Mark::read(&link.alias).is_some();
    links
        .filter(is_marked)
        .filter(|link| !owns_link(scope, observation, link))
        .map(|link| link.name)
        .collect()
}

fn owns_link(scope: &Scope, observation: &Observation, link: &Link) -> bool {
    let is_wanted = scope.links.contains(&link.name);
    if is_marked_by(scope, &link.alias) {
        return true;
    }
    let Some(mark) = Mark::read(&link.alias) else { return is_wanted };
    if mark.networks.is_empty() {
        // Two daemons may have had the same path: what is not wanted is ours by an address in our pod network.
        let has_address = |fact: &AddressFact| {
            fact.link == link.name && scope.networks.iter().any(|net| net.contains(&fact.address))
        };
        let is_former = scope.former.iter().any(|former| **former == *mark.instance);
        return is_former && (is_wanted || observation.addresses.iter().any(has_address));
    }
    let sign = sign_of_life(mark.instance);
    let is_gone = !observation.living.iter().any(|living| **living == *sign);
    is_gone && (is_wanted || serves_one_of(scope, &mark))
}

/// Whether the neighbours and forwarding entries of a device are looked at.
pub fn observes_entries_of(scope: &Scope, link: &Link) -> bool {
    scope.links.contains(&link.name) || (is_marked_by(scope, &link.alias) && link.kind.is_made_here())
}

/// Whether this instance has marked a device, for a pod network that it serves or served.
fn is_marked_by(scope: &Scope, alias: &str) -> bool {
    let own = Mark::read(&scope.instance);
    let is_same =
        |mark: Mark| own.is_some_and(|own| own.instance == mark.instance) && serves_one_of(scope, &mark);
    !scope.instance.is_empty() && (alias == scope.instance || Mark::read(alias).is_some_and(is_same))
}

fn serves_one_of(scope: &Scope, mark: &Mark) -> bool {
    mark.networks.iter().any(|net| scope.networks.contains(net))
}

/// Whether an observation has to find out which daemons live: a device that may be ours has the mark of another.
pub fn must_know_the_living(scope: &Scope, link: &Link) -> bool {
    let Some(mark) = Mark::read(&link.alias) else { return false };
    let may_be_ours = scope.links.contains(&link.name) || serves_one_of(scope, &mark);
    may_be_ours && !mark.networks.is_empty() && !is_marked_by(scope, &link.alias)
}

/// An entry with our mark, or one of Go's: it leads to a peer that has a neighbour entry.
fn owns_fdb(entry: &FdbEntry, peers: &BTreeSet<(LinkName, Mac)>) -> bool {
    entry.marked || peers.contains(&(entry.link, entry.mac))
}

fn host_route(fact: &RouteFact) -> HostRoute {
    let RouteFact { route, metric, .. } = *fact;
    let (destination, kind, via, link) = (route.destination, route.kind, route.via, route.link);
    HostRoute { destination, kind, via, link, protocol: route.protocol, metric }
}

struct Sorter<'a> {
    scope: &'a Scope,
    links: BTreeSet<LinkName>,
    others: BTreeSet<LinkName>,
}

impl Sorter<'_> {
    fn concerns_link(&self, link: &Link) -> bool {
        self.links.contains(&link.name) || self.scope.links.contains(&link.name)
    }

    /// The kernel gives every device a link-local address by itself: nobody's business.
    fn concerns_address(&self, fact: &AddressFact) -> bool {
        let link_local = matches!(fact.address, IpNet::V6(net) if net.addr().is_unicast_link_local());
        self.links.contains(&fact.link) && !link_local
    }

    fn concerns_route(&self, fact: &RouteFact) -> bool {
        let connected = fact.route.protocol == PROTOCOL_KERNEL;
        fact.metric == 0
            && !connected
            && (self.in_networks(fact.route.destination) || self.is_on_our_link(fact))
    }

    fn owns_route(&self, fact: &RouteFact) -> bool {
        let route = fact.route;
        let shape_of_go = backend::is_route_of_go(&route)
            && self.in_networks(route.destination)
            && self.has_subnet_len(route.destination)
            && self.is_on_our_link(fact);
        let theirs = route.link.is_some_and(|link| self.others.contains(&link));
        !theirs && (route.protocol == PROTOCOL || shape_of_go)
    }

    fn owns_neighbour(&self, neighbour: &Neighbour) -> bool {
        let subnet = self.subnet_of(neighbour.address);
        let shape_of_go =
            subnet.is_some_and(|net| net.network() == neighbour.address && self.in_networks(net));
        neighbour.protocol == PROTOCOL || shape_of_go
    }

    /// A route inside our networks that the kernel did not make says nothing about the host: it is ours, or
    /// it stands where ours has to be.
    fn is_host_route(&self, fact: &RouteFact) -> bool {
        fact.route.protocol != PROTOCOL && !self.is_on_our_link(fact) && !self.concerns_route(fact)
    }

    fn is_on_our_link(&self, fact: &RouteFact) -> bool {
        fact.route.link.is_some_and(|link| self.links.contains(&link))
    }

    fn in_networks(&self, net: IpNet) -> bool {
        self.scope.networks.iter().any(|network| network.contains(&net))
    }

    fn has_subnet_len(&self, net: IpNet) -> bool {
        self.scope.subnet_lens.get(Family::of_net(net)) == Some(&net.prefix_len())
    }

    fn subnet_of(&self, address: std::net::IpAddr) -> Option<IpNet> {
        let len = *self.scope.subnet_lens.get(Family::of(address))?;
        IpNet::new(address, len).ok()
    }
}

/// Counts foreign objects that stand exactly where we need one as observed, so that they are replaced.
/// A device is never taken that way: see [`obstacles`].
pub fn claim(desired: &State, observed: &mut Observed) {
    let wanted = |item: &Item| !matches!(item, Item::Link(_)) && desired.get(&item.key()).is_some();
    for item in observed.foreign.extract_if(.., |item| wanted(item)) {
        observed.ours.insert(item);
    }
}

/// The devices that we need and that others hold under the same name.
pub fn obstacles<'a>(desired: &State, observed: &'a Observed) -> Vec<&'a Link> {
    let holds = |item: &'a Item| {
        let Item::Link(link) = item else { return None };
        desired.get(&item.key()).map(|_| &**link)
    };
    observed.foreign.iter().filter_map(holds).collect()
}

/// The rules that we need and that cannot be read, and why: what is there is left as it is.
pub fn unseen(desired: &State, observed: &Observed) -> Vec<(Key, Finding)> {
    let why = |item: &Item| {
        let Item::Rules(table) = item else { return None };
        let unreadable = observed.unreadable.iter().find(|unreadable| unreadable.hides(&table.id))?;
        let (key, text) = (item.key(), format!("{} cannot be looked at", item.key()));
        Some((item.key(), Finding::new(Code::RulesUnreadable, key, text).because(&unreadable.why)))
    };
    desired.iter().filter_map(why).collect()
}

/// The desired state without the devices that others hold, and without what would be put on those; and without
/// rules that cannot be read.
pub fn attainable<'a>(desired: &'a State, observed: &Observed) -> Cow<'a, State> {
    let mut attainable = Cow::Borrowed(desired);
    for link in obstacles(desired, observed) {
        let free = |item: &Item| item.key() != Key::Link(link.name) && item.link() != Some(link.name);
        attainable.to_mut().retain(free);
    }
    for (key, _) in unseen(desired, observed) {
        attainable.to_mut().remove(&key);
    }
    attainable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::LinkFact;
    use crate::state::{LinkKind, Vxlan};

    const OWN: &str = "flanneld subnet.env@1:2 10.244.0.0/16";
    const OTHERS: &str = "flanneld subnet.env@1:3 10.99.0.0/16";
    const OF_OUR_NETWORK: &str = "flanneld subnet.env@1:3 10.244.0.0/16";
    const FORMER: &str = "flanneld /run/flannel/subnet.env";

    fn scope() -> Scope {
        Scope {
            instance: OWN.into(),
            former: vec!["/run/flannel/subnet.env".into()],
            links: vec!["flannel.1".parse().unwrap()],
            networks: vec!["10.244.0.0/16".parse().unwrap()],
            ..Scope::default()
        }
    }

    /// An observation of one vxlan device with this mark and an address.
    fn observe(name: &str, alias: &str, address: &str) -> Observation {
        let vxlan = Vxlan { vni: 1, port: 8472, lower: None, local: None, learning: false, gbp: false };
        let name: LinkName = name.parse().unwrap();
        let kind = LinkKind::Vxlan(vxlan);
        let link = Link { name, mac: Some(Mac([2; 6])), mtu: 1450, up: true, alias: alias.into(), kind };
        let address = AddressFact {
            link: name,
            address: address.parse().unwrap(),
            permanent: true,
            temporary: false,
            deprecated: false,
            unusable: false,
        };
        let fact = LinkFact { index: 9, link, running: true, loopback: false };
        Observation { links: vec![fact], addresses: vec![address], ..Observation::default() }
    }

    fn is_ours(observation: &Observation) -> bool {
        !owned_links(&scope(), observation).is_empty()
    }

    #[test]
    fn a_device_is_ours_by_its_mark_and_by_its_name_unless_another_daemon_that_lives_has_marked_it() {
        for (name, mark, ours) in [
            ("flannel.1", OWN, true),
            ("flannel.7", OWN, true),
            ("flannel.1", "", true),
            ("flannel.7", "", false),
            ("flannel.1", OTHERS, true),
            ("flannel.7", OTHERS, false),
            ("flannel.7", OF_OUR_NETWORK, true),
            ("flannel.1", FORMER, true),
            ("flannel.1", "flanneld /run/flannel/blue.env", false),
        ] {
            assert_eq!(is_ours(&observe(name, mark, "10.99.1.0/32")), ours, "{name} {mark}");
        }
        for mark in [OTHERS, OF_OUR_NETWORK] {
            let mut observation = observe("flannel.1", mark, "10.99.1.0/32");
            observation.living = vec![sign_of_life("subnet.env@1:3").into()];
            assert!(!is_ours(&observation), "{mark}");
            assert!(must_know_the_living(&scope(), &observation.links[0].link), "{mark}");
        }
    }

    #[test]
    fn of_two_daemons_that_the_first_version_could_not_tell_apart_each_has_its_network() {
        assert!(is_ours(&observe("flannel.7", FORMER, "10.244.1.0/32")));
        assert!(!is_ours(&observe("flannel.7", FORMER, "10.99.1.0/32")));
    }
}
