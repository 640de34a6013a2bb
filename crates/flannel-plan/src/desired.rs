//! What this node should look like, decided from [`Inputs`] alone.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::backend::{self, BackendError};
use crate::config::NetworkConfig;
use crate::family::ByFamily;
use crate::finding::Finding;
use crate::firewall;
use crate::inputs::{Inputs, NodeOptions};
use crate::lease::Lease;
use crate::link_name::LinkName;
use crate::observation::{ObserveOptions, Scope};
use crate::peers::{self, IgnoredLease, Newcomer, Why};
use crate::state::{File, Item, State};
use crate::subnet_env::SubnetEnv;

/// What this node should look like, and what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub desired: State,
    pub peers: usize,
    pub ignored: Vec<IgnoredLease>,
    /// The leases that rank behind the others when the next plan is made.
    pub newcomers: Vec<Newcomer>,
    pub warnings: Vec<Finding>,
}

impl Plan {
    /// The devices of others without which peers that are ignored could be followed.
    pub fn obstacles(&self, inputs: &Inputs) -> BTreeSet<LinkName> {
        let routers = |router| inputs.routes.iter().filter(move |route| route.via == Some(router));
        let of = |lease: &IgnoredLease| match &lease.why {
            Why::Connected(_, link) => vec![*link],
            Why::CoversHost(router) => routers(*router).filter_map(|route| route.link).collect(),
            _ => Vec::new(),
        };
        self.ignored.iter().flat_map(of).collect()
    }
}

/// A plan in the making.
#[derive(Debug, Default)]
pub struct Draft {
    items: Vec<Item>,
    peers: usize,
    pub ignored: Vec<IgnoredLease>,
    newcomers: Vec<Newcomer>,
    pub warnings: Vec<Finding>,
}

impl Draft {
    /// Adds an object.
    pub fn put(&mut self, item: Item) {
        self.items.push(item);
    }
}

impl From<Draft> for Plan {
    fn from(Draft { items, peers, ignored, newcomers, warnings }: Draft) -> Self {
        Self { desired: items.into_iter().collect(), peers, ignored, newcomers, warnings }
    }
}

/// Decides what this node should look like.
pub fn plan(inputs: &Inputs) -> Result<Plan, BackendError> {
    let mut plan = Draft::default();
    backend::check(&inputs.config, &inputs.underlay)?;
    let mtu = backend::add_node(inputs, &mut plan);
    add_peers(inputs, inputs.peers.iter().map(|lease| &**lease), &mut plan);
    add_firewall(inputs, &mut plan);
    plan.put(Item::File(Box::new(subnet_file(inputs, mtu))));
    Ok(plan.into())
}

/// Adds what some of the peers need.
pub fn add_peers<'a>(inputs: &'a Inputs, leases: impl Iterator<Item = &'a Lease>, plan: &mut Draft) {
    if inputs.config.backend.lease_name().is_empty() {
        return;
    }
    let judged = peers::judge(inputs, leases);
    plan.peers = judged.peers.len();
    plan.ignored = judged.ignored;
    plan.newcomers = judged.newcomers;
    plan.warnings.extend(judged.warnings);
    backend::add_peers(inputs, &judged.peers, plan);
}

fn add_firewall(inputs: &Inputs, plan: &mut Draft) {
    let (routes, left_out) = firewall::blackholes(inputs);
    routes.into_iter().chain(firewall::rules(inputs)).for_each(|item| plan.put(item));
    plan.warnings.extend(left_out.into_iter().chain(inputs.firewall.notes.clone()));
}

fn subnet_file(inputs: &Inputs, mtu: u32) -> File {
    let env = SubnetEnv {
        networks: inputs.config.networks.map(|_, pods| vec![pods.network]),
        subnets: inputs.own.subnets,
        mtu,
        ip_masq: inputs.node.ip_masq,
    };
    File { path: inputs.node.subnet_file.clone(), content: env.to_string().into(), mode: 0o644 }
}

/// What to observe for a configuration, rules apart; `earlier` are pod networks that this instance served before.
pub fn scope(node: &NodeOptions, config: &NetworkConfig, own: &ByFamily<IpNet>, earlier: &[IpNet]) -> Scope {
    let mut networks: Vec<IpNet> = config.networks.iter().map(|(_, pods)| pods.network).collect();
    networks.extend(earlier.iter().filter(|net| !networks.contains(net)).copied().collect::<Vec<_>>());
    Scope {
        instance: node.mark(config),
        former: node.former.clone(),
        links: backend::links(config).iter().map(|(_, name)| *name).collect(),
        networks,
        subnet_lens: config
            .networks
            .map(|family, pods| own.get(family).map_or(pods.subnet_len, IpNet::prefix_len)),
        sysctls: backend::sysctls(config),
        files: vec![node.subnet_file.clone()],
        system: None,
        options: ObserveOptions::default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::inputs::HostRoute;
    use crate::state::{PROTOCOL_BOOT, PROTOCOL_KERNEL, RouteKind};

    use super::*;

    const FIRST_START: &str = include_str!("../tests/cases/first-start/inputs.json");

    fn route(destination: &str, via: Option<&str>, link: &str, protocol: u8) -> HostRoute {
        HostRoute {
            destination: destination.parse().unwrap(),
            kind: RouteKind::Unicast,
            via: via.map(|via| via.parse().unwrap()),
            link: Some(link.parse().unwrap()),
            protocol,
            metric: 7,
        }
    }

    #[test]
    fn what_stands_in_the_way_of_a_peer_is_named_by_its_device() {
        let mut inputs: Inputs = serde_json::from_str(FIRST_START).unwrap();
        let named = |inputs: &Inputs| -> Vec<String> {
            plan(inputs).unwrap().obstacles(inputs).iter().map(ToString::to_string).collect()
        };
        assert_eq!(named(&inputs), [] as [&str; 0]);
        inputs.routes.push(route("10.244.2.128/25", None, "docker0", PROTOCOL_KERNEL));
        assert_eq!(named(&inputs), ["docker0"]);
        inputs.routes.push(route("0.0.0.0/0", Some("10.244.3.9"), "lte0", PROTOCOL_BOOT));
        assert_eq!(named(&inputs), ["docker0", "lte0"]);
    }
}
