//! What of the rules that were found is ours.
//!
//! Chains may be shared: another flanneld of this host has its rules there, and anybody may have put theirs. In
//! nftables every rule of ours carries the name of the instance. iptables has no place for that, and Go flannel
//! marks nothing, so there a rule belongs to whoever has the pod network that it names.

use ipnet::IpNet;

use super::found::{FoundChain, FoundRule, FoundTable};
use super::role::Role;
use super::spec::{hash, non_masquerade_set, untracked_comment};
use super::{Action, ChainName, Fault, Is, Match, Rule, RuleChain, RuleTable, System, multicast};
use crate::family::Family;
use crate::mark::read_networks;

/// Longer names do not fit beside a rule.
const LONGEST_TAG: usize = 100;

/// Whose rules are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleScope {
    /// What tells instances on one host apart: the pod networks.
    pub instance: Box<str>,
    /// What version 0.1 may have called this one: the path of the subnet file.
    pub former: Vec<Box<str>>,
    /// The pod networks of this instance, now and before.
    pub networks: Vec<IpNet>,
    /// The chain of ip-masq-agent, where it is the one who asks, and none of all this matters.
    pub masq_agent: Option<ChainName>,
}

impl RuleScope {
    /// What the chains are for that are looked for.
    pub fn roles(&self) -> Vec<Role> {
        self.masq_agent.map_or_else(|| Role::ALL.to_vec(), |chain| vec![Role::MasqAgent(chain)])
    }

    /// The name of the set of networks to which packets keep their source.
    pub(super) fn set(&self) -> Box<str> {
        self.masq_agent.map_or_else(|| non_masquerade_set(&self.instance), |chain| chain.as_str().into())
    }

    /// Whether a tag says pod networks, of which one is ours.
    fn has_served(&self, tag: &str) -> bool {
        let networks = read_networks(tag).unwrap_or_default();
        networks.iter().any(|net| self.networks.contains(net))
    }

    fn is_untracked_comment(&self, comment: &str) -> bool {
        comment == &*untracked_comment(&self.instance)
            || self.former.iter().any(|former| comment == &*untracked_comment(former))
            || comment.rsplit_once(' ').is_some_and(|(_, tag)| self.has_served(tag))
    }
}

/// The name of an instance as rules carry it.
pub fn tag(instance: &str) -> Box<str> {
    if instance.len() <= LONGEST_TAG {
        return instance.into();
    }
    let end = instance.floor_char_boundary(LONGEST_TAG - 17);
    format!("{}#{:016x}", &instance[..end], hash(instance)).into()
}

/// What is ours in the tables that were found, sorted; a table without anything of ours is left out.
pub fn observed(scope: &RuleScope, found: &[FoundTable]) -> Vec<RuleTable> {
    let mut tables: Vec<_> = found.iter().filter_map(|table| observed_table(scope, table)).collect();
    tables.sort_by(|a, b| a.id.cmp(&b.id));
    tables
}

/// What is ours in one table.
pub fn observed_table(scope: &RuleScope, table: &FoundTable) -> Option<RuleTable> {
    let sets = table.sets.iter().filter(|set| is_own_set(scope, table, &set.name)).cloned().collect();
    let mut ours = RuleTable { id: table.id.clone(), chains: vec![], sets, faults: vec![] };
    for view in View::all(scope, table).filter(View::is_there) {
        ours.chains.push(RuleChain { role: view.role, rules: view.own_rules() });
        ours.faults.extend(view.faults());
    }
    if table.other_sets.contains(&scope.set()) {
        ours.faults.push(Fault::OtherSet(scope.set()));
    }
    let empty = table.id.system == System::Nftables && table.is_bare();
    if ours.chains.is_empty() && ours.sets.is_empty() && ours.faults.is_empty() && !empty {
        return None;
    }
    if table.dormant {
        ours.faults.push(Fault::Dormant);
    }
    Some(ours)
}

/// Whether a set is of this instance: that of its name, and those that only its rules use.
pub(super) fn is_own_set(scope: &RuleScope, table: &FoundTable, name: &str) -> bool {
    let users: Vec<Whose> = View::all(scope, table).flat_map(|view| view.users(name)).collect();
    *name == *scope.set() || !users.is_empty() && users.iter().all(|whose| *whose == Whose::Mine)
}

/// Whether a rule looks a set up.
pub(super) fn uses(rule: &Rule, set: &str) -> bool {
    rule.matches.iter().any(|it| matches!(it, Match::Set(_, _, used) if **used == *set))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This instance's, or Go flannel's for the same network.
    Mine,
    /// Of every flannel that has rules in the chain: it names no network.
    Common,
    /// Another flannel's.
    Others,
    /// Somebody else's.
    Foreign,
}

/// One chain of ours, with what leads to it.
pub(super) struct View<'a> {
    pub(super) role: Role,
    pub(super) system: System,
    pub(super) chain: Option<&'a FoundChain>,
    /// The chain of iptables itself that leads to ours.
    pub(super) base: Option<&'a FoundChain>,
    pub(super) owners: Vec<Whose>,
    /// The places of our jumps in the chain that leads to ours.
    pub(super) jumps: Vec<usize>,
    /// The places of rules of an old flannel, which had no chain of its own.
    pub(super) old: Vec<usize>,
    /// Whether somebody else sends packets to our chain.
    pub(super) lent: bool,
}

impl<'a> View<'a> {
    /// The chains that a table may have of ours.
    pub(super) fn all(scope: &'a RuleScope, table: &'a FoundTable) -> impl Iterator<Item = Self> + 'a {
        let id = &table.id;
        let here = move |role: &Role| role.table(id.system, id.family) == &*id.name;
        scope.roles().into_iter().filter(here).map(move |role| Self::of(scope, table, role))
    }

    fn of(scope: &RuleScope, table: &'a FoundTable, role: Role) -> Self {
        let system = table.id.system;
        let (name, jump) = (role.chain(system), role.jump(system));
        let chain = table.chain(name);
        let rules = chain.map(|chain| &chain.rules[..]).unwrap_or_default();
        let owner = |found: &FoundRule| match role.owns_its_chain() {
            true => Whose::Mine,
            false => whose(scope, system, role, found),
        };
        let owners = rules.iter().map(owner).collect();
        let base = table.chain(role.base_chain()).filter(|chain| is_base_chain(system, role, chain));
        let mut view = Self { role, system, chain, base, owners, jumps: vec![], old: vec![], lent: false };
        // A rule in the chain itself holds nothing: it goes with the chain.
        let others = table.rules().filter(|(chain, _)| &*chain.name != name);
        for (chain, found) in others.filter(|(_, found)| found.rule.target() == Some(name)) {
            view.lent |= !(is_base_chain(system, role, chain) && found.rule == jump);
        }
        for (at, found) in base.iter().flat_map(|chain| chain.rules.iter().enumerate()) {
            if found.rule == jump {
                view.jumps.push(at);
            } else if !role.owns_its_chain()
                && found.rule.target().is_none()
                && whose(scope, system, role, found) == Whose::Mine
            {
                view.old.push(at);
            }
        }
        view
    }

    pub(super) fn name(&self) -> &str {
        self.role.chain(self.system)
    }

    /// Whether anything of ours is there: rules, or a chain that nobody fills or uses.
    pub(super) fn is_there(&self) -> bool {
        let empty = self.chain.is_some_and(|chain| chain.rules.is_empty());
        empty && (!self.lent || self.role.owns_its_chain() && !self.jumps.is_empty())
            || !self.own().is_empty()
            || !self.old.is_empty()
    }

    /// The owners of the rules that look a set up.
    fn users(&self, set: &str) -> Vec<Whose> {
        let rules = self.chain.iter().flat_map(|chain| &chain.rules).zip(&self.owners);
        rules.filter(|(found, _)| uses(&found.rule, set)).map(|(_, whose)| *whose).collect()
    }

    /// The places of rules that are ours, or that nobody else needs.
    pub(super) fn own(&self) -> Vec<usize> {
        let with_common = match self.system {
            System::Nftables => !self.is_common_needed(),
            _ => !self.is_common_needed() || self.owners.contains(&Whose::Mine),
        };
        self.places(|whose| whose == Whose::Mine || with_common && whose == Whose::Common)
    }

    /// The places of rules of some owners.
    pub(super) fn places(&self, of: impl Fn(Whose) -> bool) -> Vec<usize> {
        (0..self.owners.len()).filter(|at| of(self.owners[*at])).collect()
    }

    /// Whether another flannel has rules here that need the common ones; those with a tag have their own.
    pub(super) fn is_common_needed(&self) -> bool {
        let rules = self.chain.iter().flat_map(|chain| &chain.rules);
        rules.zip(&self.owners).any(|(found, whose)| *whose == Whose::Others && found.rule.tag.is_none())
    }

    pub(super) fn own_rules(&self) -> Vec<Rule> {
        let Some(chain) = self.chain else { return vec![] };
        // Whose a rule is was told by its tag; what it says is compared without.
        self.own().into_iter().map(|at| Rule { tag: None, ..chain.rules[at].rule.clone() }).collect()
    }

    /// What is wrong with it beyond its rules.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let role = self.role;
        let mut faults = Vec::new();
        if let Some(chain) = self.chain {
            faults.extend(self.faults_of_order(chain));
            match self.system {
                System::Nftables => faults.extend(faults_of_base(role, chain)),
                _ if self.jumps.is_empty() => faults.push(Fault::NoJump(role)),
                _ if self.jumps.len() > 1 => faults.push(Fault::ManyJumps(role, self.jumps.len())),
                _ => {}
            }
        }
        if !self.old.is_empty() {
            faults.push(Fault::OldRules(role, self.old.len()));
        }
        faults
    }

    /// Ours stand together, and before those of strangers, which would decide first.
    fn faults_of_order(&self, chain: &FoundChain) -> Option<Fault> {
        let mine = self.places(|whose| whose == Whose::Mine);
        let (first, last) = (*mine.first()?, *mine.last()?);
        let foreign = self.owners[..first].iter().position(|whose| *whose == Whose::Foreign);
        if let Some(at) = foreign {
            return Some(Fault::ForeignFirst(self.role, chain.rules[at].rule.clone()));
        }
        (last - first + 1 != mine.len()).then_some(Fault::Scattered(self.role))
    }
}

fn faults_of_base(role: Role, chain: &FoundChain) -> Option<Fault> {
    let want = role.base();
    match chain.base {
        Some(base) if base == want => None,
        Some(base) if (base.kind, base.hook, base.priority) == (want.kind, want.hook, want.priority) => {
            Some(Fault::WrongPolicy(role))
        }
        _ => Some(Fault::WrongHook(role)),
    }
}

/// Whether a chain is the one of iptables itself that leads to ours.
fn is_base_chain(system: System, role: Role, chain: &FoundChain) -> bool {
    system != System::Nftables && &*chain.name == role.base_chain()
}

/// Whose a rule in a chain of ours is.
fn whose(scope: &RuleScope, system: System, role: Role, found: &FoundRule) -> Whose {
    match (system, &found.rule.tag) {
        (System::Nftables, Some(tagged)) if *tagged == tag(&scope.instance) => Whose::Mine,
        (System::Nftables, Some(tagged)) if scope.has_served(tagged) => Whose::Mine,
        (System::Nftables, Some(tagged)) if scope.former.iter().any(|former| *tagged == tag(former)) => {
            whose_by_network(scope, &found.rule)
        }
        (System::Nftables, Some(_)) => Whose::Others,
        (System::Nftables, None) => whose_by_shape(scope, role, &found.rule),
        _ => whose_by_comment(scope, role, &found.rule),
    }
}

/// Two daemons of version 0.1 may have had the same path: a rule belongs to whoever has its pod network.
fn whose_by_network(scope: &RuleScope, rule: &Rule) -> Whose {
    let mut networks = rule.networks().peekable();
    let is_mine = networks.peek().is_none() || networks.any(|net| scope.networks.contains(&net));
    if is_mine { Whose::Mine } else { Whose::Others }
}

fn whose_by_comment(scope: &RuleScope, role: Role, rule: &Rule) -> Whose {
    let Some(comment) = rule.comment.as_deref() else { return Whose::Foreign };
    match role {
        Role::Masquerade | Role::Forward if comment == role.comment_of_rules() => {
            let mine = rule.networks().any(|net| scope.networks.contains(&net));
            match rule.networks().next() {
                None => Whose::Common,
                Some(_) if mine => Whose::Mine,
                Some(_) => Whose::Others,
            }
        }
        Role::UntrackedIn | Role::UntrackedOut if scope.is_untracked_comment(comment) => Whose::Mine,
        Role::UntrackedIn | Role::UntrackedOut if comment.starts_with(role.comment_of_rules()) => {
            Whose::Others
        }
        _ => Whose::Foreign,
    }
}

/// Go flannel leaves no mark in nftables: its rules are known by their shape.
fn whose_by_shape(scope: &RuleScope, role: Role, rule: &Rule) -> Whose {
    let shaped = match (role, &rule.sorted()[..], &rule.action) {
        (Role::Masquerade, [Match::Mark { is: Is::Equal, .. }], Action::Return) => return Whose::Common,
        (Role::Masquerade, [Match::Source(..), Match::Destination(..)], _) => shape_of_masquerade(rule),
        (
            Role::Forward,
            [Match::Source(Is::Equal, net) | Match::Destination(Is::Equal, net)],
            Action::Accept,
        ) => Some(*net),
        _ => None,
    };
    match shaped {
        Some(net) if scope.networks.contains(&net) => Whose::Mine,
        Some(_) => Whose::Others,
        None => Whose::Foreign,
    }
}

/// The pod network of a rule such as Go flannel makes.
fn shape_of_masquerade(rule: &Rule) -> Option<IpNet> {
    let [Match::Source(from_is, from), Match::Destination(to_is, to)] = rule.sorted()[..] else {
        return None;
    };
    match (&rule.action, from_is, to_is) {
        (Action::Return, _, Is::Equal) if from.contains(to) => Some(*from),
        (Action::Return, _, Is::Equal) if to.contains(from) => Some(*to),
        (Action::Masquerade(..), Is::Equal, Is::Different) => {
            (*to == multicast(Family::of_net(*to))).then_some(*from)
        }
        (Action::Masquerade(..), Is::Different, Is::Equal) => (from == to).then_some(*from),
        _ => None,
    }
}
