//! Every packet of the truth table, in every mode, and with Go's flanneld.

use rule_tests::{Mode, Site, cases};
use store_tests::{Need, Program, scenarios, tell};

scenarios! {
    &[] => packets_have_the_right_source_in_iptables_mode, packets_have_the_right_source_in_nftables_mode,
        packets_have_the_right_source_with_legacy_iptables;
    &[Need::GoFlanneld] => packets_have_the_same_source_as_with_go_in_iptables_mode;
}

fn packets_have_the_right_source_in_iptables_mode() {
    all_hold(Program::Ours, Mode::Iptables);
}

fn packets_have_the_right_source_in_nftables_mode() {
    all_hold(Program::Ours, Mode::Nftables);
}

fn packets_have_the_right_source_with_legacy_iptables() {
    all_hold(Program::Ours, Mode::Legacy);
}

fn packets_have_the_same_source_as_with_go_in_iptables_mode() {
    all_hold(Program::Go, Mode::Iptables);
}

fn all_hold(program: Program, mode: Mode) {
    let site = Site::up("truth", program, mode).with_services();
    let cases = cases();
    let line = |case: &rule_tests::Case, seen: &str| format!("{case}: {seen}");
    let seen: Vec<_> = cases.iter().map(|case| line(case, &case.play(&site))).collect();
    let expected: Vec<_> = cases.iter().map(|case| line(case, &case.seen)).collect();
    let wrong: Vec<_> = seen.iter().zip(&expected).filter(|(seen, expected)| seen != expected).collect();
    assert!(wrong.is_empty(), "{} of {} packets: (seen, expected) {wrong:#?}", wrong.len(), cases.len());
    tell(format!("{} packets", cases.len()));
}
