//! Laws of plan and diff: properties that hold for every input.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use flannel_plan::backend;
use flannel_plan::claim::Identity;
use flannel_plan::config::NetworkConfig;
use flannel_plan::delta;
use flannel_plan::desired::{Plan, plan};
use flannel_plan::diff::{Change, diff};
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::firewall::Firewall;
use flannel_plan::inputs::{HostRoute, Inputs, NodeOptions};
use flannel_plan::lease::{Announcement, BackendData, Lease};
use flannel_plan::mac::Mac;
use flannel_plan::observation::{Observation, RouteFact, Scope};
use flannel_plan::ownership;
use flannel_plan::peers::{self, Newcomer, Newness};
use flannel_plan::state::{Item, Key, PROTOCOL_KERNEL, Route, RouteKind, State};
use flannel_plan::underlay::Underlay;
use ipnet::{IpNet, Ipv4Net};
use proptest::prelude::*;

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A lease that may be good, foolish or hostile.
fn lease() -> impl Strategy<Value = Lease> {
    let subnet = (
        any::<u8>(),
        prop_oneof![9 => Just(24_u8), 1 => 0_u8..=32],
        prop_oneof![9 => Just(244_u8), 1 => any::<u8>()],
    );
    let public = prop_oneof![6 => (0_u8..30).prop_map(|n| v4(10, 0, 0, n)), 3 => (0_u8..30).prop_map(|n| v4(30, 0, 0, n)), 1 => any::<[u8; 4]>().prop_map(IpAddr::from)];
    let mac = prop_oneof![9 => (0_u8..40).prop_map(|n| Mac([2, 0, 0, 0, 0, n])), 1 => any::<[u8; 6]>().prop_map(Mac)];
    let text = mac.prop_map(|mac| format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#));
    let text = prop_oneof![9 => text, 1 => Just("[1]".to_owned()), 1 => Just("null".to_owned())];
    (subnet, public, text, 0_u64..5, 0_u8..40).prop_map(
        |((third, len, second), public, text, since, owner)| Lease {
            owner: format!("node{owner}"),
            subnets: ByFamily {
                v4: Ipv4Net::new(Ipv4Addr::new(10, second, third, 0), len)
                    .ok()
                    .map(|net| IpNet::V4(net.trunc())),
                v6: None,
            },
            announcement: Announcement {
                public: ByFamily { v4: Some(public), v6: None },
                backend: "vxlan".into(),
                detail: ByFamily { v4: BackendData::from_json(&text).unwrap(), v6: None },
            },
            since,
        },
    )
}

/// The same of both families, or of one of them, and perhaps of another backend than the others.
fn lease_of_families() -> impl Strategy<Value = Lease> {
    let part = (any::<u8>(), 0_u8..30, 0_u8..40);
    let v6 = proptest::option::of(part);
    let backend = prop_oneof![9 => Just("ours"), 1 => Just("ipip")];
    (lease(), v6, prop_oneof![9 => Just(true), 1 => Just(false)], backend).prop_map(
        |(mut lease, v6, has_v4, backend)| {
            let Announcement { public, detail, .. } = &mut lease.announcement;
            if let Some((subnet, node, mac)) = v6 {
                let text = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac:02x}"}}"#);
                lease.subnets.v6 = Some(net(&format!("fd00:244:0:{subnet:x}::/64")));
                public.v6 = Some(format!("fd00::{node:x}").parse().unwrap());
                detail.v6 = BackendData::from_json(&text).unwrap();
            }
            if !has_v4 {
                (lease.subnets.v4, public.v4, detail.v4) = (None, None, None);
            }
            lease.announcement.backend = backend.into();
            lease
        },
    )
}

/// Leases of peers that speak the backend of these inputs, most of them.
fn speaking(inputs: &Inputs, mut leases: Vec<Lease>) -> Vec<Lease> {
    for lease in leases.iter_mut().filter(|lease| lease.announcement.backend == "ours") {
        lease.announcement.backend = inputs.config.backend.lease_name().to_owned();
    }
    leases
}

/// Every backend, with what of its settings the objects of a peer depend on.
const BACKENDS: [&str; 4] = [
    r#"{"Type":"vxlan"}"#,
    r#"{"Type":"vxlan","DirectRouting":true}"#,
    r#"{"Type":"host-gw"}"#,
    r#"{"Type":"alloc"}"#,
];

fn connected(destination: &str, link: &str) -> HostRoute {
    HostRoute {
        destination: net(destination),
        kind: RouteKind::Unicast,
        via: None,
        link: link.parse().ok(),
        protocol: PROTOCOL_KERNEL,
        metric: 0,
    }
}

fn default_route() -> HostRoute {
    HostRoute { via: Some(v4(10, 0, 0, 254)), protocol: 3, ..connected("0.0.0.0/0", "eth0") }
}

fn inputs_with(peers: Vec<Lease>, backend: &str) -> Inputs {
    inputs_of(&format!(r#"{{"Network":"10.244.0.0/16","Backend":{backend}}}"#), peers)
}

fn dual_stack(backend: &str) -> Inputs {
    let v6 = r#""EnableIPv6":true,"IPv6Network":"fd00:244::/48""#;
    inputs_of(&format!(r#"{{"Network":"10.244.0.0/16",{v6},"Backend":{backend}}}"#), vec![])
}

fn inputs_of(net_conf: &str, peers: Vec<Lease>) -> Inputs {
    let config = NetworkConfig::parse(net_conf).unwrap();
    let of = |v4: &str, v6: &str| {
        config.networks.map(|family, _| match family {
            Family::V4 => v4.to_owned(),
            Family::V6 => v6.to_owned(),
        })
    };
    let addresses = of("10.0.0.21", "fd00::21").map(|_, address| address.parse().unwrap());
    let underlay = Underlay { link: "eth0".parse().unwrap(), mtu: 1500, addresses, public: addresses };
    let identity = config.networks.map(|_, _| Identity::Mac(Mac([2, 0, 0, 0, 0, 255])));
    let announcement = backend::announce(&config, &underlay, &identity).unwrap();
    let subnets = of("10.244.1.0/24", "fd00:244:0:1::/64").map(|_, subnet| net(subnet));
    Inputs {
        node: NodeOptions {
            subnet_file: "/run/flannel/subnet.env".into(),
            ip_masq: false,
            ..NodeOptions::default()
        },
        config,
        underlay,
        own: Lease { owner: "us".into(), subnets, announcement, since: 0 },
        peers: peers.into_iter().map(Arc::new).collect(),
        routes: vec![
            connected("10.0.0.0/24", "eth0"),
            connected("fd00::/64", "eth0"),
            connected("10.244.1.0/24", "cni0"),
            connected("10.244.7.0/24", "docker0"),
            default_route(),
        ],
        newcomers: Vec::new(),
        firewall: Firewall::default(),
    }
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let backend = prop_oneof![
        Just(r#"{"Type":"vxlan"}"#),
        Just(r#"{"Type":"vxlan","DirectRouting":true}"#),
        Just(r#"{"Type":"vxlan","VNI":7,"Port":4789,"MTU":1400}"#),
    ];
    (proptest::collection::vec((lease(), newness()), 0..40), backend).prop_map(|(peers, backend)| {
        let newcomers = peers.iter().filter_map(|(lease, newness)| Some(Newcomer::new(lease, (*newness)?)));
        let newcomers = newcomers.collect();
        Inputs { newcomers, ..inputs_with(peers.into_iter().map(|(lease, _)| lease).collect(), backend) }
    })
}

/// How new a lease is; mostly it was followed before.
fn newness() -> impl Strategy<Value = Option<Newness>> {
    prop_oneof![6 => Just(None), 1 => Just(Some(Newness::Part)), 1 => Just(Some(Newness::Whole))]
}

fn shared(leases: Vec<Lease>) -> Vec<Arc<Lease>> {
    let mut leases: Vec<_> = leases.into_iter().map(Arc::new).collect();
    leases.sort_by_key(|lease| lease.subnets);
    leases
}

/// Whether every lease has a name of its own, as in any store.
fn have_names(leases: &[Arc<Lease>]) -> bool {
    let names: BTreeSet<_> = leases.iter().map(|lease| (&lease.owner, lease.subnets)).collect();
    names.len() == leases.len()
}

/// What is planned when other peers come after a plan was made.
fn after(before: &Inputs, plan: &Plan, peers: &[Arc<Lease>]) -> Inputs {
    let newcomers = peers::newcomers(&before.peers, &plan.newcomers, peers);
    Inputs { peers: peers.to_vec(), newcomers, ..before.clone() }
}

fn planned(inputs: &Inputs) -> Plan {
    plan(inputs).unwrap()
}

/// What a kernel makes of a list of changes, as far as this vocabulary goes.
fn applied(state: &State, changes: &[Change]) -> State {
    let mut state = state.clone();
    for change in changes {
        match change {
            Change::Create(item) | Change::Replace { to: item, .. } => {
                if let (Change::Replace { from: Item::Link(from), .. }, Item::Link(to)) = (change, item) {
                    let rebuilt = from.kind.must_be_rebuilt(&to.kind);
                    let mac_changed = from.mac != to.mac;
                    state.retain(|other| {
                        other.link() != Some(to.name)
                            || !(rebuilt || mac_changed && matches!(other, Item::Neighbour(_)))
                    });
                }
                state.insert(item.clone());
            }
            Change::Remove(item) => _ = state.remove(&item.key()),
        }
    }
    state
}

/// Every route through the tunnel has its neighbour, and that neighbour its forwarding entry.
fn is_whole(state: &State) -> bool {
    state.iter().all(|item| match item {
        Item::Route(Route { onlink: true, via: Some(via), link: Some(link), .. }) => {
            let Some(Item::Neighbour(neighbour)) = state.get(&Key::Neighbour(*link, *via)) else {
                return false;
            };
            state.get(&Key::Fdb(*link, neighbour.mac)).is_some()
        }
        _ => true,
    })
}

#[test]
fn a_node_announces_the_identity_that_its_backend_needs() {
    for inputs in BACKENDS.map(dual_stack) {
        let needed =
            backend::identity_sources(&inputs.config).map(|_, _| Identity::Mac(Mac([2, 0, 0, 0, 0, 255])));
        assert_eq!(backend::identity(&inputs.own.announcement), needed, "{}", inputs.config.backend.name());
    }
}

proptest! {
    #[test]
    fn a_state_does_not_differ_from_itself(inputs in inputs()) {
        let plan = planned(&inputs);
        prop_assert_eq!(diff(&plan.desired, &plan.desired), []);
    }

    #[test]
    fn items_are_ordered_as_their_keys_are(inputs in inputs()) {
        let items = planned(&inputs).desired;
        for (a, b) in items.iter().zip(items.iter().skip(1)) {
            prop_assert_eq!(a.cmp_object(b), a.key().cmp(&b.key()));
            prop_assert!(a.key() < b.key());
        }
    }

    #[test]
    fn applying_the_changes_gives_the_desired_state(before in inputs(), after in inputs()) {
        let (before, after) = (planned(&before).desired, planned(&after).desired);
        prop_assert_eq!(applied(&before, &diff(&after, &before)), after);
    }

    #[test]
    fn after_every_step_each_route_has_what_it_needs(before in inputs(), after in inputs()) {
        let (before, after) = (planned(&before).desired, planned(&after).desired);
        let links = |state: &State| state.iter().filter(|item| matches!(item, Item::Link(_))).cloned().collect::<Vec<_>>();
        // A device that is rebuilt takes its routes with it: there the law holds only at the end.
        prop_assume!(links(&before) == links(&after));
        let changes = diff(&after, &before);
        for length in 0..=changes.len() {
            let state = applied(&before, &changes[..length]);
            prop_assert!(is_whole(&state), "after {} of\n{}", length, changes.iter().map(|c| format!("{c}\n")).collect::<String>());
        }
    }

    #[test]
    fn the_order_in_which_leases_arrive_does_not_matter(inputs in inputs(), seed in any::<prop::sample::Index>()) {
        let mut peers = inputs.peers.clone();
        if !peers.is_empty() {
            let by = seed.index(peers.len());
            peers.rotate_left(by);
            peers.reverse();
        }
        let other = Inputs { peers, ..inputs.clone() };
        // Two leases that are alike in every respect but their claim are told apart by the rest of it.
        prop_assume!({
            let mut ranks: Vec<_> = inputs.peers.iter().map(|l| (l.since, l.subnets, l.owner.clone())).collect();
            ranks.sort();
            ranks.windows(2).all(|pair| pair[0] != pair[1])
        });
        prop_assert_eq!(planned(&inputs), planned(&other));
    }

    #[test]
    fn no_lease_takes_packets_from_this_host(inputs in inputs()) {
        let plan = planned(&inputs);
        for item in plan.desired.iter() {
            let (key, Item::Route(route)) = (item.key(), item) else { continue };
            prop_assert!(net("10.244.0.0/16").contains(&route.destination), "{key}");
            for host in ["10.244.1.0/24", "10.244.7.0/24", "10.0.0.0/24"] {
                prop_assert!(!route.destination.contains(&net(host)) && !net(host).contains(&route.destination), "{key}");
            }
        }
        let accepted = plan.peers + plan.ignored.len();
        prop_assert_eq!(accepted, inputs.peers.len());
    }

    #[test]
    fn what_is_foreign_is_never_touched(before in inputs(), third in any::<u8>(), len in 8_u8..=32, protocol in prop_oneof![Just(3_u8), Just(4), Just(16)]) {
        let plan = planned(&before);
        let route = Route {
            destination: IpNet::new(v4(10, 244, third, 0), len).unwrap().trunc(),
            kind: RouteKind::Unicast,
            via: Some(v4(10, 0, 0, 99)),
            link: "eth0".parse().ok(),
            onlink: false,
            protocol,
        };
        prop_assume!(plan.desired.get(&Key::Route(route.destination)).is_none());
        let scope = Scope { networks: vec![net("10.244.0.0/16")], subnet_lens: ByFamily { v4: Some(24), v6: None }, ..Scope::default() };
        let observation = Observation { routes: vec![RouteFact { route, metric: 0, source: None }], ..Observation::default() };
        let mut observed = ownership::observed(&scope, &observation);
        ownership::claim(&plan.desired, &mut observed);
        let touches = diff(&plan.desired, &observed.ours).iter().any(|change| change.key() == Key::Route(route.destination));
        prop_assert!(!touches);
        let inside = net("10.244.0.0/16").contains(&route.destination);
        prop_assert_eq!(observed.foreign, if inside { vec![Item::Route(route)] } else { vec![] });
    }

    #[test]
    fn a_plan_that_was_followed_stays_the_same_when_its_newcomers_have_settled(inputs in inputs()) {
        prop_assume!(have_names(&inputs.peers));
        let plan = planned(&inputs);
        let settled = Inputs { newcomers: plan.newcomers.clone(), ..inputs };
        prop_assert_eq!(planned(&settled), plan);
    }

    #[test]
    fn whoever_is_followed_stays_so_whoever_comes(inputs in inputs(), come in proptest::collection::vec(lease(), 1..10)) {
        let plan = planned(&inputs);
        let mut peers = inputs.peers.clone();
        peers.extend(come.into_iter().map(Arc::new));
        prop_assume!(have_names(&peers));
        let later = planned(&after(&inputs, &plan, &peers));
        prop_assert_eq!(diff(&later.desired, &plan.desired).into_iter().filter(|change| !matches!(change, Change::Create(_))).collect::<Vec<_>>(), []);
    }
}

proptest! {
    // Of hostile leases few can be followed without all others.
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_delta_gives_the_very_plan_that_planning_all_gives_whatever_the_backend(
        stay in proptest::collection::vec(lease_of_families(), 0..8),
        gone in proptest::collection::vec(lease_of_families(), 0..2),
        come in proptest::collection::vec(lease_of_families(), 0..2),
        refused in proptest::collection::vec(any::<prop::sample::Index>(), 0..2),
        backend in proptest::sample::select(&BACKENDS[..]),
        is_dual in any::<bool>(),
    ) {
        let before = if is_dual { dual_stack(backend) } else { inputs_with(vec![], backend) };
        let [stay, gone, come] = [stay, gone, come].map(|leases| speaking(&before, leases));
        let newcomers = refused.iter().filter_map(|index| Some(Newcomer::new(stay.get(index.index(8))?, Newness::Whole)));
        let newcomers = newcomers.collect();
        let before = Inputs { peers: shared([stay.clone(), gone].concat()), newcomers, ..before };
        let mut peers: Vec<_> = before.peers.iter().filter(|lease| stay.contains(lease)).cloned().collect();
        peers.extend(come.into_iter().map(Arc::new));
        peers.sort_by_key(|lease| lease.subnets);
        prop_assume!(have_names(&before.peers) && have_names(&peers));
        let mut plan = planned(&before);
        let after = after(&before, &plan, &peers);
        if let Some(delta) = delta::of_peers(&plan, &before, &after.peers) {
            prop_assert_eq!(delta.changes(), diff(&planned(&after).desired, &plan.desired));
            plan.follow(delta);
            prop_assert_eq!(plan, planned(&after));
        }
    }
}
