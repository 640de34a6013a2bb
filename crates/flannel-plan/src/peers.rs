//! Which leases of other nodes are followed, and which are ignored.
//!
//! A lease is an input from outside: it may be foolish or hostile. One that could take packets away from
//! this node, its networks or a peer that was here before it is ignored whole, named and counted.

mod ignored;
mod newcomer;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::backend;
use crate::claim::{Claim, Identity};
use crate::family::{ByFamily, Family, overlap};
use crate::finding::{Code, Finding};
use crate::inputs::Inputs;
use crate::lease::Lease;
use crate::link_name::LinkName;
use crate::quoted::quoted;
use crate::state::RouteKind;
pub use ignored::{IgnoredLease, Why};
pub use newcomer::{Newcomer, Newness, newcomers};

/// A lease that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    pub lease: &'a Lease,
    /// What it says for each family that both nodes speak.
    pub endpoints: ByFamily<Endpoint>,
}

/// One family of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub subnet: IpNet,
    /// Where packets for them are sent.
    pub public: IpAddr,
    /// What it is known by, where the backend needs that.
    pub identity: Option<Identity>,
}

/// All leases of other nodes, sorted.
#[derive(Debug, Default)]
pub struct Judged<'a> {
    /// Those that are followed, the oldest first.
    pub peers: Vec<Peer<'a>>,
    /// Those that are not, the oldest first.
    pub ignored: Vec<IgnoredLease>,
    /// The same, as those that rank behind the followed ones from now on.
    pub newcomers: Vec<Newcomer>,
    pub warnings: Vec<Finding>,
}

impl Judged<'_> {
    fn ignore(&mut self, lease: &Lease, why: Why) {
        let subnet = lease.subnets.iter().next().map(|(_, subnet)| *subnet);
        self.ignored.push(IgnoredLease { owner: lease.owner.clone(), subnet, why });
        self.newcomers.push(Newcomer::new(lease, Newness::Whole));
    }
}

/// Sorts the leases of other nodes. Of two that claim the same, the one that was followed before is right; of two
/// that are equally new, the older.
pub fn judge<'a>(inputs: &'a Inputs, leases: impl Iterator<Item = &'a Lease>) -> Judged<'a> {
    let rank = newcomer::ranks(&inputs.newcomers);
    let mut leases: Vec<_> = leases.map(|lease| (rank(lease), lease)).collect();
    leases.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| by_age(x, y)));
    let mut judge = Judge::new(inputs);
    let mut verdicts: Vec<_> = leases.into_iter().map(|(_, lease)| (lease, judge.verdict(lease))).collect();
    // What is told does not depend on who was here first, so that it stays the same when newcomers settle.
    verdicts.sort_by(|(a, _), (b, _)| by_age(a, b));
    let (mut judged, mut addresses) = (Judged::default(), Addresses::default());
    for (lease, verdict) in verdicts {
        match verdict {
            Verdict::Follow(endpoints) => {
                judged.warnings.extend(addresses.note(lease, &endpoints));
                judged.peers.push(Peer { lease, endpoints });
            }
            Verdict::Contested(endpoints) => {
                judge.clash(&endpoints).into_iter().for_each(|why| judged.ignore(lease, why))
            }
            Verdict::Ignore(why) => judged.ignore(lease, why),
        }
    }
    judged
}

/// What becomes of a lease.
enum Verdict {
    Follow(ByFamily<Endpoint>),
    /// Others who were here first have a part of it.
    Contested(ByFamily<Endpoint>),
    /// It would not be followed if it were alone, either.
    Ignore(Why),
}

fn by_age(a: &Lease, b: &Lease) -> std::cmp::Ordering {
    (a.since, a.subnets, &a.owner).cmp(&(b.since, b.subnets, &b.owner))
}

struct Judge<'a> {
    inputs: &'a Inputs,
    own_identity: ByFamily<Identity>,
    connected: Vec<(IpNet, LinkName)>,
    lifelines: Vec<IpAddr>,
    subnets: BTreeMap<IpAddr, (IpNet, &'a str)>,
    identities: BTreeMap<(Family, Identity), &'a str>,
}

impl<'a> Judge<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        let connected =
            inputs.routes.iter().filter(|route| route.kind == RouteKind::Unicast && route.via.is_none());
        let connected = connected.filter(|route| route.destination.prefix_len() > 0);
        let routers = inputs.routes.iter().filter(|route| route.destination.prefix_len() == 0);
        let own = inputs.underlay.addresses.iter().map(|(_, address)| *address);
        Self {
            lifelines: own.chain(routers.filter_map(|route| route.via)).collect(),
            inputs,
            own_identity: backend::identity(&inputs.own.announcement),
            connected: connected.filter_map(|route| Some((route.destination, route.link?))).collect(),
            subnets: BTreeMap::new(),
            identities: BTreeMap::new(),
        }
    }

    /// Judges a lease after all that rank before it; one that is followed keeps what it claims.
    fn verdict(&mut self, lease: &'a Lease) -> Verdict {
        let endpoints = match self.endpoints(lease) {
            Ok(endpoints) if self.clash(&endpoints).is_some() => return Verdict::Contested(endpoints),
            Ok(endpoints) => endpoints,
            Err(why) => return Verdict::Ignore(why),
        };
        for claim in claims(&endpoints) {
            match claim {
                Claim::Subnet(subnet) => _ = self.subnets.insert(subnet.network(), (subnet, &lease.owner)),
                Claim::Identity(family, identity) => {
                    self.identities.insert((family, identity), &lease.owner);
                }
                Claim::Address(_) => {} // may be shared: see Addresses
            }
        }
        Verdict::Follow(endpoints)
    }

    /// What of a lease others have already.
    fn clash(&self, endpoints: &ByFamily<Endpoint>) -> Option<Why> {
        claims(endpoints).find_map(|claim| match claim {
            Claim::Subnet(subnet) => Some(Why::OverlapsPeer(subnet, self.holder(subnet)?.to_owned())),
            Claim::Identity(family, identity @ Identity::Mac(mac)) => {
                let owner = self.identities.get(&(family, identity))?;
                Some(Why::PeersMac(mac, (*owner).to_owned()))
            }
            Claim::Address(_) => None,
        })
    }

    fn endpoints(&self, lease: &Lease) -> Result<ByFamily<Endpoint>, Why> {
        if lease.announcement.backend != self.inputs.config.backend.lease_name() {
            return Err(Why::OtherBackend(lease.announcement.backend.clone()));
        }
        let mut endpoints = ByFamily::default();
        for (family, _) in self.inputs.config.networks.iter() {
            *endpoints.slot(family) = self.endpoint(lease, family)?;
        }
        if endpoints.is_empty() { Err(Why::NoFamily) } else { Ok(endpoints) }
    }

    fn endpoint(&self, lease: &Lease, family: Family) -> Result<Option<Endpoint>, Why> {
        let (Some(subnet), Some(public)) = (lease.subnets.get(family), lease.announcement.public.get(family))
        else {
            return Ok(None);
        };
        let (subnet, public) = (*subnet, *public);
        self.check_subnet(subnet, family)?;
        self.check_public(public, subnet, family)?;
        let detail = lease.announcement.detail.get(family);
        let endpoint = self.inputs.config.backend.endpoint(subnet, public, detail).map_err(Why::BadDetail)?;
        match endpoint.and_then(|endpoint| endpoint.identity) {
            Some(identity) if self.own_identity.get(family) == Some(&identity) => {
                let Identity::Mac(mac) = identity;
                Err(Why::OurMac(mac))
            }
            Some(_) | None => Ok(endpoint),
        }
    }

    fn check_subnet(&self, subnet: IpNet, family: Family) -> Result<(), Why> {
        let network = self.inputs.config.networks.get(family).map(|pods| pods.network);
        let Some(network) = network.filter(|network| network.contains(&subnet) && *network != subnet) else {
            return Err(Why::OutsideNetwork(subnet));
        };
        if self.inputs.own.subnets.get(family).is_some_and(|own| overlap(*own, subnet)) {
            return Err(Why::OverlapsOurs(subnet));
        }
        // A segment that holds the whole pod network is the operator's choice: there every lease is a part of it.
        let in_the_way = |net: IpNet| overlap(net, subnet) && !net.contains(&network);
        if let Some((net, link)) = self.connected.iter().find(|(net, _)| in_the_way(*net)) {
            return Err(Why::Connected(*net, *link));
        }
        if let Some(address) = self.lifelines.iter().find(|address| subnet.contains(*address)) {
            return Err(Why::CoversHost(*address));
        }
        Ok(())
    }

    /// The owner of a followed lease that shares an address with the subnet. Those do not overlap each other, so
    /// only the last that starts before the subnet's end can.
    fn holder(&self, subnet: IpNet) -> Option<&'a str> {
        let (_, (net, owner)) = self.subnets.range(..=subnet.broadcast()).next_back()?;
        overlap(*net, subnet).then_some(*owner)
    }

    fn check_public(&self, public: IpAddr, subnet: IpNet, family: Family) -> Result<(), Why> {
        let own = &self.inputs.own.announcement.public;
        if own.get(family) == Some(&public) || self.inputs.underlay.addresses.get(family) == Some(&public) {
            return Err(Why::OurPublicAddress(public));
        }
        let broadcast = matches!(public, IpAddr::V4(ip) if ip.is_broadcast());
        if public.is_unspecified() || public.is_loopback() || public.is_multicast() || broadcast {
            return Err(Why::BadPublicAddress(public));
        }
        if let Some((net, _)) = self.connected.iter().find(|(net, _)| is_no_host(public, *net)) {
            return Err(Why::NoHostAddress(public, *net));
        }
        if subnet.contains(&public) {
            return Err(Why::PublicAddressInSubnet(public));
        }
        if self.is_for_pods(public, family) { Err(Why::PublicAddressInNetwork(public)) } else { Ok(()) }
    }

    /// Whether only pods can have an address. Where this node's own is one of theirs, nodes and pods share the network
    /// by the operator's choice.
    fn is_for_pods(&self, address: IpAddr, family: Family) -> bool {
        let own = self.inputs.underlay.addresses.get(family);
        self.inputs.config.networks.get(family).is_some_and(|pods| {
            pods.is_for_pods(address) && !own.is_some_and(|own| pods.network.contains(own))
        })
    }
}

/// What a peer claims, family by family.
fn claims(endpoints: &ByFamily<Endpoint>) -> impl Iterator<Item = Claim> {
    endpoints.iter().flat_map(|(family, endpoint)| Claim::of_endpoint(family, endpoint))
}

/// Whether an address stands for a whole network: its first, which IPv6 gives to any router of it, or its broadcast
/// address.
fn is_no_host(address: IpAddr, net: IpNet) -> bool {
    let has_such = net.max_prefix_len() - net.prefix_len() > 1;
    has_such && (address == net.network() || address.is_ipv4() && address == net.broadcast())
}

/// Who announces which public address.
#[derive(Default)]
struct Addresses<'a> {
    publics: BTreeMap<IpAddr, &'a str>,
    told: BTreeSet<IpAddr>,
}

impl<'a> Addresses<'a> {
    /// Notes the addresses of a followed lease; returns what is odd about them.
    fn note(&mut self, lease: &'a Lease, endpoints: &ByFamily<Endpoint>) -> Vec<Finding> {
        let mut odd = Vec::new();
        for (_, endpoint) in endpoints.iter() {
            match self.publics.entry(endpoint.public) {
                Entry::Vacant(entry) => _ = entry.insert(&lease.owner),
                Entry::Occupied(entry) if self.told.insert(endpoint.public) => {
                    odd.push(both_announce(endpoint.public, entry.get(), &lease.owner))
                }
                Entry::Occupied(_) => {}
            }
        }
        odd
    }
}

fn both_announce(public: IpAddr, first: &str, second: &str) -> Finding {
    let (first, second) = (quoted(first), quoted(second));
    Finding::new(Code::SamePublicAddress, public, format!("{first} and {second} both announce {public}"))
        .because("right behind one NAT address or while a node is replaced, else one is wrong")
}
