//! Rules as objects among others: looked at and changed by the kernel that has everything else, too.

use flannel_kernel::{Kernel, Linux};
use flannel_plan::diff::{Change, diff};
use flannel_plan::mark::ALIAS_PREFIX;
use flannel_plan::observation::{Observation, Scope};
use flannel_plan::ownership::observed;
use flannel_plan::rules::System;
use flannel_plan::rules::spec::{Spec, desired};
use flannel_plan::state::{Item, State};

use crate::{in_a_node, in_every_system, listing, nothing, scope, spec};

fn scope_of(spec: &Spec) -> Scope {
    let rules = scope(spec);
    let instance = format!("{ALIAS_PREFIX}{}", rules.instance);
    Scope { instance, networks: rules.networks, system: Some(spec.system), ..Scope::default() }
}

fn state_of(spec: &Spec) -> State {
    desired(spec).into_iter().map(|table| Item::Rules(Box::new(table))).collect()
}

/// What would have to change; everything else of the namespace is somebody else's.
fn due(linux: &mut Linux, spec: &Spec) -> Vec<Change> {
    let observation = linux.observe(&scope_of(spec)).unwrap();
    let ours =
        observed(&scope_of(spec), &Observation { rules: observation.rules, ..Observation::default() }).ours;
    diff(&state_of(spec), &ours)
}

fn settle(linux: &mut Linux, spec: &Spec) -> usize {
    let changes = due(linux, spec);
    assert_eq!(linux.apply(&changes), []);
    assert_eq!(due(linux, spec), []);
    changes.len()
}

#[test]
fn rules_are_made_found_in_place_and_removed_as_objects() {
    in_every_system(|system| {
        let mut linux = Linux::open().unwrap();
        let tables = if system == System::Nftables { 2 } else { 6 };
        assert_eq!(settle(&mut linux, &spec(system)), tables);
        let made = listing(system);
        assert_eq!(settle(&mut Linux::open().unwrap(), &spec(system)), 0);
        assert_eq!(settle(&mut linux, &nothing(system)), tables);
        assert_eq!(settle(&mut linux, &spec(system)), tables);
        if system != System::Nftables {
            assert_eq!(listing(system), made);
        }
    });
}

#[test]
fn a_move_from_system_to_system_is_creates_then_removals() {
    in_a_node(|| {
        let mut linux = Linux::open().unwrap();
        settle(&mut linux, &spec(System::IptablesNft));
        let changes = due(&mut linux, &spec(System::Nftables));
        let verbs: Vec<&str> = changes.iter().map(Change::verb).collect();
        let removals = ["remove"; 6];
        assert_eq!(verbs, [&["create"; 2][..], &removals[..]].concat());
        assert_eq!(linux.apply(&changes), []);
        assert_eq!(due(&mut linux, &spec(System::Nftables)), []);
    });
}

#[test]
fn without_a_system_no_rules_are_looked_at() {
    in_a_node(|| {
        let mut linux = Linux::open().unwrap();
        settle(&mut linux, &spec(System::Nftables));
        let scope = Scope { system: None, ..scope_of(&spec(System::Nftables)) };
        assert_eq!(linux.observe(&scope).unwrap().rules.tables, []);
    });
}
