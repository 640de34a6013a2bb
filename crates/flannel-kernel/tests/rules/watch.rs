//! Changes of others wake us and are named; our own and those that do not matter do not.

use std::time::Duration;

use flannel_kernel::firewall::rules::Rules;
use flannel_kernel::firewall::rules::watch::{RuleNotice, RuleWatch};
use flannel_plan::rules::System;
use flannel_plan::rules::observed::RuleScope;

use crate::sandbox::sh;
use crate::{in_a_node, nothing, settle, spec};

const SOON: Duration = Duration::from_secs(10);

fn by(program: &str) -> Option<RuleNotice> {
    Some(RuleNotice { by: Some(program.to_owned()) })
}

/// Reads all notices, up to one that is caused on purpose.
fn notices(watch: &mut RuleWatch) -> Vec<RuleNotice> {
    sh(
        "cp $(command -v nft) /run/last && /run/last delete table ip flannel-ipv4 || /run/last add table ip flannel-ipv4",
    );
    let mut notices = Vec::new();
    loop {
        let notice = watch.wait_at_most(SOON).unwrap().unwrap();
        if Some(&notice) == by("last").as_ref() {
            return notices;
        }
        notices.push(notice);
    }
}

#[test]
fn a_change_by_somebody_else_is_told_with_the_name_of_the_program() {
    in_a_node(|| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(System::Nftables));
        let mut watch =
            RuleWatch::open(rules.port_id().into_iter().collect(), &RuleScope::default()).unwrap();
        for harm in [
            "nft flush chain ip flannel-ipv4 postrtg",
            "nft flush ruleset",
            "nft add table ip flannel-ipv4 '{ flags dormant; }'",
        ] {
            sh(harm);
            assert_eq!(watch.wait_at_most(SOON).unwrap(), by("nft"), "{harm}");
        }
        sh("iptables-nft -t nat -A POSTROUTING -j ACCEPT");
        assert_eq!(watch.wait_at_most(SOON).unwrap(), by("iptables-nft"));
    });
}

#[test]
fn our_own_changes_and_those_of_other_tables_and_chains_are_not_told() {
    in_a_node(|| {
        sh("iptables-nft -t nat -N KUBE-SERVICES");
        let mut rules = Rules::open();
        let mut watch =
            RuleWatch::open(rules.port_id().into_iter().collect(), &RuleScope::default()).unwrap();
        settle(&mut rules, &spec(System::Nftables));
        settle(&mut rules, &nothing(System::Nftables));
        sh("nft add table inet theirs
            nft add chain inet theirs forward '{ type filter hook forward priority 0; }'
            nft add rule inet theirs forward accept
            iptables-nft -t nat -A KUBE-SERVICES -j RETURN
            iptables-nft -t nat -N KUBE-X");
        assert_eq!(notices(&mut watch), []);
    });
}
