//! The bridge that the pods of this node hang on, such as `cni0`: the CNI plugin's, not ours, but what is wrong with it
//! cuts off pods. Takes an observation of the node, gives what to tell the operator.

use ipnet::IpNet;

use crate::config::NetworkConfig;
use crate::family::{ByFamily, Family, overlap};
use crate::finding::{Code, Finding};
use crate::inputs::NodeOptions;
use crate::link_name::LinkName;
use crate::observation::{LinkFact, Observation};
use crate::state::{LinkKind, RouteKind};

/// Whether packets between pods of one bridge meet the rules of the host: without it, answers through a Service come
/// from an address that nobody asked, and are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeNetfilter {
    On,
    Off,
    /// The setting is hidden, as in some containers.
    Unknown,
}

impl BridgeNetfilter {
    /// What a family's setting is called.
    pub fn sysctl(family: Family) -> &'static str {
        match family {
            Family::V4 => "net.bridge.bridge-nf-call-iptables",
            Family::V6 => "net.bridge.bridge-nf-call-ip6tables",
        }
    }
}

/// What is to be told about bridges that do not call iptables. Of what is hidden there is nothing to tell.
pub fn netfilter_findings(settings: &ByFamily<BridgeNetfilter>) -> Vec<Finding> {
    let off = settings.iter().filter(|(_, setting)| **setting == BridgeNetfilter::Off);
    let harm = "Services do not answer pods of this node that run on the same node as what is behind them";
    let finding = |name: &str| {
        let remedy = format!("set it with `sysctl -w {name}=1`, and in /etc/sysctl.d");
        Finding::new(Code::BridgeNfOff, name, format!("{name} is 0")).because(harm).or_do(remedy)
    };
    off.map(|(family, _)| finding(BridgeNetfilter::sysctl(family))).collect()
}

/// What is wrong with the bridges that have gateways of pods.
pub fn findings(
    observation: &Observation,
    config: &NetworkConfig,
    own: &ByFamily<IpNet>,
    node: &NodeOptions,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for bridge in observation.links.iter().filter(|fact| is_bridge(fact)) {
        for gateway in gateways(observation, bridge.link.name, config) {
            let family = Family::of_net(gateway);
            match own.get(family).filter(|subnet| overlap(**subnet, gateway.trunc())) {
                Some(subnet) => findings.extend(cut_off(observation, bridge, *subnet, node)),
                None if own.get(family).is_some() => findings.push(stale(bridge.link.name, gateway)),
                None => {}
            }
        }
    }
    findings
}

/// The bridges that have the gateway of a subnet.
pub fn of<'a>(observation: &'a Observation, subnet: &IpNet) -> impl Iterator<Item = &'a LinkFact> {
    let has_gateway = move |bridge: LinkName| {
        observation.addresses.iter().any(|fact| fact.link == bridge && subnet.contains(&fact.address.addr()))
    };
    observation.links.iter().filter(move |fact| is_bridge(fact) && has_gateway(fact.link.name))
}

fn is_bridge(fact: &LinkFact) -> bool {
    matches!(&fact.link.kind, LinkKind::Other(kind) if &**kind == "bridge")
}

/// The addresses of a bridge in the pod network. One whose prefix is the whole network is no gateway of a node.
fn gateways(
    observation: &Observation,
    bridge: LinkName,
    config: &NetworkConfig,
) -> impl Iterator<Item = IpNet> {
    let on_bridge =
        observation.addresses.iter().filter(move |fact| fact.link == bridge).map(|fact| fact.address);
    on_bridge.filter(|address| {
        let pods = config.networks.get(Family::of_net(*address));
        pods.is_some_and(|pods| pods.network != address.trunc() && pods.network.contains(address))
    })
}

/// Why packets do not reach the pods behind a bridge that has their gateway.
fn cut_off(
    observation: &Observation,
    bridge: &LinkFact,
    subnet: IpNet,
    node: &NodeOptions,
) -> Option<Finding> {
    let name = bridge.link.name;
    let leads_there =
        |kind: RouteKind, link: Option<LinkName>| kind == RouteKind::Unicast && link == Some(name);
    let mut routes = observation.routes.iter().map(|fact| fact.route);
    let has_route =
        routes.any(|route| overlap(route.destination, subnet) && leads_there(route.kind, route.link));
    let (fault, remedy) = if !bridge.link.up {
        (format!("{name} is down"), format!("raise it with `ip link set {name} up`"))
    } else if !has_route && bridge.running {
        (
            format!("{subnet} has no route to {name}"),
            format!("add it with `ip route add {subnet} dev {name}`"),
        )
    } else {
        return None; // a bridge that does not run has no pods
    };
    let strays = if node.blackhole_route {
        "packets for them are dropped"
    } else {
        "packets for them leave by the default route, in clear; with --ip-blackhole-route they are dropped"
    };
    let finding = Finding::new(Code::BridgeBroken, name, fault);
    Some(finding.because(format!("the pods of this node are cut off, and {strays}")).or_do(remedy))
}

fn stale(bridge: LinkName, gateway: IpNet) -> Finding {
    let fault = "the gateway of an earlier lease, for pods that started under it";
    Finding::new(Code::StaleGateway, bridge, format!("{bridge} has {gateway}, {fault}"))
        .because(format!("a node that has {} now cannot be reached from here", gateway.trunc()))
        .or_do(format!("it goes with the last of these pods, or with `ip addr del {gateway} dev {bridge}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::texts;
    use crate::observation::{AddressFact, RouteFact};
    use crate::state::{Link, PROTOCOL_KERNEL, Route};

    const OWN: &str = "10.244.3.0/24";

    fn cni0() -> LinkName {
        "cni0".parse().unwrap()
    }

    fn config() -> NetworkConfig {
        NetworkConfig::parse(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#).unwrap()
    }

    /// A node whose bridge has these addresses, and routes to these networks.
    fn node(addresses: &[&str], routes: &[&str]) -> Observation {
        let (mac, kind) = ("02:00:00:00:00:01".parse().unwrap(), LinkKind::Other("bridge".into()));
        let link = Link { name: cni0(), mac: Some(mac), mtu: 1450, up: true, alias: "".into(), kind };
        let address = |text: &&str| AddressFact {
            link: cni0(),
            address: text.parse().unwrap(),
            permanent: true,
            temporary: false,
            deprecated: false,
            unusable: false,
        };
        let route = |text: &&str| {
            let (kind, protocol) = (RouteKind::Unicast, PROTOCOL_KERNEL);
            let destination = text.parse().unwrap();
            let route = Route { destination, kind, via: None, link: Some(cni0()), onlink: false, protocol };
            RouteFact { route, metric: 0, source: None }
        };
        Observation {
            links: vec![LinkFact { index: 7, link, running: true, loopback: false }],
            addresses: addresses.iter().map(address).collect(),
            routes: routes.iter().map(route).collect(),
            ..Observation::default()
        }
    }

    fn told(observation: &Observation, blackhole_route: bool) -> Vec<String> {
        let node = NodeOptions { blackhole_route, ..NodeOptions::default() };
        texts(&findings(observation, &config(), &ByFamily { v4: OWN.parse().ok(), v6: None }, &node))
    }

    #[test]
    fn only_a_bridge_with_the_gateway_of_the_pods_is_theirs() {
        let (observation, subnet) = (node(&["172.17.0.1/16", "10.244.3.1/24"], &[]), OWN.parse().unwrap());
        assert_eq!(of(&observation, &subnet).map(|fact| fact.index).collect::<Vec<_>>(), [7]);
        assert_eq!(of(&node(&["172.17.0.1/16"], &[]), &subnet).count(), 0);
        let mut observation = observation;
        observation.links[0].link.kind = LinkKind::Other("veth".into());
        assert_eq!(of(&observation, &subnet).count(), 0);
    }

    #[test]
    fn a_setting_that_is_off_is_told_with_what_sets_it_and_one_that_is_hidden_is_not() {
        let notes = |setting| texts(&netfilter_findings(&ByFamily { v4: Some(setting), v6: None }));
        let [note] = &notes(BridgeNetfilter::Off)[..] else { panic!("one note") };
        assert!(
            note.starts_with("net.bridge.bridge-nf-call-iptables is 0: Services do not answer"),
            "{note}"
        );
        assert!(note.contains("`sysctl -w net.bridge.bridge-nf-call-iptables=1`"), "{note}");
        assert_eq!([notes(BridgeNetfilter::On), notes(BridgeNetfilter::Unknown)], [[""; 0]; 2]);
    }

    #[test]
    fn a_bridge_as_it_should_be_and_bridges_of_others_are_not_worth_a_word() {
        let (alone, docker) = (node(&["10.244.3.1/24"], &[OWN]), node(&["172.17.0.1/16", "fd00::1/64"], &[]));
        let whole = node(&["10.244.0.1/16"], &["10.244.0.0/16"]);
        for observation in [alone, docker, whole] {
            assert_eq!(told(&observation, false), [""; 0]);
        }
    }

    #[test]
    fn a_bridge_that_is_down_lets_packets_leave_in_clear_and_the_blackhole_route_is_the_remedy() {
        let mut observation = node(&["10.244.3.1/24"], &[]);
        observation.links[0].link.up = false;
        let cut = "cni0 is down: the pods of this node are cut off, and packets for them";
        let raise = "raise it with `ip link set cni0 up`";
        let leave = "leave by the default route, in clear; with --ip-blackhole-route they are dropped";
        assert_eq!(told(&observation, false), [format!("{cut} {leave}; {raise}")]);
        assert_eq!(told(&observation, true), [format!("{cut} are dropped; {raise}")]);
    }

    #[test]
    fn a_route_to_the_bridge_that_is_missing_is_told_with_what_adds_it() {
        let notes = told(&node(&["10.244.3.1/24"], &["10.244.9.0/24"]), false);
        assert!(notes[0].starts_with("10.244.3.0/24 has no route to cni0: the pods"), "{notes:?}");
        assert!(notes[0].ends_with("add it with `ip route add 10.244.3.0/24 dev cni0`"), "{notes:?}");
    }

    #[test]
    fn the_gateway_of_an_earlier_lease_is_told_with_what_removes_it() {
        let notes = told(&node(&["10.244.3.1/24", "10.244.1.1/24"], &[OWN, "10.244.1.0/24"]), false);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("cni0 has 10.244.1.1/24, the gateway of an earlier lease"), "{note}");
        assert!(note.ends_with("or with `ip addr del 10.244.1.1/24 dev cni0`"), "{note}");
    }
}
