//! Laws: whatever a table holds, the difference makes it right, once, and touches nothing of others.

use flannel_plan::family::Family;
use flannel_plan::rules::edit::{applied, edits};
use flannel_plan::rules::found::{FoundChain, FoundRule, FoundTable, RuleName};
use flannel_plan::rules::iptables::{rule, text};
use flannel_plan::rules::observed::{observed_table, tag};
use flannel_plan::rules::role::Role;
use flannel_plan::rules::spec::{Spec, Tunnel, desired};
use flannel_plan::rules::{Action, Rule, System, TableId};
use proptest::prelude::*;

use crate::{SYSTEMS, net, other_wish, scope, spec};

/// Who wrote a rule; it is not ours to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    We,
    Go,
    OtherDaemon,
    Stranger,
}

fn with_comment(system: System, role: Role, rule: Rule) -> Rule {
    if system.is_iptables() { rule.comment(role.comment_of_rules()) } else { rule }
}

/// Rules that may stand in a chain, whoever put them there.
fn pool(system: System, role: Role) -> Vec<(Author, Rule)> {
    let of = |spec: &Spec| {
        let tables = desired(spec);
        let chains =
            tables.into_iter().filter(|table| table.id.family == Family::V4).flat_map(|table| table.chains);
        chains.filter(|chain| chain.role == role).flat_map(|chain| chain.rules).collect::<Vec<_>>()
    };
    let mut pool: Vec<(Author, Rule)> =
        of(&spec(system)).into_iter().map(|rule| (Author::We, rule)).collect();
    pool.extend(of(&other_wish(system)).into_iter().map(|rule| (Author::OtherDaemon, rule)));
    let mut moved = spec(system);
    moved.networks.v4.as_mut().unwrap().node = net("10.244.200.0/24");
    moved.untracked.v4 = Some(Tunnel { port: 4789, vni: 4096 });
    pool.extend(of(&moved).into_iter().map(|rule| (Author::We, rule)));
    let go = ["-m mark --mark 0x4000 -j RETURN", "! -s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN"];
    if role == Role::Masquerade {
        pool.extend(go.map(|text| (Author::Go, with_comment(system, role, rule(text)))));
    }
    let strangers =
        ["-s 10.244.1.7/32 -j ACCEPT", "-j RETURN", "-p tcp -m multiport --dports 1,2 -j X", "-j LOG"];
    pool.extend(strangers.map(|text| (Author::Stranger, rule(text))));
    pool
}

fn found(system: System, author: Author, rule: Rule, handle: usize) -> FoundRule {
    if system.is_iptables() {
        let name = RuleName::Text(text(&rule).into());
        return FoundRule { rule, name };
    }
    let tag = match author {
        Author::We => Some(tag(&spec(system).instance)),
        Author::OtherDaemon => Some(tag(&other_wish(system).instance)),
        Author::Go | Author::Stranger => None,
    };
    FoundRule { rule: Rule { tag, ..rule }, name: RuleName::Handle(u64::try_from(handle).unwrap() + 1) }
}

/// What may stand in the chain that leads to ours: jumps, rules of an old flannel, and rules of others.
fn entrance_pool(system: System, role: Role) -> Vec<Rule> {
    let mut pool = vec![role.jump(system); 3];
    pool.extend(
        ["-s 10.244.0.0/16 -j ACCEPT", "-s 10.99.0.0/16 -j ACCEPT"]
            .map(|text| with_comment(system, role, rule(text))),
    );
    pool.push(Rule::new([], Action::Jump(role.chain(system).into())));
    pool.extend(["-j KUBE", "-s 10.244.0.0/16 -j RETURN"].map(rule));
    pool
}

fn any_table(system: System) -> impl Strategy<Value = FoundTable> {
    let roles = match system {
        System::Nftables => Role::ALL.to_vec(),
        _ => vec![Role::Masquerade],
    };
    let chains: Vec<_> = roles.into_iter().map(move |role| any_chain(system, role)).collect();
    let strangers =
        prop::collection::vec(Just(FoundChain { name: "theirs".into(), base: None, rules: vec![] }), 0..2);
    (chains, strangers, any::<bool>()).prop_map(move |(chains, strangers, dormant)| {
        let name = Role::Masquerade.table(system, Family::V4).into();
        let id = TableId { system, family: Family::V4, name };
        let chains = chains.into_iter().flatten().chain(strangers).collect();
        let dormant = dormant && system == System::Nftables;
        FoundTable { dormant, chains, ..FoundTable::empty(id) }
    })
}

fn any_chain(system: System, role: Role) -> impl Strategy<Value = Vec<FoundChain>> {
    let own = prop::collection::vec(prop::sample::select(pool(system, role)), 0..14);
    let base_chain = prop::collection::vec(prop::sample::select(entrance_pool(system, role)), 0..5);
    let base = prop::sample::select(vec![Some(role.base()), Some(role.base()), None]);
    (prop::option::of(own), base_chain, base).prop_map(move |(own, base_chain, base)| {
        let mut chains = Vec::new();
        let is_there = own.is_some();
        if let Some(own) = own {
            let rules: Vec<_> = own
                .into_iter()
                .enumerate()
                .map(|(at, (author, rule))| found(system, author, rule, at))
                .collect();
            // A chain of a wrong kind that holds rules of others is for the kernel to refuse.
            let base = if system == System::Nftables {
                Some(base.filter(|_| rules.is_empty()).unwrap_or(role.base()))
            } else {
                None
            };
            chains.push(FoundChain { name: role.chain(system).into(), base, rules });
        }
        if system.is_iptables() {
            let possible =
                base_chain.into_iter().filter(|rule| is_there || rule.target() != Some(role.chain(system)));
            let rules = possible.map(|rule| found(system, Author::Stranger, rule, 0)).collect();
            chains.push(FoundChain { name: role.base_chain().into(), base: None, rules });
        }
        chains
    })
}

/// The rules of others, chain by chain: what an edit must leave in place and order.
fn of_others(table: &FoundTable) -> Vec<(Box<str>, Vec<Rule>)> {
    let mine = scope(&spec(table.id.system));
    let is_ours = |chain: &FoundChain, found: &FoundRule| {
        let jump = Role::ALL.iter().any(|role| found.rule == role.jump(table.id.system));
        let tagged = found.rule.tag.as_deref() == Some(&tag(&mine.instance));
        let old =
            found.rule.comment.is_some() && found.rule.networks().any(|net| mine.networks.contains(&net));
        let by_go = !table.id.system.is_iptables()
            && found.rule.tag.is_none()
            && found.rule.networks().any(|net| mine.networks.contains(&net));
        let common = found.rule.networks().next().is_none()
            && found.rule.tag.is_none()
            && found.rule.sorted().len() == 1
            && format!("{:?}", found.rule.sorted()).contains("Mark");
        let notrack = found.rule.comment.as_deref().is_some_and(|comment| comment.ends_with("subnet.env"));
        jump || tagged || old || common || notrack || (by_go && chain.name.contains("postrtg"))
    };
    let chains = table.chains.iter().map(|chain| {
        let rules = chain.rules.iter().filter(|found| !is_ours(chain, found)).map(|found| found.rule.clone());
        (chain.name.clone(), rules.collect::<Vec<_>>())
    });
    chains.filter(|(_, rules)| !rules.is_empty()).collect()
}

fn wanted(table: &FoundTable) -> Option<flannel_plan::rules::RuleTable> {
    desired(&spec(table.id.system)).into_iter().find(|want| want.id == table.id)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_difference_makes_any_table_right_and_leaves_others_alone(
        table in prop::sample::select(SYSTEMS.to_vec()).prop_flat_map(any_table)
    ) {
        let scope = scope(&spec(table.id.system));
        let want = wanted(&table);
        let steps = edits(&scope, want.as_ref(), Some(&table));
        let after = applied(Some(&table), &table.id, &steps).unwrap();
        prop_assert_eq!(observed_table(&scope, &after), want.clone());
        prop_assert_eq!(edits(&scope, want.as_ref(), Some(&after)), vec![]);
        prop_assert_eq!(of_others(&after), of_others(&table));
    }

    #[test]
    fn the_difference_to_nothing_removes_what_is_ours_and_leaves_others_alone(
        table in prop::sample::select(SYSTEMS.to_vec()).prop_flat_map(any_table)
    ) {
        let scope = scope(&spec(table.id.system));
        let steps = edits(&scope, None, Some(&table));
        let after = applied(Some(&table), &table.id, &steps);
        prop_assert_eq!(after.as_ref().and_then(|after| observed_table(&scope, after)), None);
        prop_assert_eq!(edits(&scope, None, after.as_ref()), vec![]);
        let left = after.as_ref().map(of_others).unwrap_or_default();
        prop_assert_eq!(left, of_others(&table));
    }

    #[test]
    fn an_observed_table_is_the_desired_one_exactly_if_there_is_nothing_to_do(
        table in prop::sample::select(SYSTEMS.to_vec()).prop_flat_map(any_table)
    ) {
        let scope = scope(&spec(table.id.system));
        for want in [wanted(&table), None] {
            let settled = observed_table(&scope, &table) == want;
            prop_assert_eq!(settled, edits(&scope, want.as_ref(), Some(&table)).is_empty());
        }
    }

    #[test]
    fn two_daemons_never_fight(table in prop::sample::select(SYSTEMS.to_vec()).prop_flat_map(any_table)) {
        let system = table.id.system;
        let mut now = table;
        for spec in [spec(system), other_wish(system), spec(system), other_wish(system)] {
            let want = desired(&spec).into_iter().find(|want| want.id == now.id);
            let steps = edits(&scope(&spec), want.as_ref(), Some(&now));
            now = applied(Some(&now), &now.id, &steps).unwrap();
        }
        for spec in [spec(system), other_wish(system)] {
            let want = desired(&spec).into_iter().find(|want| want.id == now.id);
            prop_assert_eq!(edits(&scope(&spec), want.as_ref(), Some(&now)), vec![]);
        }
    }

    #[test]
    fn a_rule_survives_being_written_and_read(at in 0_usize..1000, role in prop::sample::select(Role::ALL.to_vec())) {
        let pool = pool(System::IptablesNft, role);
        let (_, written) = &pool[at % pool.len()];
        prop_assert_eq!(&rule(&text(written)), written);
    }

    #[test]
    fn no_line_makes_the_reader_stumble(line in "[-!\"\\\\a-z0-9./ ]{0,60}") {
        let read = rule(&line);
        prop_assert_eq!(rule(&text(&read)).sorted().len() <= read.sorted().len() + 1, true);
    }
}
