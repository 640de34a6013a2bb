//! Every packet of the truth table, in every mode, and with Go's flanneld.

use cluster_tests::flanneld_path;
use rule_tests::{Case, Mode, Site, cases};
use serde_json::Value;
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
    let line = |case: &Case, seen: &str| format!("{case}: {seen}");
    let seen: Vec<_> = cases.iter().map(|case| line(case, &case.play(&site))).collect();
    let expected: Vec<_> = cases.iter().map(|case| line(case, &case.seen)).collect();
    let wrong: Vec<_> = seen.iter().zip(&expected).filter(|(seen, expected)| seen != expected).collect();
    assert!(wrong.is_empty(), "{} of {} packets: (seen, expected) {wrong:#?}", wrong.len(), cases.len());
    let explained = explained(&site, &cases);
    tell(format!("{} packets, of which {explained} are explained", cases.len()));
}

/// Has `flannelctl explain snat` foretell what the packets that node one decides about showed.
fn explained(site: &Site, cases: &[Case]) -> usize {
    let decided_by_one = |case: &&Case| {
        let known = case.source.is_some() || !matches!(&*case.from, "one" | "two");
        let sent_by_one = case.from.starts_with("one") || ["one.a", "two.a"].contains(&&*case.to);
        let translated = case.to.starts_with("vip.") || case.port >= 30000;
        known && sent_by_one && case.from != "two.a" && case.from != "two" && !translated
    };
    let asked: Vec<_> = cases.iter().filter(decided_by_one).collect();
    let told: Vec<_> = asked.iter().map(|case| (case.to_string(), foretold(site, case))).collect();
    let fate = |case: &Case| if case.seen == case.sender() { "kept" } else { "masqueraded" };
    let seen: Vec<_> = asked.iter().map(|case| (case.to_string(), fate(case).to_owned())).collect();
    assert_eq!(told, seen);
    asked.len()
}

fn foretold(site: &Site, case: &Case) -> String {
    let address = |name: &str| site.address(name, case.family).to_string();
    let mark = case.mark().to_string();
    let words =
        ["explain", "snat", &address(case.sender()), &address(&case.to), "--mark", &mark, "-o", "json"];
    let flannelctl = flanneld_path().with_file_name("flannelctl").display().to_string();
    let answer: Value = serde_json::from_str(&site.node("one").run(&flannelctl, words).unwrap()).unwrap();
    answer["fate"].as_str().unwrap().to_owned()
}
