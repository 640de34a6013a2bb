//! Which rules there should be, from what the operator chose: the same meaning in every system.
//!
//! The order and the meaning are Go flannel's in iptables mode. Its nftables mode differs in two rules, which
//! gives other source addresses; ours does not.

use ipnet::IpNet;

use super::observed::tag;
use super::role::Role;
use super::{
    Action, Is, Match, Rule, RuleChain, RuleSet, RuleTable, Side, SourcePorts, System, TableId, UDP,
    multicast,
};
use crate::family::{ByFamily, Family};

/// The bit by which kube-proxy marks packets that it masquerades itself.
const KUBE_PROXY: u32 = 0x4000;

/// All that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub system: System,
    /// What tells instances on one host apart: the subnet file.
    pub instance: Box<str>,
    pub networks: ByFamily<PodNet>,
    /// Whether packets that leave the pod network get the node's address, and how; by family, as support is.
    pub masquerade: ByFamily<SourcePorts>,
    /// Where pods keep their address although it is not in the pod network.
    pub non_masquerade_cidrs: Vec<IpNet>,
    /// Whether packets of the pod network are let through.
    pub forward: bool,
    /// The tunnel, by the family below it, where its packets are not to be tracked.
    pub untracked: ByFamily<Tunnel>,
}

/// A tunnel whose packets are our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub port: u16,
    /// The number of the network in every packet.
    pub vni: u32,
}

/// The pod network of one family as one node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodNet {
    /// The addresses of all pods of the cluster.
    pub cluster: IpNet,
    /// The addresses of this node's pods.
    pub node: IpNet,
}

/// The tables with our rules, sorted.
pub fn desired(spec: &Spec) -> Vec<RuleTable> {
    let mut tables: Vec<RuleTable> = Vec::new();
    for (family, role) in Family::BOTH.into_iter().flat_map(|family| Role::ALL.map(|role| (family, role))) {
        let rules = spec.rules(family, role);
        if rules.is_empty() {
            continue;
        }
        let id = TableId { system: spec.system, family, name: role.table(spec.system, family).into() };
        let chain = RuleChain { role, rules };
        match tables.iter_mut().find(|table| table.id == id) {
            Some(table) => table.chains.push(chain),
            None => tables.push(RuleTable { id, chains: vec![chain], sets: vec![], faults: vec![] }),
        }
    }
    for table in tables.iter_mut().filter(|table| spec.uses_a_set(table.id.family)) {
        let networks = spec.non_masquerade_cidrs_of(table.id.family);
        table.sets = vec![RuleSet { name: non_masquerade_set(&spec.instance), networks }];
    }
    tables.sort_by(|a, b| a.id.cmp(&b.id));
    tables
}

/// The name of the set of networks to which pods keep their address; two instances have two.
pub fn non_masquerade_set(instance: &str) -> Box<str> {
    match instance {
        "/run/flannel/subnet.env" => "keep-source".into(),
        other => format!("keep-source-{:08x}", hash(other) & 0xffff_ffff).into(),
    }
}

/// A number that stays the same for a text in every version of this program (FNV-1a).
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Spec {
    fn rules(&self, family: Family, role: Role) -> Vec<Rule> {
        let net = self.networks.get(family);
        let mut rules = match role {
            Role::Masquerade => match (net, self.masquerade.get(family)) {
                (Some(net), Some(ports)) => self.masquerade(family, net, *ports),
                _ => vec![],
            },
            Role::Forward => net.filter(|_| self.forward).map(|net| forward(net.cluster)).unwrap_or_default(),
            Role::UntrackedIn | Role::UntrackedOut => self
                .untracked
                .get(family)
                .map(|tunnel| vec![untrack(role, family, tunnel)])
                .unwrap_or_default(),
            Role::MasqAgent(_) => vec![], // it has a spec of its own
        };
        if self.system != System::Nftables {
            rules.iter_mut().for_each(|rule| rule.comment = Some(self.comment(role)));
        }
        rules
    }

    /// Go's comments are the same for everybody. Rules that name no network have to say whose they are.
    fn comment(&self, role: Role) -> Box<str> {
        match role {
            Role::Masquerade | Role::Forward | Role::MasqAgent(_) => role.comment_of_rules().into(),
            Role::UntrackedIn | Role::UntrackedOut => untracked_comment(&self.instance),
        }
    }

    fn masquerade(&self, family: Family, net: &PodNet, ports: SourcePorts) -> Vec<Rule> {
        let PodNet { cluster, node } = *net;
        let from = |is, net| Match::Source(is, net);
        let to = |is, net| Match::Destination(is, net);
        let (equal, different) = (Is::Equal, Is::Different);
        let mark = Match::Mark { is: equal, value: KUBE_PROXY, mask: KUBE_PROXY };
        let mut rules = vec![
            Rule::new([mark], Action::Return),
            Rule::new([from(equal, node), to(equal, cluster)], Action::Return),
            Rule::new([from(equal, cluster), to(equal, node)], Action::Return),
            Rule::new([from(different, cluster), to(equal, node)], Action::Return),
        ];
        let masquerade = Action::masquerade(ports);
        let (outside, inside) = (to(different, multicast(family)), to(equal, cluster));
        let to_outside = Rule::new([from(equal, cluster), outside], masquerade.clone());
        let to_pods = Rule::new([from(different, cluster), inside], masquerade);
        let kept = self.kept(family);
        match &kept[..] {
            // Go's order; the two are never about the same packet.
            [] => rules.extend([to_outside, to_pods]),
            kept => {
                // A list has to be short for those that it is not for: only pods' packets come to it.
                rules.push(to_pods);
                rules.push(Rule::new([from(different, cluster)], Action::Return));
                rules.extend(kept.iter().map(|kept| keep(from(equal, cluster), kept)));
                rules.push(to_outside);
            }
        }
        rules
    }

    /// The destinations to which pods keep their address: a set where there are sets.
    fn kept(&self, family: Family) -> Vec<Match> {
        if self.uses_a_set(family) {
            return vec![Match::Set(Side::Destination, Is::Equal, non_masquerade_set(&self.instance))];
        }
        self.non_masquerade_cidrs_of(family)
            .into_iter()
            .map(|net| Match::Destination(Is::Equal, net))
            .collect()
    }

    fn uses_a_set(&self, family: Family) -> bool {
        self.system == System::Nftables
            && self.networks.get(family).is_some()
            && self.masquerade.get(family).is_some()
            && !self.non_masquerade_cidrs_of(family).is_empty()
    }

    /// The kernel refuses intervals that overlap.
    fn non_masquerade_cidrs_of(&self, family: Family) -> Vec<IpNet> {
        let of_family = self.non_masquerade_cidrs.iter().filter(|net| Family::of_net(**net) == family);
        let mut networks = IpNet::aggregate(&of_family.map(IpNet::trunc).collect::<Vec<_>>());
        networks.sort();
        networks
    }
}

/// What is true of every packet is not part of a rule: `iptables-save` would not show it.
fn keep(from: Match, kept: &Match) -> Rule {
    match kept {
        Match::Destination(_, net) if net.prefix_len() == 0 => Rule::new([from], Action::Return),
        kept => Rule::new([from, kept.clone()], Action::Return),
    }
}

fn forward(cluster: IpNet) -> Vec<Rule> {
    let matches = [Match::Source(Is::Equal, cluster), Match::Destination(Is::Equal, cluster)];
    matches.map(|it| Rule::new([it], Action::Accept)).into()
}

/// Tunnel packets always go *to* the port. But not all that goes there is ours: what passes through may have to be
/// translated, and what arrives may be the answer to a pod whose port became that number by masquerade. So the
/// packet itself has to be one of our network.
fn untrack(role: Role, family: Family, tunnel: &Tunnel) -> Rule {
    let mut matches = Match::port(UDP, tunnel.port).to_vec();
    if role == Role::UntrackedIn {
        matches.push(Match::DestinationLocal(Is::Equal));
    }
    matches.push(Match::Vxlan(family, tunnel.vni));
    Rule::new(matches, Action::Untrack)
}

/// The comment of rules that tell connection tracking to look away.
pub(super) fn untracked_comment(instance: &str) -> Box<str> {
    format!("{} {}", Role::UntrackedIn.comment_of_rules(), tag(instance)).into()
}
