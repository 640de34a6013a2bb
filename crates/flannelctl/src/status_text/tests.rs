use std::borrow::Cow;

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::finding::Finding;
use flannel_plan::firewall::Firewall;
use flannel_plan::report::Repair;
use flannel_plan::rules::found::{RuleObservation, Unreadable};
use flannel_plan::rules::{SourcePorts, System};

use super::fixture::{DUAL, NOW, VXLAN, evidence, inputs, settled};
use super::*;

fn page(status: &NodeStatus, limits: Limits) -> String {
    Page { screen: Screen { width: Some(80), colour: false }, limits, now: NOW }.write(status)
}

#[test]
fn a_page_tells_the_verdict_first_and_fits_eighty_columns() {
    let inputs = inputs(VXLAN, 3);
    let mut kernel = settled(&inputs);
    kernel.now.routes.remove(0);
    let mut evidence = evidence(&inputs, &mut kernel);
    let repair = Repair { object: "link flannel.1".into(), kind: "link".into(), count: 2, last: NOW - 5000 };
    evidence.report.repairs = Cow::Owned(vec![repair]);
    let expected = "\
w1 is ready

flanneld   0.1.0, pid 77, running
report     /run/flannel/state.json, 3 s ago
interface  eth0 10.0.0.1 mtu 1500
lease      10.244.1.0/24 of 10.244.0.0/16
backend    vxlan, pods have MTU 1450
device     flannel.1 mtu 1450 mac 02:00:00:04:00:01, VNI 1 on UDP port 8472
objects    1 of 10 not as they should be: see `flannelctl diff`
peers      1 ok, 1 broken

NODE  SUBNET         PUBLIC IP  REACHED           STATE
w2    10.244.2.0/24  10.0.0.2   tunnel flannel.1  route missing
w3    10.244.3.0/24  10.0.0.3   tunnel flannel.1  ok

repaired since flanneld started, the latest first:
  2 x link flannel.1, 5 s ago
";
    let expected = expected.replace("0.1.0", env!("CARGO_PKG_VERSION"));
    assert_eq!(page(&node_status(&evidence), Limits::USUAL), expected);
}

#[test]
fn two_families_fit_eighty_columns_too() {
    let inputs = inputs(DUAL, 3);
    let mut kernel = settled(&inputs);
    kernel.lose_link("flannel-v6.1".parse().unwrap());
    let text = page(&node_status(&evidence(&inputs, &mut kernel)), Limits::USUAL);
    let table: Vec<_> = text.lines().skip_while(|line| !line.starts_with("NODE")).collect();
    assert!(table.len() > 4 && table.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("fd00:244:0:2::/64"), "{text}");
}

#[test]
fn of_many_peers_the_broken_come_first_and_the_rest_is_counted() {
    let inputs = inputs(VXLAN, 200);
    let mut kernel = settled(&inputs);
    kernel.now.routes.retain(|fact| fact.route.destination != "10.244.150.0/24".parse().unwrap());
    let status = node_status(&evidence(&inputs, &mut kernel));
    let text = page(&status, Limits::USUAL);
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with('w')).skip(1).collect();
    assert_eq!(rows.len(), MOST_PEERS);
    assert!(rows[0].starts_with("w150 ") && rows[0].ends_with("route missing"), "{}", rows[0]);
    assert!(text.ends_with("  and 149 more peers: --all lists them\n"), "{text}");
    let all = page(&status, Limits::NONE);
    assert_eq!(all.lines().filter(|line| line.starts_with('w')).count(), 1 + 199);
}

#[test]
fn rules_are_named_with_their_place_and_what_cannot_be_seen_is_noted() {
    let mut inputs = inputs(VXLAN, 2);
    (inputs.node.ip_masq, inputs.node.forward_rules) = (true, true);
    inputs.firewall = Firewall {
        system: Some(System::Nftables),
        source_ports: ByFamily { v4: Some(SourcePorts::Randomised), v6: None },
        untracked: vec![Family::V4],
        notes: vec![Finding::unlisted("a word to the operator")],
    };
    let mut kernel = settled(&inputs);
    let text = page(&node_status(&evidence(&inputs, &mut kernel)), Limits::USUAL);
    assert!(text.starts_with("w1 is ready\n  ! a word to the operator\n"), "{text}");
    let line = "rules      masquerade, forwarding, untracked tunnel packets, in nftables\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("objects    all 8 as they should be\n"), "{text}");

    let why = "Operation not permitted".to_owned();
    let unreadable = Unreadable { system: System::Nftables, family: Family::V4, table: None, why };
    kernel.now.rules = RuleObservation { tables: vec![], unreadable: vec![unreadable] };
    let text = page(&node_status(&evidence(&inputs, &mut kernel)), Limits::USUAL);
    let note = "! rules nftables ip flannel-ipv4 cannot be looked at: Operation not permitted [FL-0609]\n";
    assert!(text.starts_with("w1 is ready\n") && text.contains(note), "{text}");
    assert!(text.contains("objects    1 of 8 not as they should be"), "{text}");
}

#[test]
fn a_daemon_that_does_nothing_is_in_the_first_line() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    let mut first_line = |life, ready| {
        (evidence.daemon.life, evidence.report.ready) = (life, ready);
        page(&node_status(&evidence), Limits::USUAL).lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(first_line(Life::Suspended, true), "w1 is ready, but flanneld is suspended");
    assert_eq!(first_line(Life::NotSeen, false), "w1 is not ready, and flanneld is not running");
}

#[test]
fn pods_and_addresses_that_are_not_as_asked_for_are_told() {
    let inputs = inputs(VXLAN, 2);
    let mut evidence = evidence(&inputs, &mut settled(&inputs));
    evidence.pod_mtus = [(1350, 1), (1450, 3), (1500, 2)].into();
    evidence.report.announced = ByFamily { v4: "203.0.113.9".parse().ok(), v6: None };
    let text = page(&node_status(&evidence), Limits::USUAL);
    let pods = "backend    vxlan, pods get MTU 1450; 3 of 6 pods have another: 1350, 1500\n";
    assert!(text.contains(pods), "{text}");
    let address = "mtu 1500, announced as 203.0.113.9, which the lease store has instead of 10.0.0.1\n";
    assert!(text.contains(address), "{text}");
}
