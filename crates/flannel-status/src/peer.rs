//! How each peer is: how it is reached, and what of it is not as it should be.
//!
//! Takes the inputs and the comparison, gives a [`PeerStatus`] for each lease of another node.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use flannel_plan::backend;
use flannel_plan::claim::Claim;
use flannel_plan::diff::Change;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::inputs::Inputs;
use flannel_plan::lease::Lease;
use flannel_plan::link_name::LinkName;
use flannel_plan::peers::{self, IgnoredLease, Judged, Peer};
use flannel_plan::quoted::quoted;
use flannel_plan::state::{Item, Key};
use ipnet::IpNet;
use serde::Serialize;

use crate::comparison::Comparison;

/// How a peer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    pub owner: String,
    pub subnets: Vec<IpNet>,
    /// Where packets for them are sent.
    pub public: Vec<IpAddr>,
    pub reached: Vec<Reach>,
    /// Whether all that it takes is in place.
    pub state: PeerState,
    /// What is not as it should be, or why the peer is refused.
    pub why: Vec<String>,
}

/// Whether all that a peer takes is in place; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// Something is not as it should be.
    Broken,
    /// Its lease is not followed.
    Refused,
    /// All is as it should be.
    Ok,
}

/// A way to a peer's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "link")]
pub enum Reach {
    /// Through a tunnel device of ours.
    Tunnel(LinkName),
    /// By a plain route through a device of the host.
    Direct(LinkName),
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tunnel(link) => write!(f, "tunnel {link}"),
            Self::Direct(link) => write!(f, "direct {link}"),
        }
    }
}

/// How all peers are, the worst first, equals in the order of their subnets.
pub fn peer_statuses(inputs: &Inputs, comparison: &Comparison) -> Vec<PeerStatus> {
    // Where the backend needs no peers there is nothing that could be refused or broken.
    let judged = if comparison.plan.peers == 0 && comparison.plan.ignored.is_empty() {
        Judged::default()
    } else {
        peers::judge(inputs, inputs.peers.iter().map(|lease| &**lease))
    };
    let survey = Survey::new(inputs, comparison, &judged);
    let followed: BTreeMap<_, _> =
        judged.peers.iter().enumerate().map(|(place, peer)| (name_of(peer.lease), (place, peer))).collect();
    let mut leases: Vec<&Lease> = inputs.peers.iter().map(|lease| &**lease).collect();
    leases.sort_by_key(|lease| lease.subnets);
    let status = |lease: &&Lease| match followed.get(&name_of(lease)) {
        Some((place, peer)) => survey.of_followed(*place, peer),
        None => survey.of_other(lease),
    };
    let mut statuses: Vec<_> = leases.iter().map(status).collect();
    statuses.sort_by_key(|status| status.state);
    statuses
}

type LeaseName<'a> = (&'a str, Option<IpNet>);

/// Tells leases apart: an owner may have left an older one behind.
fn name_of(lease: &Lease) -> LeaseName<'_> {
    (&lease.owner, lease.subnets.iter().next().map(|(_, subnet)| *subnet))
}

struct Survey<'a> {
    comparison: &'a Comparison,
    tunnels: ByFamily<LinkName>,
    refused: BTreeMap<LeaseName<'a>, &'a IgnoredLease>,
    troubles: Troubles,
}

/// What is wrong, by the place of the peer among those that are followed.
type Troubles = BTreeMap<usize, Vec<(Family, String)>>;

impl<'a> Survey<'a> {
    fn new(inputs: &'a Inputs, comparison: &'a Comparison, judged: &Judged<'_>) -> Self {
        let refused = comparison.plan.ignored.iter();
        let refused = refused.map(|refusal| ((refusal.owner.as_str(), refusal.subnet), refusal)).collect();
        let tunnels = backend::links(&inputs.config);
        let troubles = troubles(&comparison.changes, &judged.peers);
        Self { comparison, tunnels, refused, troubles }
    }

    fn of_followed(&self, place: usize, peer: &Peer<'_>) -> PeerStatus {
        let lease = peer.lease;
        let endpoints: Vec<_> = peer.endpoints.iter().collect();
        let reached: Vec<_> =
            endpoints.iter().filter_map(|(_, endpoint)| self.reach(endpoint.subnet)).collect();
        let name_family = endpoints.len() > 1;
        let word = |(family, what): &(Family, String)| match name_family {
            true => format!("{family} {what}"),
            false => what.clone(),
        };
        let troubles = self.troubles.get(&place).into_iter().flatten().map(word);
        let refusals = endpoints
            .iter()
            .filter_map(|(_, endpoint)| self.refused.get(&(&lease.owner, Some(endpoint.subnet))));
        let refusals: Vec<_> = refusals.map(|refusal| refusal.why.to_string()).collect();
        let is_refused = reached.is_empty() && !refusals.is_empty();
        let why: Vec<_> = troubles.chain(refusals).collect();
        let state = match (is_refused, why.is_empty()) {
            (true, _) => PeerState::Refused,
            (false, true) => PeerState::Ok,
            (false, false) => PeerState::Broken,
        };
        PeerStatus { reached, state, why, ..identity(lease) }
    }

    fn of_other(&self, lease: &Lease) -> PeerStatus {
        match self.refused.get(&name_of(lease)) {
            Some(refusal) => PeerStatus {
                state: PeerState::Refused,
                why: vec![refusal.why.to_string()],
                ..identity(lease)
            },
            None => identity(lease),
        }
    }

    fn reach(&self, subnet: IpNet) -> Option<Reach> {
        let Item::Route(route) = self.comparison.plan.desired.get(&Key::Route(subnet))? else { return None };
        let link = route.link?;
        let is_tunnel = self.tunnels.iter().any(|(_, tunnel)| *tunnel == link);
        Some(if is_tunnel { Reach::Tunnel(link) } else { Reach::Direct(link) })
    }
}

fn identity(lease: &Lease) -> PeerStatus {
    PeerStatus {
        owner: quoted(&lease.owner).to_string(),
        subnets: lease.subnets.iter().map(|(_, subnet)| *subnet).collect(),
        public: lease.announcement.public.iter().map(|(_, address)| *address).collect(),
        reached: Vec::new(),
        state: PeerState::Ok,
        why: Vec::new(),
    }
}

/// Sorts changes by the peer whose packets they are about: the first claim in an object names it.
fn troubles(changes: &[Change], peers: &[Peer<'_>]) -> Troubles {
    let mut owners: BTreeMap<Claim, usize> = BTreeMap::new();
    for (place, peer) in peers.iter().enumerate() {
        for (family, endpoint) in peer.endpoints.iter() {
            let gateway = Claim::Subnet(endpoint.subnet.network().into());
            owners.extend(Claim::of_endpoint(family, endpoint).chain([gateway]).map(|claim| (claim, place)));
        }
    }
    let mut troubles = Troubles::new();
    for change in changes {
        let Some(claim) = Claim::of_item(change.item()).next() else { continue };
        if let Some(place) = owners.get(&claim) {
            let fault = fault(change, change.key().kind());
            troubles.entry(*place).or_default().push((claim.family(), fault));
        }
    }
    troubles.values_mut().for_each(|troubles| troubles.sort_by_key(|(family, _)| *family));
    troubles
}

fn fault(change: &Change, kind: &str) -> String {
    match change {
        Change::Create(_) => format!("{kind} missing"),
        Change::Replace { .. } => format!("{kind} wrong"),
        Change::Remove(_) => format!("{kind} left over"),
    }
}
