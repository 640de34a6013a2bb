//! iptables: its programs, and its rules where they are without the programs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use flannel_kernel::firewall::iptables::*;
use flannel_kernel::firewall::nft::{Nft, Transaction};
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::found::{FoundChain, RuleName};
use flannel_plan::rules::iptables::saved;
use flannel_plan::rules::{Match, System};
use sandbox::*;

const SCRIPT: &str = r#"*nat
:CNI-7acf - [0:0]
-A POSTROUTING -s 10.0.0.1 -m comment --comment "name: \"mynet\" id: \"c0ffee\"" -j CNI-7acf
-A CNI-7acf ! -d 224.0.0.0/4 -j MASQUERADE
COMMIT
"#;

/// The chains of the table and their rules, in its words.
fn shown(iptables: &Iptables) -> Vec<(String, Vec<String>)> {
    let found = saved(System::IptablesNft, Family::V4, &iptables.save("nat").unwrap()).unwrap();
    let words = |name: &RuleName| match name {
        RuleName::Text(text) => text.to_string(),
        RuleName::Handle(handle) => handle.to_string(),
    };
    let chain = |chain: &FoundChain| {
        (chain.name.to_string(), chain.rules.iter().map(|found| words(&found.name)).collect())
    };
    found.tables.iter().flat_map(|table| &table.chains).map(chain).collect()
}

fn expected() -> Vec<(String, Vec<String>)> {
    let jump = r#"-s 10.0.0.1/32 -m comment --comment "name: \"mynet\" id: \"c0ffee\"" -j CNI-7acf"#;
    let chains = [
        ("PREROUTING", None),
        ("INPUT", None),
        ("OUTPUT", None),
        ("POSTROUTING", Some(jump)),
        ("CNI-7acf", Some("! -d 224.0.0.0/4 -j MASQUERADE")),
    ];
    chains.map(|(name, rule)| (name.to_owned(), rule.map(str::to_owned).into_iter().collect())).into()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Runs a test with the programs of both flavours.
fn with_both(test: impl Fn(Iptables) + Send + Sync) {
    in_a_node(|| {
        let iptables = Iptables::find(Family::V4).unwrap();
        assert!(iptables.is_usable());
        test(iptables);
        test(Iptables::find_of(System::IptablesLegacy, Family::V4).unwrap());
    });
}

#[test]
fn a_script_is_restored_and_saved_by_both_flavours() {
    with_both(|iptables| {
        iptables.restore(SCRIPT).unwrap();
        assert_eq!(shown(&iptables), expected());
        let rule = ["!", "-d", "224.0.0.0/4", "-j", "MASQUERADE"].map(str::to_owned);
        assert!(iptables.has_rule("nat", "CNI-7acf", &rule).unwrap());
        assert!(!iptables.has_rule("nat", "CNI-7acf", &rule[1..]).unwrap());
    });
}

#[test]
fn a_script_that_fails_says_why_and_changes_nothing() {
    with_both(|iptables| {
        let script = SCRIPT.replace("MASQUERADE", "NOWHERE");
        let error = iptables.restore(&script).unwrap_err().to_string();
        assert!(error.contains("iptables") && error.contains("-restore failed: "), "{error}");
        assert!(!iptables.save("nat").unwrap().contains("CNI-7acf"));
    });
}

#[test]
fn the_legacy_table_is_read_without_being_made() {
    in_a_node(|| {
        assert_eq!(legacy_table(Family::V4, "nat"), Ok(None));
        assert_eq!(legacy_table(Family::V4, "nat"), Ok(None));
        Iptables::find_of(System::IptablesLegacy, Family::V4).unwrap().restore(SCRIPT).unwrap();
        let table = legacy_table(Family::V4, "nat").unwrap().unwrap();
        assert!(contains(&table, "CNI-7acf\0") && contains(&table, r#"id: "c0ffee""#));
        assert!(!contains(&table, "CNI-7acff"));
        assert_eq!(legacy_table(Family::V6, "nat"), Ok(None));
        Iptables::find_of(System::IptablesLegacy, Family::V6)
            .unwrap()
            .restore("*nat\n:CNI-6 - [0:0]\nCOMMIT\n")
            .unwrap();
        assert!(contains(&legacy_table(Family::V6, "nat").unwrap().unwrap(), "CNI-6\0"));
    });
}

#[test]
fn rules_of_the_nftables_flavour_are_seen_and_deleted_without_a_program() {
    in_a_namespace(|| {
        let iptables = Iptables::find(Family::V4).unwrap();
        assert_eq!(iptables.system, System::IptablesNft);
        iptables.restore(SCRIPT).unwrap();
        let mut nft = Nft::open().unwrap();
        let table = nat(Family::V4);
        let rule = nft.rules(table, "POSTROUTING").unwrap().remove(0);
        assert_eq!(rule.rule.matches[0], Match::source(ip("10.0.0.1")));
        assert_eq!(rule.rule.target(), Some("CNI-7acf"));
        assert_eq!(rule.rule.comment.as_deref(), Some(r#"name: "mynet" id: "c0ffee""#));

        let mut transaction = Transaction::default();
        let chain = || "CNI-7acf".into();
        transaction.extend(table, [rule.deletion(), Edit::FlushChain(chain()), Edit::DeleteChain(chain())]);
        nft.commit(&transaction).unwrap();
        let empty: Vec<_> = expected().into_iter().take(4).map(|(name, _)| (name, vec![])).collect();
        assert_eq!(shown(&iptables), empty);
    });
}

#[test]
fn a_table_that_iptables_cannot_read_is_an_error_and_not_empty() {
    in_a_namespace(|| {
        let iptables = Iptables::find(Family::V4).unwrap();
        iptables.restore(SCRIPT).unwrap();
        sh("nft add rule ip nat CNI-7acf ip daddr 10.0.0.1-10.0.0.9 fib saddr type local accept");
        let error = iptables.save("nat").unwrap_err();
        assert!(matches!(error, IptablesError::Incompatible { .. }), "{error}");
    });
}
