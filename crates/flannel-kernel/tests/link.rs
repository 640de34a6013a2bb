//! Devices against the real kernel: made like Go's, altered in place where Linux allows it, rebuilt where not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::net::UdpSocket;

use flannel_kernel::Kernel;
use flannel_plan::diff::Change;
use flannel_plan::observation::LinkFact;
use flannel_plan::state::{Item, Link, LinkKind, Sysctl};
use sandbox::*;

fn found(kernel: &mut flannel_kernel::Linux, device: &str) -> Option<LinkFact> {
    observe(kernel).links.into_iter().find(|fact| fact.link.name == name(device))
}

/// A device with one peer, whose index is returned.
fn with_a_peer(kernel: &mut flannel_kernel::Linux) -> u32 {
    apply(kernel, &create([link(flannel_1()), address("flannel.1", "10.244.1.0/32")]));
    apply(kernel, &create(peer(2)));
    found(kernel, "flannel.1").unwrap().index
}

fn flannel_1_but(change: impl FnOnce(&mut Link)) -> Link {
    let mut link = flannel_1();
    change(&mut link);
    link
}

/// What `ip -d link` says, without the number, the name, the hardware address and the alias.
fn details(device: &str) -> String {
    let text = lines(&format!("ip -d link show {device}"));
    let (first, third) = (text[0].split_once(": <").unwrap().1, &text[2]);
    let limits = text[1].split_once("ff:ff:ff:ff:ff:ff ").unwrap().1;
    format!("<{first}\n{limits}\n{third}")
}

#[test]
fn a_vxlan_device_is_made_as_go_flannel_makes_it() {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_1())]));
        let golden = "<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN mode DEFAULT group default\n\
            promiscuity 0 allmulti 0 minmtu 68 maxmtu 65535\n\
            vxlan id 1 local 10.0.0.1 dev nic srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum \
            noudp6zerocsumtx noudp6zerocsumrx addrgenmode eui64 numtxqueues 1 numrxqueues 1 gso_max_size 65536 \
            gso_max_segs 65535 tso_max_size 524280 tso_max_segs 65535 gro_max_size 65536";
        assert_eq!(details("flannel.1"), golden);
    });
}

#[test]
fn a_vxlan_device_with_gbp_is_made_as_go_flannel_makes_it() {
    with_a_nic(|kernel| {
        let device = flannel_1_but(|link| {
            link.mtu = 1250;
            vxlan(link).gbp = true;
        });
        apply(kernel, &create([link(device)]));
        let golden = "<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1250 qdisc noqueue state UNKNOWN mode DEFAULT group default\n\
            promiscuity 0 allmulti 0 minmtu 68 maxmtu 65535\n\
            vxlan id 1 local 10.0.0.1 dev nic srcport 0 0 dstport 8472 nolearning ttl auto ageing 300 udpcsum \
            noudp6zerocsumtx noudp6zerocsumrx gbp numtxqueues 1 numrxqueues 1 gso_max_size 65536 \
            gso_max_segs 65535 tso_max_size 524280 tso_max_segs 65535 gro_max_size 65536";
        assert_eq!(details("flannel.1"), golden);
    });
}

#[test]
fn every_setting_of_a_device_is_found_again() {
    with_a_nic(|kernel| {
        let learning = flannel_1_but(|link| vxlan(link).learning = true);
        let odd_port = flannel_1_but(|link| vxlan(link).port = 4789);
        let no_lower = flannel_1_but(|link| {
            vxlan(link).lower = None;
            vxlan(link).local = None;
        });
        let gbp = flannel_1_but(|link| vxlan(link).gbp = true);
        let down = flannel_1_but(|link| link.up = false);
        for device in [learning, odd_port, no_lower, gbp, down, flannel_v6_1()] {
            apply(kernel, &create([link(device.clone())]));
            assert_eq!(ours(kernel), [link(device.clone())]);
            apply(kernel, &remove([link(device)]));
        }
    });
}

#[test]
fn both_families_have_a_device_with_one_vni_and_port() {
    with_a_nic(|kernel| {
        let both = [link(flannel_v6_1()), link(flannel_1())];
        apply(kernel, &create(both.clone()));
        assert_eq!(ours(kernel), both);
    });
}

#[test]
fn devices_of_others_are_found_with_their_kind() {
    with_a_nic(|kernel| {
        sh("ip link add br0 type bridge && ip link set br0 alias 'somebody else'");
        let facts = observe(kernel).links;
        let seen: Vec<_> = facts
            .iter()
            .map(|fact| {
                let LinkKind::Other(kind) = &fact.link.kind else { panic!("{fact:?}") };
                (
                    fact.link.name.to_string(),
                    &**kind,
                    fact.link.up,
                    fact.running,
                    fact.loopback,
                    &*fact.link.alias,
                )
            })
            .collect();
        let expected = [
            ("lo", "loopback", true, true, true, ""),
            ("far", "veth", true, true, false, ""),
            ("nic", "veth", true, true, false, ""),
            ("br0", "bridge", false, false, false, "somebody else"),
        ];
        assert_eq!(seen, expected.map(|(name, b, c, d, e, f)| (name.to_owned(), b, c, d, e, f)));
    });
}

#[test]
fn a_cable_that_is_out_is_seen() {
    with_a_nic(|kernel| {
        sh("ip link set far down");
        let nic = found(kernel, "nic").unwrap();
        assert_eq!((nic.link.up, nic.running), (true, false));
    });
}

#[test]
fn what_can_be_altered_in_place_keeps_the_device_its_routes_and_entries() {
    with_a_nic(|kernel| {
        sh("ip addr add 10.0.0.7/24 dev nic");
        let index = with_a_peer(kernel);
        let steps = [
            flannel_1_but(|link| link.mtu = 1400),
            flannel_1_but(|link| link.alias = "flannel: other".into()),
            flannel_1_but(|link| link.alias = "".into()),
            flannel_1_but(|link| vxlan(link).local = Some(ip("10.0.0.7"))),
            flannel_1_but(|link| vxlan(link).learning = true),
            flannel_1(),
        ];
        let mut before = flannel_1();
        let entries = [vec![address("flannel.1", "10.244.1.0/32")], peer(2).to_vec()].concat();
        for after in steps {
            apply(kernel, &replace(link(before), link(after.clone())));
            let fact = found(kernel, "flannel.1").unwrap();
            assert_eq!((fact.index, &fact.link), (index, &after));
            before = after;
        }
        assert_eq!(ours(kernel), [vec![link(flannel_1())], entries].concat());
    });
}

#[test]
fn a_new_mac_is_set_in_place_and_costs_only_the_neighbours() {
    with_a_nic(|kernel| {
        let index = with_a_peer(kernel);
        let after = flannel_1_but(|link| link.mac = Some(mac(99)));
        apply(kernel, &replace(link(flannel_1()), link(after.clone())));
        assert_eq!(found(kernel, "flannel.1").unwrap().index, index);
        let [fdb, _, route] = peer(2);
        assert_eq!(ours(kernel), [link(after), address("flannel.1", "10.244.1.0/32"), fdb, route]);
    });
}

#[test]
fn a_device_that_goes_down_and_up_keeps_its_ipv4_address_and_its_forwarding_entries() {
    with_a_nic(|kernel| {
        let index = with_a_peer(kernel);
        let down = flannel_1_but(|link| link.up = false);
        let [fdb, ..] = peer(2);
        let rest = [address("flannel.1", "10.244.1.0/32"), fdb];
        apply(kernel, &replace(link(flannel_1()), link(down.clone())));
        assert_eq!(ours(kernel), [vec![link(down.clone())], rest.to_vec()].concat());
        apply(kernel, &replace(link(down), link(flannel_1())));
        assert_eq!(ours(kernel), [vec![link(flannel_1())], rest.to_vec()].concat());
        assert_eq!(found(kernel, "flannel.1").unwrap().index, index);
    });
}

#[test]
fn what_cannot_be_altered_is_rebuilt_and_nothing_old_stays() {
    with_a_nic(|kernel| {
        sh("ip link add nic2 type veth peer name far2 && ip link set nic2 up && ip link set far2 up");
        let mut index = with_a_peer(kernel);
        let steps = [
            flannel_1_but(|link| vxlan(link).vni = 7),
            flannel_1_but(|link| vxlan(link).port = 4789),
            flannel_1_but(|link| vxlan(link).gbp = true),
            flannel_1_but(|link| vxlan(link).lower = Some(name("nic2"))),
            flannel_1_but(|link| {
                vxlan(link).local = Some(ip("fd00::1"));
                link.mtu = 1430;
            }),
        ];
        let mut before = flannel_1();
        for after in steps {
            apply(kernel, &replace(link(before), link(after.clone())));
            assert_eq!(ours(kernel), [link(after.clone())]);
            let now = found(kernel, "flannel.1").unwrap().index;
            assert_ne!(now, index);
            (before, index) = (after, now);
        }
    });
}

#[test]
fn a_refused_mtu_does_not_keep_the_rest_from_being_altered() {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_1())]));
        let after = flannel_1_but(|link| {
            link.mtu = 9000;
            link.mac = Some(mac(99));
        });
        let change = Change::Replace { from: link(flannel_1()), to: link(after.clone()) };
        let (error, _) = complaint(kernel, change);
        let why = "Invalid argument: an MTU of 9000 is more than the device below allows";
        assert_eq!(error, format!("cannot replace {after}: {why}"));
        assert_eq!(ours(kernel), [link(flannel_1_but(|link| link.mac = Some(mac(99))))]);
    });
}

#[test]
fn an_mtu_larger_than_the_nic_allows_is_cut_without_a_word_when_the_device_is_made() {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_1_but(|link| link.mtu = 9000))]));
        assert_eq!(ours(kernel), [link(flannel_1())]);
    });
}

#[test]
fn a_device_that_cannot_come_up_is_not_left_behind() {
    with_a_nic(|kernel| {
        apply(kernel, &create([link(flannel_1())]));
        let clash = Link {
            name: name("flannel.2"),
            ..flannel_1_but(|link| (vxlan(link).vni, vxlan(link).gbp) = (2, true))
        };
        let (error, hint) = complaint(kernel, Change::Create(link(clash)));
        assert_eq!(
            error,
            "cannot bring flannel.2 up: flannel.1 uses UDP port 8472 without the group policy extension (GBP)"
        );
        assert_eq!(hint.unwrap(), "set GBP as flannel.1 has it, or choose another Port in net-conf.json");
        assert_eq!(found(kernel, "flannel.2"), None);
    });
}

#[test]
fn a_port_that_another_program_has_is_named() {
    with_a_nic(|kernel| {
        let _taken = UdpSocket::bind("0.0.0.0:8472").unwrap();
        let (error, hint) = complaint(kernel, Change::Create(link(flannel_1())));
        assert_eq!(error, "cannot bring flannel.1 up: UDP port 8472 is in use by another program");
        assert_eq!(
            hint.unwrap(),
            "find it with `ss -ulnp 'sport = :8472'`, or choose another Port in net-conf.json"
        );
        assert_eq!(found(kernel, "flannel.1"), None);
    });
}

#[test]
fn a_device_is_tried_beside_the_one_in_use_and_nothing_of_it_stays() {
    with_a_nic(|kernel| {
        with_a_peer(kernel);
        let before = observe(kernel);
        let other = flannel_1_but(|link| vxlan(link).port = 4790);
        let trial = Item::Link(Box::new(Link { name: name("fltry1"), ..other.clone() }));
        let trial = [Change::Create(trial.clone()), Change::Remove(trial)];
        assert_eq!(kernel.apply(&trial), []);
        assert_eq!(observe(kernel), before);
        let _taken = UdpSocket::bind("0.0.0.0:4790").unwrap();
        let failures = kernel.apply(&trial);
        let why = failures.into_iter().map(|failure| failure.why.of(&other)).next().unwrap();
        assert_eq!(why.to_string(), "cannot bring flannel.1 up: UDP port 4790 is in use by another program");
        assert_eq!(observe(kernel), before);
    });
}

#[test]
fn a_device_of_our_name_and_another_kind_is_named_and_left_alone() {
    with_a_nic(|kernel| {
        sh("ip link add flannel.1 type bridge");
        let before = observe(kernel);
        let taken = "cannot create flannel.1: a bridge of that name exists";
        let hint = Some("remove it with `ip link del flannel.1`, or choose another VNI".to_owned());
        let own = Item::Link(Box::new(flannel_1()));
        assert_eq!(complaint(kernel, Change::Create(own.clone())), (taken.to_owned(), hint.clone()));
        let removal = Change::Remove(own.clone());
        assert_eq!(complaint(kernel, removal), (taken.replace("create", "remove"), hint.clone()));
        let theirs = before.links.iter().find(|fact| fact.link.name == name("flannel.1")).unwrap();
        let replacement = Change::Replace { from: link(theirs.link.clone()), to: own };
        assert_eq!(complaint(kernel, replacement), (taken.replace("create", "replace"), hint));
        assert_eq!(observe(kernel), before);
    });
}

#[test]
fn another_device_with_our_vni_is_named() {
    with_a_nic(|kernel| {
        sh("ip link add vxlan9 type vxlan id 1 dev nic local 10.0.0.1 dstport 8472");
        let (error, hint) = complaint(kernel, Change::Create(link(flannel_1())));
        assert_eq!(error, "cannot create flannel.1: vxlan9 has VNI 1 on UDP port 8472");
        assert_eq!(
            hint.unwrap(),
            "remove it with `ip link del vxlan9`, or choose another VNI or Port in net-conf.json"
        );
    });
}

#[test]
fn a_missing_device_below_is_named() {
    with_a_nic(|kernel| {
        sh("ip link del nic");
        let (error, hint) = complaint(kernel, Change::Create(link(flannel_1())));
        assert_eq!(error, format!("cannot create {}: there is no device nic", flannel_1()));
        assert_eq!(hint.unwrap(), "bring nic back, or choose another device with --iface");
    });
}

#[test]
fn a_device_goes_with_the_device_below() {
    with_a_nic(|kernel| {
        with_a_peer(kernel);
        sh("ip link del nic");
        assert_eq!(ours(kernel), []);
    });
}

#[test]
fn linux_lets_the_device_below_be_changed_in_place_but_not_vni_port_gbp_or_family() {
    with_a_nic(|kernel| {
        sh("ip link add nic2 type veth peer name far2 && ip link set nic2 up && ip link set far2 up");
        with_a_peer(kernel);
        sh("ip link set flannel.1 type vxlan id 1 dev nic2");
        let moved = flannel_1_but(|link| vxlan(link).lower = Some(name("nic2")));
        let rest = [vec![address("flannel.1", "10.244.1.0/32")], peer(2).to_vec()].concat();
        assert_eq!(ours(kernel), [vec![link(moved)], rest].concat());
        for change in ["id 2", "id 1 dstport 99", "id 1 gbp", "id 1 local fd00::1"] {
            let out = sh(&format!("ip link set flannel.1 type vxlan {change} 2>&1 && echo changed || true"));
            assert!(out.contains("rror"), "{change}: {out}");
        }
    });
}

/// How many frames left through the cable since it was plugged in.
fn frames_sent() -> u64 {
    sh("cat /proc/net/dev | sed -n 's/^ *far: *//p'").split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_tunnel_sends_nothing_from_an_address_that_is_not_the_hosts_own() {
    with_an_ipv4_nic(|kernel| {
        sh(
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 && ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:22 dev nic",
        );
        let public = flannel_1_but(|link| vxlan(link).local = Some("192.0.2.1".parse().unwrap()));
        apply(kernel, &create([link(public.clone()), address("flannel.1", "10.244.1.0/32")]));
        apply(kernel, &create(peer(2)));
        let ping = "ping -c 3 -i 0.01 -W 0.01 10.244.2.0 || true";
        let before = frames_sent();
        sh(ping);
        assert_eq!(frames_sent(), before, "a public address behind NAT is not the host's own");
        apply(kernel, &[Change::Replace { from: link(public), to: link(flannel_1()) }]);
        sh(ping);
        assert_eq!(frames_sent(), before + 3);
    });
}

/// What comes in the place of our device between a look and a change: of another kind, and of the same with another
/// mark or number.
const OTHERS: [&str; 3] = [
    "ip link add flannel.1 type bridge",
    "ip link add flannel.1 type vxlan id 1 dstport 8472 local 10.0.0.1 dev nic && ip link set flannel.1 alias theirs",
    "ip link add flannel.1 type vxlan id 7 dstport 8472 dev nic && ip link set flannel.1 alias \"flannel: test\"",
];

#[test]
fn a_device_that_took_the_name_since_the_look_is_neither_altered_nor_removed() {
    let rebuilt = flannel_1_but(|link| vxlan(link).port = 4789);
    let altered = flannel_1_but(|link| {
        link.mtu = 1300;
        link.mac = Some(mac(9));
    });
    let changes = [
        Change::Replace { from: link(flannel_1()), to: link(altered) },
        Change::Replace { from: link(flannel_1()), to: link(rebuilt) },
        Change::Remove(link(flannel_1())),
    ];
    for (other, change) in OTHERS.iter().flat_map(|other| changes.iter().map(move |change| (other, change))) {
        with_flannel_1(|kernel| {
            observe(kernel);
            sh(&format!("ip link del flannel.1; {other}"));
            let before = lines("ip -d link show flannel.1");
            let (why, hint) = complaint(kernel, change.clone());
            assert!(why.contains("flannel.1") && why.contains("that name"), "{why}");
            assert!(hint.is_some(), "{why}");
            assert_eq!(lines("ip -d link show flannel.1"), before, "{other}: {change}");
        });
    }
}

#[test]
fn what_belongs_on_our_device_is_not_put_on_one_that_took_its_name() {
    for other in OTHERS {
        with_flannel_1(|kernel| {
            observe(kernel);
            sh(&format!("ip link del flannel.1; {other}; ip link set flannel.1 up"));
            sh("sysctl -qw net.ipv6.conf.flannel/1.accept_ra=1");
            let setting = Item::Sysctl(Box::new(Sysctl {
                path: "net/ipv6/conf/flannel.1/accept_ra".into(),
                value: "0".into(),
            }));
            let [entry, neighbour, route] = peer(2);
            for item in [address("flannel.1", "10.244.1.0/32"), setting, entry, neighbour, route] {
                let (why, _) = complaint(kernel, Change::Create(item));
                assert!(why.contains("another device came in the place of flannel.1"), "{why}");
            }
            assert_eq!(sh("ip -4 address show dev flannel.1; ip -4 route show dev flannel.1"), "");
            assert_eq!(sh("sysctl -n net.ipv6.conf.flannel/1.accept_ra"), "1\n");
            // What is to go went with the device; what the other has of the same is the other's.
            sh("ip address add 10.244.1.0/32 dev flannel.1");
            apply(kernel, &remove([address("flannel.1", "10.244.1.0/32")]));
            assert_eq!(lines("ip -4 -o address show dev flannel.1").len(), 1);
        });
    }
}
