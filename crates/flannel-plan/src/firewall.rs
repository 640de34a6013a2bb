//! The node's rules and its blackhole route among the objects of a plan: what the operator chose and what the
//! host can hold, turned into tables.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::PodNetwork;
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};
use crate::inputs::Inputs;
use crate::mark::write_networks;
use crate::rules::spec::{PodNet, Spec, desired};
use crate::rules::{SourcePorts, System};
use crate::state::{Item, PROTOCOL, Route, RouteKind};

/// What this host holds rules with, as far as the rules depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    /// Where rules are kept; none where nobody has found out, and then there are none.
    pub system: Option<System>,
    /// How masquerade chooses ports, by family.
    pub source_ports: ByFamily<SourcePorts>,
    /// The families below the tunnel whose tunnel packets are kept from connection tracking.
    pub untracked: Vec<Family>,
    /// What an operator should know about all this.
    pub notes: Vec<Finding>,
}

pub(crate) fn rules(inputs: &Inputs) -> Vec<Item> {
    let tables = spec(inputs).map(|spec| desired(&spec)).unwrap_or_default();
    tables.into_iter().map(|table| Item::Rules(Box::new(table))).collect()
}

fn spec(inputs: &Inputs) -> Option<Spec> {
    let Inputs { node, config, own, firewall, .. } = inputs;
    let network = |(family, pods): (Family, &PodNetwork)| {
        Some((family, PodNet { cluster: pods.network, node: *own.subnets.get(family)? }))
    };
    let tunnel = |family: &Family| Some((*family, config.backend.tunnel()?));
    Some(Spec {
        system: firewall.system?,
        instance: match &*node.folder {
            "" => node.subnet_file.clone(),
            _ => write_networks(config.networks.iter().map(|(_, pods)| pods.network)).into(),
        },
        networks: config.networks.iter().filter_map(network).collect(),
        masquerade: if node.ip_masq { firewall.source_ports } else { ByFamily::default() },
        non_masquerade_cidrs: config.non_masquerade_cidrs.clone(),
        forward: node.forward_rules,
        untracked: firewall.untracked.iter().filter_map(tunnel).collect(),
    })
}

/// The routes that drop packets for pods of this node that are gone, and why one of them is left out.
///
/// Where the host has a route to its pods, such as that of a bridge, a second one for the same addresses would
/// stand before or behind it by chance.
pub(crate) fn blackholes(inputs: &Inputs) -> (Vec<Item>, Vec<Finding>) {
    let (mut routes, mut left_out) = (Vec::new(), Vec::new());
    let subnets = inputs.own.subnets.iter().filter(|_| inputs.node.blackhole_route);
    for (_, subnet) in subnets {
        match inputs.routes.iter().find(|route| route.destination == *subnet) {
            None => routes.push(Item::Route(blackhole(*subnet))),
            Some(route) => {
                let link = route.link.map(|link| format!(" through {link}")).unwrap_or_default();
                let text = format!(
                    "--ip-blackhole-route: {subnet} has a route{link}, so it gets no blackhole route"
                );
                left_out.push(Finding::new(Code::NoBlackhole, subnet, text));
            }
        }
    }
    (routes, left_out)
}

fn blackhole(destination: IpNet) -> Route {
    let (kind, protocol) = (RouteKind::Blackhole, PROTOCOL);
    Route { destination, kind, via: None, link: None, onlink: false, protocol }
}
