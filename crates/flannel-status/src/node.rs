//! How this node is: the daemon's word, checked against what is really there.
//!
//! Takes [`Evidence`], gives [`NodeStatus`]; writing it down is for others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flannel_plan::config::Backend;
use flannel_plan::diff::Change;
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Finding, texts};
use flannel_plan::inputs::Inputs;
use flannel_plan::link_name::LinkName;
use flannel_plan::report::Repair;
use flannel_plan::rules::System;
use flannel_plan::rules::role::Role;
use flannel_plan::state::{Item, Key, Link, State};
use flannel_plan::subnet_env::SubnetEnv;
use ipnet::IpNet;
use serde::Serialize;

use crate::comparison::Comparison;
use crate::daemon::Life;
use crate::evidence::Evidence;
use crate::peer::{PeerStatus, peer_statuses};
use crate::readiness::{Readiness, elsewhere};

/// How this node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Whether pods can be started here.
    pub ready: bool,
    pub reasons: Vec<String>,
    /// What a person should know all the same.
    pub notes: Vec<String>,
    /// Both with their codes and parts, the reasons first; then those that are told elsewhere: ignored leases, fights.
    pub findings: Vec<Finding>,
    pub daemon: DaemonStatus,
    /// What the node has of the pod network; none before the first lease.
    pub node: Option<OwnStatus>,
    /// How many objects are as they should be; none before the first plan.
    pub objects: Option<ObjectCount>,
    /// The other nodes, the worst first.
    pub peers: Vec<PeerStatus>,
    /// What was repaired since the daemon started, the latest last.
    pub repairs: Vec<Repair>,
    pub contested: Vec<String>,
    /// What others put next to ours; it is left alone.
    pub foreign: Vec<String>,
}

/// The daemon and its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonStatus {
    pub version: String,
    /// Its PID in its own PID namespace.
    pub pid: u32,
    /// Its PID where we are: another one if it is in a container.
    pub seen_as: Option<u32>,
    pub life: Life,
    pub report: String,
    /// When it wrote the report, in milliseconds since 1970. It does so only when there is something new.
    pub written: u64,
    /// How old the report is, in milliseconds.
    pub age: u64,
}

/// What this node has of the pod network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnStatus {
    /// Its name in the lease store.
    pub owner: String,
    pub subnets: ByFamily<IpNet>,
    /// The addresses of all pods of the cluster.
    pub networks: ByFamily<IpNet>,
    /// Where other nodes send to, as the lease store has it.
    pub public: ByFamily<IpAddr>,
    /// Where this node asked them to send to: something in the store may overwrite that.
    pub asked: ByFamily<IpAddr>,
    /// The lower device of the pod network.
    pub interface: LinkName,
    pub addresses: ByFamily<IpAddr>,
    pub interface_mtu: u32,
    /// How packets get from node to node.
    pub backend: Backend,
    /// The devices of ours, as they should be.
    pub devices: Vec<Link>,
    pub pod_mtu: Option<u32>,
    pub pod_mtus: BTreeMap<u32, usize>,
    /// Its rules; none where flanneld keeps none.
    pub rules: Option<RuleStatus>,
}

/// The rules of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleStatus {
    pub system: System,
    pub roles: BTreeSet<Role>,
}

/// How many objects are as they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectCount {
    pub desired: usize,
    pub in_place: usize,
    /// So many of ours should be gone and are not.
    pub left_over: usize,
}

/// Says how this node is.
pub fn node_status(evidence: &Evidence) -> NodeStatus {
    let report = &evidence.report;
    let inputs = report.inputs.as_deref();
    let comparison = evidence.comparison.as_ref().and_then(|comparison| comparison.as_ref().ok());
    let found = inputs.zip(comparison);
    let readiness = Readiness::checked(evidence, comparison);
    NodeStatus {
        ready: readiness.ready,
        reasons: texts(&readiness.reasons),
        notes: texts(&readiness.notes),
        findings: readiness.findings().cloned().chain(elsewhere(evidence, comparison)).collect(),
        daemon: daemon_status(evidence),
        node: found.map(|(inputs, comparison)| own_status(evidence, inputs, &comparison.plan.desired)),
        objects: comparison.map(count),
        peers: found.map(|(inputs, comparison)| peer_statuses(inputs, comparison)).unwrap_or_default(),
        repairs: report.repairs.to_vec(),
        contested: report.contested.clone(),
        foreign: match comparison {
            Some(comparison) => comparison.foreign.iter().map(ToString::to_string).collect(),
            None => report.foreign.clone(),
        },
    }
}

fn daemon_status(evidence: &Evidence) -> DaemonStatus {
    let report = &evidence.report;
    DaemonStatus {
        version: report.version.to_string(),
        pid: report.pid,
        seen_as: evidence.daemon.pid,
        life: evidence.daemon.life,
        report: evidence.path.clone(),
        written: report.written,
        age: evidence.now.saturating_sub(report.written),
    }
}

fn own_status(evidence: &Evidence, inputs: &Inputs, desired: &State) -> OwnStatus {
    let (announced, asked) = (evidence.report.announced, inputs.own.announcement.public);
    let device = |item: &Item| if let Item::Link(link) = item { Some((**link).clone()) } else { None };
    let subnet_file = desired.get(&Key::File(inputs.node.subnet_file.clone()));
    OwnStatus {
        owner: inputs.own.owner.clone(),
        subnets: inputs.own.subnets,
        networks: inputs.config.networks.map(|_, pods| pods.network),
        public: if announced.is_empty() { asked } else { announced },
        asked,
        interface: inputs.underlay.link,
        addresses: inputs.underlay.addresses,
        interface_mtu: inputs.underlay.mtu,
        backend: inputs.config.backend.clone(),
        devices: desired.iter().filter_map(device).collect(),
        pod_mtu: match subnet_file {
            Some(Item::File(file)) => SubnetEnv::parse(&file.content).ok().map(|env| env.mtu),
            _ => None,
        },
        pod_mtus: evidence.pod_mtus.clone(),
        rules: rule_status(inputs, desired),
    }
}

fn rule_status(inputs: &Inputs, desired: &State) -> Option<RuleStatus> {
    let tables =
        desired.iter().filter_map(|item| if let Item::Rules(table) = item { Some(table) } else { None });
    let roles = tables.flat_map(|table| &table.chains).map(|chain| chain.role).collect();
    Some(RuleStatus { system: inputs.firewall.system?, roles })
}

fn count(comparison: &Comparison) -> ObjectCount {
    let left_over = comparison.changes.iter().filter(|change| matches!(change, Change::Remove(_))).count();
    ObjectCount { desired: comparison.plan.desired.len(), in_place: comparison.in_place(), left_over }
}
