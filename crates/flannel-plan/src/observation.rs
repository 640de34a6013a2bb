//! What the kernel was found to be, as plain data: the only thing that `flannel-kernel` hands to a decision.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::family::ByFamily;
use crate::firewall_backend::{FirewallFacts, FirewallQuery};
use crate::link_name::LinkName;
use crate::mark::{Mark, write_networks};
use crate::pod_bridge::BridgeNetfilter;
use crate::rules::System;
use crate::rules::found::RuleObservation;
use crate::rules::observed::RuleScope;
use crate::state::{FdbEntry, File, Link, Neighbour, Route, Sysctl};

/// What one instance of flanneld looks at; everything else is not even dumped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The mark on links of this instance: two daemons on one host never have the same.
    pub instance: String,
    /// What version 0.1 may have called this instance.
    #[serde(default)]
    pub former: Vec<Box<str>>,
    /// The names of the devices that the configuration gives us.
    pub links: Vec<LinkName>,
    /// The pod networks of the whole cluster.
    pub networks: Vec<IpNet>,
    /// The prefix length of a node's part of them: one of the things that tell a route of Go flannel.
    pub subnet_lens: ByFamily<u8>,
    /// Settings to read, by path below `/proc/sys`.
    pub sysctls: Vec<Box<str>>,
    pub files: Vec<Box<str>>,
    /// Where rules are kept; without it no rules are looked at.
    #[serde(default)]
    pub system: Option<System>,
    /// How it is looked at, and what is asked besides: no part of what a plan is made for.
    #[serde(skip)]
    pub options: ObserveOptions,
}

/// How an observation is made, and what it is asked of the host besides objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserveOptions {
    /// Whether objects are left out, so that only what follows is found.
    pub without_objects: bool,
    /// Whether it gives way to what is more urgent: thousands of objects take longer to dump than a new peer should
    /// wait.
    pub gives_way: bool,
    pub firewall: FirewallQuery,
    /// The subnets of this node: what the settings of the bridges of their pods are.
    pub pod_subnets: ByFamily<IpNet>,
}

impl Scope {
    /// The firewall alone.
    pub fn of_firewall(query: FirewallQuery) -> Self {
        let options = ObserveOptions { without_objects: true, firewall: query, ..ObserveOptions::default() };
        Self { options, ..Self::default() }
    }

    /// Whose rules are looked for.
    pub fn rules(&self) -> RuleScope {
        let instance = match Mark::read(&self.instance) {
            Some(mark) if mark.networks.is_empty() => mark.instance.into(),
            Some(mark) => write_networks(mark.networks.into_iter()).into(),
            None => self.instance.as_str().into(),
        };
        RuleScope { instance, former: self.former.clone(), networks: self.networks.clone(), masq_agent: None }
    }
}

/// All that was found at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub links: Vec<LinkFact>,
    pub addresses: Vec<AddressFact>,
    /// Every route of the main table.
    pub routes: Vec<RouteFact>,
    /// The permanent neighbours on the devices of the scope and on those that carry its mark.
    pub neighbours: Vec<Neighbour>,
    /// The forwarding entries on the same devices.
    pub fdb: Vec<FdbEntry>,
    /// The settings of the scope that exist.
    pub sysctls: Vec<Sysctl>,
    /// The files of the scope that exist.
    pub files: Vec<File>,
    /// The rules that have to do with ours.
    #[serde(skip)]
    pub rules: RuleObservation,
    /// The signs of life of daemons of this host, if a device that is wanted has the mark of another.
    #[serde(default)]
    pub living: Vec<Box<str>>,
    #[serde(skip)]
    pub firewall: FirewallFacts,
    /// Whether bridges with pods of this node call iptables, by family; none of a family without such a bridge.
    #[serde(skip)]
    pub bridge_netfilter: ByFamily<BridgeNetfilter>,
}

/// A device, as found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFact {
    pub index: u32,
    pub link: Link,
    /// Whether it can carry packets now: up, and its cable is in.
    pub running: bool,
    /// Whether it only speaks to its own host.
    pub loopback: bool,
}

/// An address, as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFact {
    pub link: LinkName,
    pub address: IpNet,
    /// Whether it holds until somebody removes it.
    pub permanent: bool,
    /// Whether it is a privacy address that will be replaced.
    pub temporary: bool,
    /// Whether it is about to go.
    pub deprecated: bool,
    /// Whether it must not be used: still being checked for a double, or found to be one.
    pub unusable: bool,
}

/// A route, as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteFact {
    pub route: Route,
    /// Its metric; 0 is none (for IPv6 the kernel's 1024 counts as none).
    pub metric: u32,
    /// The address that packets get by it, if it says so.
    pub source: Option<IpAddr>,
}
