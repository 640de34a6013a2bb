//! What the host's firewall and bridges are, and what becomes of the rules.

use flannel_plan::family::Family;
use flannel_plan::firewall_backend::{Translated, Untrack};
use flannel_plan::pod_bridge::BridgeNetfilter;
use flannel_plan::rules::found::Unreadable;
use flannel_plan::rules::tools::{Program, Tools};
use flannel_plan::rules::{SourcePorts, TableId};

use super::super::*;
use super::memory::*;
use super::stage::*;

const IPTABLES: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;

const IN_NFTABLES: [&str; 1] = ["nftables ip flannel-ipv4"];
const IN_IPTABLES: [&str; 3] = ["iptables filter", "iptables nat", "iptables raw"];

/// A host with nftables, and programs of iptables that write there.
fn host_with_iptables() -> fake_kernel::Fake {
    let mut host = host();
    let source_ports = SourcePorts::Randomised;
    let program = Program { system: System::IptablesNft, source_ports };
    host.now.firewall.tools =
        Some(Tools { nftables: Some(source_ports), iptables: ByFamily { v4: Some(program), v6: None } });
    host
}

fn table(name: &str) -> TableId {
    TableId { system: System::IptablesNft, family: Family::V4, name: name.into() }
}

fn rules(stage: &mut Stage) -> Vec<String> {
    let mut tables: Vec<_> =
        stage.kernel().now.rules.tables.iter().map(|table| table.id.to_string()).collect();
    tables.sort();
    tables
}

#[test]
fn rules_are_kept_where_the_net_conf_says() {
    let store = || Memory::of(IPTABLES, Some(own_lease()), &[]);
    let mut stage = Stage::start(host_with_iptables(), store());
    assert_eq!(
        (stage.readyz(), rules(&mut stage)),
        (vec![READY.to_owned()], IN_IPTABLES.map(str::to_owned).to_vec())
    );
    // The same host without the programs: nftables serves, and that is told.
    let mut stage = Stage::start(host(), store());
    println!("{:?}", rules(&mut stage));
    assert_eq!(
        stage.notes(),
        ["EnableNFTables is false, but this host has no iptables program: nftables is used"]
    );
}

#[test]
fn a_table_that_iptables_cannot_read_is_a_reason_for_nftables_from_the_start() {
    let mut kernel = host_with_iptables();
    kernel.now.firewall.unreadable = Some(vec![table("filter")]);
    let mut stage = Stage::start(kernel, Memory::of(IPTABLES, Some(own_lease()), &[]));
    assert_eq!(rules(&mut stage), IN_NFTABLES);
    let [note] = &stage.notes()[..] else { panic!("one note") };
    assert!(note.starts_with("iptables cannot read its table ip filter, "), "{note}");
    // It is asked again after a while, and then the rules move.
    stage.kernel().now.firewall.unreadable = None;
    stage.changes();
    stage.wait(Duration::from_secs(30));
    assert_eq!(stage.changes(), [""; 0]);
    stage.wait(Duration::from_secs(30));
    assert_eq!(
        (rules(&mut stage), stage.readyz()),
        (IN_IPTABLES.map(str::to_owned).to_vec(), vec![READY.to_owned()])
    );
}

#[test]
fn rules_that_can_be_read_no_more_move_to_nftables_in_the_same_pass() {
    let mut stage = Stage::start(host_with_iptables(), Memory::of(IPTABLES, Some(own_lease()), &[]));
    stage.changes();
    stage.kernel().now.firewall.unreadable = Some(vec![table("nat")]);
    let TableId { system, family, name } = table("nat");
    let unreadable =
        Unreadable { system, family, table: Some(name), why: "another program wrote there".to_owned() };
    stage.kernel().now.rules.unreadable.push(unreadable);
    stage.wake(Wake::Observation);
    let moved = [
        "+ rules nftables ip flannel-ipv4 postrtg 6 forward 2 notrack-in 1 notrack-out 1",
        "- rules iptables raw FLANNEL-NOTRACK-IN 1 FLANNEL-NOTRACK-OUT 1",
        "- rules iptables nat FLANNEL-POSTRTG 6",
        "- rules iptables filter FLANNEL-FWD 2",
    ];
    assert_eq!(stage.changes(), moved);
    let [unseen, note] = &stage.notes()[..] else { panic!("{:?}", stage.notes()) };
    assert_eq!(
        unseen,
        "rules of IPv4 in iptables (nf_tables), table nat, cannot be looked at: another program wrote there"
    );
    assert!(note.starts_with("iptables cannot read its table ip nat, "), "{note}");
}

#[test]
fn tunnel_packets_are_tracked_while_a_rule_translates_their_port_or_the_lock_is_held() {
    let mut stage = Stage::ready();
    stage.changes();
    stage.kernel().now.firewall.translated.v4 = Some(Translated::Unknown("no memory".to_owned()));
    stage.wait(Duration::from_secs(30));
    assert_eq!(stage.changes(), [""; 0], "not asked before a while has passed");
    stage.wait(Duration::from_secs(30));
    let tracked = "IPv4 tunnel packets stay in connection tracking: no telling whether a rule translates their port: no memory";
    assert_eq!(stage.notes(), [tracked]);
    let rules = "rules nftables ip flannel-ipv4 postrtg 6 forward 2";
    assert_eq!(stage.changes(), [format!("~ {rules} notrack-in 1 notrack-out 1 -> {rules}")]);
    stage.kernel().now.firewall.translated.v4 = None;
    stage.wait(Duration::from_secs(60));
    assert_eq!(stage.readyz(), [READY]);
    let mut kernel = host_with_iptables();
    kernel.now.firewall.untrack.v4 = Some(Untrack::Locked);
    let stage = Stage::start(kernel, Memory::of(IPTABLES, Some(own_lease()), &[]));
    let locked = "another program holds the lock of iptables (/run/xtables.lock); it is tried again";
    assert_eq!(stage.notes(), [format!("IPv4 tunnel packets stay in connection tracking: {locked}")]);
}

#[test]
fn a_bridge_that_does_not_call_iptables_is_told_and_one_that_hides_it_is_not() {
    let mut stage = Stage::ready();
    plug_in(&mut stage.kernel().now, "cni0", "10.244.1.1/24", "bridge");
    for (setting, notes) in
        [(BridgeNetfilter::On, 0), (BridgeNetfilter::Off, 1), (BridgeNetfilter::Unknown, 0)]
    {
        stage.kernel().now.bridge_netfilter.v4 = Some(setting);
        stage.wake(Wake::Observation);
        assert_eq!(stage.notes().len(), notes, "{setting:?}");
    }
}

#[test]
fn without_rules_nothing_of_the_firewall_is_touched() {
    let flags = ["--iptables-forward-rules=false", "--vxlan-notrack=false"];
    let mut stage = Stage::start_with(host(), Memory::of(VXLAN, Some(own_lease()), &[]), &flags);
    assert_eq!((rules(&mut stage), stage.readyz()), (vec![], vec![READY.to_owned()]));
}
