//! A node made by hand for tests: w1 at 10.0.0.1, its peers beside it, and a kernel in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use flannel_kernel::Kernel;
use flannel_kernel::fake::Fake;
use flannel_plan::backend;
use flannel_plan::claim::Identity;
use flannel_plan::config::NetworkConfig;
use flannel_plan::desired::scope;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::firewall::Firewall;
use flannel_plan::inputs::{HostRoute, Inputs, NodeOptions};
use flannel_plan::lease::Lease;
use flannel_plan::mac::Mac;
use flannel_plan::observation::{LinkFact, Observation, Scope};
use flannel_plan::report::NodeReport;
use flannel_plan::state::{Link, LinkKind, PROTOCOL_KERNEL, RouteKind};
use flannel_plan::underlay::Underlay;
use ipnet::IpNet;

use crate::comparison::Comparison;
use crate::daemon::{DaemonProcess, Life};
use crate::evidence::Evidence;

pub const VXLAN: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
pub const DIRECT: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}"#;
pub const HOST_GW: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}"#;
pub const ALLOC: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"alloc"}}"#;
pub const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48",
    "Backend":{"Type":"vxlan"}}"#;

/// When the evidence is gathered.
pub const NOW: u64 = 1_000_000;

/// The lease of node `wN`.
pub fn lease(config: &NetworkConfig, number: u16) -> Lease {
    let (high, low) = (number / 256, number % 256);
    let of = |family, v4: String, v6: String| match family {
        Family::V4 => v4,
        Family::V6 => v6,
    };
    let subnet = |family, _: &_| {
        of(family, format!("10.244.{low}.0/24"), format!("fd00:244:0:{number:x}::/64")).parse().unwrap()
    };
    let public = |family, _: &_| {
        of(family, format!("10.0.{high}.{low}"), format!("fd00::{number:x}")).parse().unwrap()
    };
    let identity = |family, _: &_| {
        let family = of(family, "04".into(), "06".into());
        format!("02:00:00:{family}:{high:02x}:{low:02x}").parse().map(Identity::Mac).unwrap()
    };
    let link = "eth0".parse().unwrap();
    let addresses = config.networks.map(public);
    let underlay = Underlay { link, mtu: 1500, addresses, public: addresses };
    Lease {
        owner: format!("w{number}"),
        subnets: config.networks.map(subnet),
        announcement: backend::announce(config, &underlay, &config.networks.map(identity)).unwrap(),
        since: number.into(),
    }
}

/// What w1 plans from, with w2 to `wN` beside it.
pub fn inputs(net_conf: &str, last: u16) -> Inputs {
    let config = NetworkConfig::parse(net_conf).unwrap();
    let own = lease(&config, 1);
    let connected = |net: &str| HostRoute {
        destination: net.parse().unwrap(),
        kind: RouteKind::Unicast,
        via: None,
        link: Some("eth0".parse().unwrap()),
        protocol: PROTOCOL_KERNEL,
        metric: 0,
    };
    let addresses = own.announcement.public;
    Inputs {
        node: NodeOptions {
            subnet_file: "/run/flannel/subnet.env".into(),
            ip_masq: false,
            ..NodeOptions::default()
        },
        underlay: Underlay { link: "eth0".parse().unwrap(), mtu: 1500, addresses, public: addresses },
        own,
        peers: (2..=last).map(|number| Arc::new(lease(&config, number))).collect(),
        routes: vec![connected("10.0.0.0/24"), connected("fd00::/64")],
        newcomers: Vec::new(),
        firewall: Firewall::default(),
        config,
    }
}

/// What w1 looks at.
pub fn scope_of(inputs: &Inputs) -> Scope {
    let scope = scope(&inputs.node, &inputs.config, &ByFamily::<IpNet>::default(), &[]);
    Scope { system: inputs.firewall.system, ..scope }
}

/// A kernel in which all is as the inputs want it.
pub fn settled(inputs: &Inputs) -> Fake {
    let eth0 = Link {
        name: inputs.underlay.link,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        up: true,
        alias: "".into(),
        kind: LinkKind::Other("veth".into()),
    };
    let eth0 = LinkFact { index: 2, link: eth0, running: true, loopback: false };
    let mut kernel = Fake::new(Observation { links: vec![eth0], ..Observation::default() });
    let comparison = compare(inputs, &mut kernel);
    assert_eq!(kernel.apply(&comparison.changes), []);
    kernel
}

fn compare(inputs: &Inputs, kernel: &mut Fake) -> Comparison {
    let scope = scope_of(inputs);
    Comparison::of(inputs, &scope, &kernel.observe(&scope).unwrap()).unwrap()
}

/// What is found on a node whose daemon runs and says that all is well.
pub fn evidence(inputs: &Inputs, kernel: &mut Fake) -> Evidence {
    Evidence {
        path: "/run/flannel/state.json".into(),
        daemon: DaemonProcess { life: Life::Running, pid: Some(77) },
        now: NOW,
        left_out: Vec::new(),
        comparison: Some(Ok(compare(inputs, kernel))),
        pod_mtus: BTreeMap::new(),
        report: NodeReport {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: 7,
            written: NOW - 3000,
            ready: true,
            reasons: Vec::new(),
            notes: Vec::new(),
            findings: Vec::new(),
            announced: inputs.own.announcement.public,
            outcome: None,
            repairs: Cow::Borrowed(&[]),
            contested: Vec::new(),
            foreign: Vec::new(),
            scope: Some(Cow::Owned(scope_of(inputs))),
            inputs: Some(Cow::Owned(inputs.clone())),
        },
    }
}
