//! Which leases of other nodes are followed, and which are refused.
//!
//! A lease is an input from outside: it may be foolish or hostile. One that could take packets away from
//! this node, its networks or an older peer is ignored whole, named and counted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::backend::{self, BackendKind};
use crate::family::{ByFamily, Family, overlap};
use crate::inputs::Inputs;
use crate::lease::Lease;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::state::RouteKind;

/// A lease that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    /// The lease.
    pub lease: &'a Lease,
    /// What it says for each family that both nodes speak.
    pub ends: ByFamily<End>,
}

/// One family of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its pods.
    pub subnet: IpNet,
    /// Where packets for them are sent.
    pub public: IpAddr,
    /// The hardware address of its tunnel device, where the backend has one.
    pub mac: Option<Mac>,
}

/// A lease that is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Whose lease.
    pub owner: String,
    /// Which lease: its first subnet, if it has any.
    pub subnet: Option<IpNet>,
    /// Why not.
    pub why: Why,
}

/// Why a lease is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It speaks another backend.
    OtherBackend(String),
    /// Its subnet is not part of the pod network.
    OutsideNetwork(IpNet),
    /// Its subnet overlaps this node's own.
    OverlapsOurs(IpNet),
    /// Its subnet overlaps that of an older lease.
    OverlapsPeer(IpNet, String),
    /// Its subnet takes packets from a network that this host is connected to.
    Connected(IpNet, LinkName),
    /// Its subnet covers an address without which this host is cut off: its own, or its router's.
    CoversHost(IpAddr),
    /// Its public address is this node's own.
    OurPublicAddress(IpAddr),
    /// Its public address cannot be a node's.
    BadPublicAddress(IpAddr),
    /// Its public address lies inside its own subnet: packets to it would go round in circles.
    PublicAddressInSubnet(IpAddr),
    /// Its hardware address is this node's own.
    OurMac(Mac),
    /// Its hardware address is that of an older lease.
    PeersMac(Mac, String),
    /// What its backend says cannot be used.
    BadDetail(String),
    /// It has nothing that this node could use.
    NoFamily,
    /// It is not on this segment, and the backend cannot reach further.
    NotOnLink(IpAddr),
}

impl Why {
    /// The word for it in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::OtherBackend(_) => "other_backend",
            Self::OutsideNetwork(_) => "outside_network",
            Self::OverlapsOurs(_) => "overlaps_ours",
            Self::OverlapsPeer(..) => "overlaps_peer",
            Self::Connected(..) => "connected_network",
            Self::CoversHost(_) => "covers_host",
            Self::OurPublicAddress(_) => "our_public_address",
            Self::BadPublicAddress(_) => "bad_public_address",
            Self::PublicAddressInSubnet(_) => "public_address_in_subnet",
            Self::OurMac(_) => "our_mac",
            Self::PeersMac(..) => "peers_mac",
            Self::BadDetail(_) => "bad_detail",
            Self::NoFamily => "no_family",
            Self::NotOnLink(_) => "not_on_link",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherBackend(name) if name.is_empty() => write!(f, "it names no backend"),
            Self::OtherBackend(name) => write!(f, "it speaks {name}"),
            Self::OutsideNetwork(net) => write!(f, "{net} is outside of the pod network"),
            Self::OverlapsOurs(net) => write!(f, "{net} overlaps this node's own subnet"),
            Self::OverlapsPeer(net, owner) => write!(f, "{net} overlaps the older lease of {owner}"),
            Self::Connected(net, link) => {
                write!(f, "it takes packets from {net}, which {link} is connected to")
            }
            Self::CoversHost(ip) => write!(f, "it covers {ip}, which this host needs to reach anybody"),
            Self::OurPublicAddress(ip) => write!(f, "public address {ip} is this node's own"),
            Self::BadPublicAddress(ip) => write!(f, "public address {ip} cannot be a node's"),
            Self::PublicAddressInSubnet(ip) => write!(f, "public address {ip} lies inside its own subnet"),
            Self::OurMac(mac) => write!(f, "hardware address {mac} is this node's own"),
            Self::PeersMac(mac, owner) => {
                write!(f, "hardware address {mac} is that of the older lease of {owner}")
            }
            Self::BadDetail(what) => write!(f, "its backend data cannot be used: {what}"),
            Self::NoFamily => write!(f, "it has no subnet and address of a family that this node speaks"),
            Self::NotOnLink(ip) => write!(f, "{ip} is not on this segment, and host-gw reaches no further"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subnet {
            Some(subnet) => write!(f, "lease of {} ({subnet}) is ignored: {}", self.owner, self.why),
            None => write!(f, "lease of {} is ignored: {}", self.owner, self.why),
        }
    }
}

/// All leases of other nodes, sorted.
#[derive(Debug, Default)]
pub struct Judged<'a> {
    /// Those that are followed, the oldest first.
    pub peers: Vec<Peer<'a>>,
    /// Those that are not.
    pub refused: Vec<Refusal>,
    /// What is odd and harmless.
    pub warnings: Vec<String>,
}

/// Sorts the leases of other nodes. Of two that claim the same, the older one is right.
pub fn judge<'a>(inputs: &'a Inputs, leases: impl Iterator<Item = &'a Lease>) -> Judged<'a> {
    let mut judge = Judge::new(inputs);
    let mut leases: Vec<&Lease> = leases.collect();
    leases.sort_by(|a, b| (a.since, a.subnets, &a.owner).cmp(&(b.since, b.subnets, &b.owner)));
    let mut judged = Judged::default();
    for lease in leases {
        match judge.ends(lease) {
            Ok(ends) => {
                judged.warnings.extend(judge.remember(lease, &ends));
                judged.peers.push(Peer { lease, ends });
            }
            Err(why) => {
                let subnet = lease.subnets.iter().next().map(|(_, subnet)| *subnet);
                judged.refused.push(Refusal { owner: lease.owner.clone(), subnet, why });
            }
        }
    }
    judged
}

struct Judge<'a> {
    inputs: &'a Inputs,
    backend: BackendKind,
    own_macs: ByFamily<Mac>,
    connected: Vec<(IpNet, LinkName)>,
    lifelines: Vec<IpAddr>,
    subnets: BTreeMap<IpAddr, (IpNet, &'a str)>,
    macs: BTreeMap<(Family, Mac), &'a str>,
    publics: BTreeMap<IpAddr, &'a str>,
    told: BTreeSet<IpAddr>,
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
            backend: BackendKind::of(&inputs.config.backend),
            own_macs: backend::macs(&inputs.own.announcement),
            connected: connected.filter_map(|route| Some((route.destination, route.link?))).collect(),
            subnets: BTreeMap::new(),
            macs: BTreeMap::new(),
            publics: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    fn ends(&self, lease: &Lease) -> Result<ByFamily<End>, Why> {
        if lease.announcement.backend != self.backend.lease_name() {
            return Err(Why::OtherBackend(lease.announcement.backend.clone()));
        }
        let mut ends = ByFamily::default();
        for (family, _) in self.inputs.config.networks.iter() {
            *ends.slot(family) = self.end(lease, family)?;
        }
        if ends.is_empty() { Err(Why::NoFamily) } else { Ok(ends) }
    }

    fn end(&self, lease: &Lease, family: Family) -> Result<Option<End>, Why> {
        let (Some(subnet), Some(public)) = (lease.subnets.get(family), lease.announcement.public.get(family))
        else {
            return Ok(None);
        };
        let (subnet, public) = (*subnet, *public);
        self.check_subnet(subnet, family)?;
        self.check_public(public, subnet, family)?;
        let mac = match (self.backend, lease.announcement.detail.get(family)) {
            (BackendKind::Vxlan, None) => return Ok(None),
            (BackendKind::Vxlan, Some(detail)) => {
                Some(backend::vxlan::peer_mac(detail).map_err(Why::BadDetail)?)
            }
            _ => None,
        };
        if let Some(mac) = mac {
            self.check_mac(mac, family)?;
        }
        Ok(Some(End { subnet, public, mac }))
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
        match self.older(subnet) {
            Some(owner) => Err(Why::OverlapsPeer(subnet, owner.to_owned())),
            None => Ok(()),
        }
    }

    /// The owner of an older lease that shares an address with the subnet. The older ones do not overlap each
    /// other, so only the last that starts before the subnet's end can.
    fn older(&self, subnet: IpNet) -> Option<&'a str> {
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
        if subnet.contains(&public) { Err(Why::PublicAddressInSubnet(public)) } else { Ok(()) }
    }

    fn check_mac(&self, mac: Mac, family: Family) -> Result<(), Why> {
        if self.own_macs.get(family) == Some(&mac) {
            return Err(Why::OurMac(mac));
        }
        match self.macs.get(&(family, mac)) {
            Some(owner) => Err(Why::PeersMac(mac, (*owner).to_owned())),
            None => Ok(()),
        }
    }

    /// Notes what a followed lease claims; returns what is odd about it.
    fn remember(&mut self, lease: &'a Lease, ends: &ByFamily<End>) -> Vec<String> {
        let mut odd = Vec::new();
        for (family, end) in ends.iter() {
            self.subnets.insert(end.subnet.network(), (end.subnet, &lease.owner));
            if let Some(mac) = end.mac {
                self.macs.insert((family, mac), &lease.owner);
            }
            match self.publics.entry(end.public) {
                Entry::Vacant(entry) => _ = entry.insert(&lease.owner),
                Entry::Occupied(entry) if self.told.insert(end.public) => odd.push(format!(
                    "{} and {} both announce {}: right behind one NAT address or while a node is replaced, else one is wrong",
                    entry.get(), lease.owner, end.public
                )),
                Entry::Occupied(_) => {}
            }
        }
        odd
    }
}
