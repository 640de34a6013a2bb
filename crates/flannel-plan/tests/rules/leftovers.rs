//! What other modes, other daemons and Go flannel leave behind.

use flannel_plan::diff::Change;
use flannel_plan::family::Family;
use flannel_plan::rules::edit::edits;
use flannel_plan::rules::found::{FoundTable, RuleObservation};
use flannel_plan::rules::iptables::{saved, script};
use flannel_plan::rules::observed::observed;
use flannel_plan::rules::spec::desired;
use flannel_plan::rules::{System, changes};

use crate::{SYSTEMS, other_wish, scope, settle, spec};

fn observation(found: &[FoundTable]) -> RuleObservation {
    RuleObservation { tables: found.to_vec(), unreadable: vec![] }
}

fn read(output: &str) -> Vec<FoundTable> {
    saved(System::IptablesNft, Family::V4, output).unwrap().tables
}

#[test]
fn a_switch_between_systems_makes_the_new_rules_before_it_removes_the_old() {
    for (old, new) in [(System::IptablesNft, System::Nftables), (System::Nftables, System::IptablesLegacy)] {
        let found = settle(&spec(old), &[]);
        let changes = changes(&scope(&spec(old)), &desired(&spec(new)), &observation(&found));
        let made = changes.iter().take_while(|change| !matches!(change, Change::Remove(_))).count();
        assert_eq!(made, desired(&spec(new)).len());
        assert!(changes[made..].iter().all(|change| matches!(change, Change::Remove(_))));
        let after = settle(&spec(new), &found);
        assert_eq!(observed(&scope(&spec(new)), &after), desired(&spec(new)));
        assert!(after.iter().filter(|table| table.id.system == old).all(|table| {
            table.chains.iter().all(|chain| chain.rules.is_empty() && !chain.name.starts_with("FLANNEL"))
        }));
    }
}

#[test]
fn the_empty_chain_and_the_jump_that_go_leaves_are_removed() {
    let output = "*nat\n:POSTROUTING ACCEPT [0:0]\n:FLANNEL-POSTRTG - [0:0]\n\
                  -A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\nCOMMIT\n";
    let found = read(output).remove(0);
    let expected = "*nat\n-D POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\n\
                    -X FLANNEL-POSTRTG\nCOMMIT\n";
    assert_eq!(script(&found.id.name, &edits(&scope(&spec(System::Nftables)), None, Some(&found))), expected);
}

#[test]
fn a_chain_that_somebody_else_uses_stays() {
    let output = "*nat\n:POSTROUTING ACCEPT [0:0]\n:FLANNEL-POSTRTG - [0:0]\n:MINE - [0:0]\n\
                  -A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG\n\
                  -A MINE -j FLANNEL-POSTRTG\n\
                  -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN\n\
                  COMMIT\n";
    let found = read(output).remove(0);
    let expected = "*nat\n-D FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" \
                    -j RETURN\nCOMMIT\n";
    assert_eq!(script(&found.id.name, &edits(&scope(&spec(System::Nftables)), None, Some(&found))), expected);
}

#[test]
fn two_daemons_share_chains_and_neither_undoes_the_other() {
    for system in SYSTEMS {
        let (first, second) = (spec(system), other_wish(system));
        let shared = settle(&second, &settle(&first, &[]));
        assert_eq!(observed(&scope(&first), &shared), desired(&first), "{system}");
        assert_eq!(observed(&scope(&second), &shared), desired(&second), "{system}");
        assert_eq!(settle(&first, &shared), shared);

        let mut off = first.clone();
        (off.forward, off.masquerade, off.untracked) = (false, Default::default(), Default::default());
        let alone = settle(&off, &shared);
        assert_eq!(observed(&scope(&first), &alone), []);
        assert_eq!(observed(&scope(&second), &alone), desired(&second), "{system}");
    }
}

#[test]
fn rules_of_a_network_that_was_served_before_go_with_it() {
    for system in SYSTEMS {
        let old = other_wish(system);
        let found = settle(&old, &[]);
        let mut now = spec(system);
        now.instance = old.instance.clone();
        now.networks.v6 = None;
        let mut scope = scope(&now);
        scope.networks.push(old.networks.v4.unwrap().cluster);
        assert!(!changes(&scope, &desired(&now), &observation(&found)).is_empty());
        let after: Vec<_> = desired(&now)
            .iter()
            .map(|want| {
                let have = found.iter().find(|table| table.id == want.id);
                flannel_plan::rules::edit::applied(have, &want.id, &edits(&scope, Some(want), have)).unwrap()
            })
            .collect();
        assert_eq!(observed(&scope, &after), desired(&now));
        let text = format!("{after:?}");
        assert!(!text.contains("10.99."), "{system}: {text}");
    }
}

#[test]
fn features_that_are_switched_off_leave_nothing_behind() {
    for system in SYSTEMS {
        let found = settle(&spec(system), &[]);
        let mut off = spec(system);
        (off.forward, off.masquerade, off.untracked) = (false, Default::default(), Default::default());
        let after = settle(&off, &found);
        assert!(after.iter().all(|table| table.rules().next().is_none()));
        assert!(system != System::Nftables || after.is_empty());
    }
}
