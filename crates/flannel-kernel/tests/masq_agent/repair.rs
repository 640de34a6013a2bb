//! What others break is seen and put right; what an earlier run left goes; what is not ours stays.

use std::time::Duration;

use flannel_kernel::firewall::rules::Rules;
use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_plan::family::ByFamily;
use flannel_plan::rules::observed::{RuleScope, observed};
use flannel_plan::rules::spec::{PodNet, Spec, desired};
use flannel_plan::rules::{SourcePorts, System, changes};

use crate::sandbox::sh;
use crate::{
    CHAIN, SYSTEMS, differences, due, everything, in_a_node, in_every_system, name, open, programs, settle,
    spec,
};

/// A way to break rules, and what is said of it.
type Harm = (&'static str, &'static str);

const IN_NFTABLES: [Harm; 10] = [
    ("nft flush ruleset", "there is no table ip ip-masq-agent"),
    ("nft flush chain ip ip-masq-agent IP-MASQ-AGENT", "chain IP-MASQ-AGENT has 0 rules, not 3"),
    ("nft insert rule ip ip-masq-agent IP-MASQ-AGENT accept", "chain IP-MASQ-AGENT has 4 rules, not 3"),
    (
        "nft flush set ip ip-masq-agent IP-MASQ-AGENT",
        "set IP-MASQ-AGENT does not hold what the configuration says",
    ),
    (
        "nft 'add element ip ip-masq-agent IP-MASQ-AGENT { 8.8.8.8 }'",
        "set IP-MASQ-AGENT does not hold what the configuration says",
    ),
    (
        "nft 'add chain ip ip-masq-agent IP-MASQ-AGENT { policy drop; }'",
        "IP-MASQ-AGENT drops packets at its end",
    ),
    (
        "nft 'flush chain ip ip-masq-agent IP-MASQ-AGENT; delete set ip ip-masq-agent IP-MASQ-AGENT; \
         add set ip ip-masq-agent IP-MASQ-AGENT { type ipv4_addr; }'",
        "a set of another kind is called IP-MASQ-AGENT",
    ),
    (
        "nft 'flush chain ip ip-masq-agent IP-MASQ-AGENT; delete chain ip ip-masq-agent IP-MASQ-AGENT; \
         add chain ip ip-masq-agent IP-MASQ-AGENT'",
        "chain IP-MASQ-AGENT has 0 rules, not 3, IP-MASQ-AGENT has another hook or priority",
    ),
    ("nft 'add table ip ip-masq-agent { flags dormant; }'", "the table is dormant"),
    (
        "nft 'flush chain ip ip-masq-agent IP-MASQ-AGENT; delete chain ip ip-masq-agent IP-MASQ-AGENT'",
        "there is no chain IP-MASQ-AGENT",
    ),
];

const IN_IPTABLES: [Harm; 7] = [
    ("IPTABLES -t nat -F IP-MASQ-AGENT", "chain IP-MASQ-AGENT has 0 rules, not 5"),
    ("IPTABLES -t nat -D IP-MASQ-AGENT 2", "chain IP-MASQ-AGENT has 4 rules, not 5"),
    ("IPTABLES -t nat -A IP-MASQ-AGENT -j ACCEPT", "chain IP-MASQ-AGENT has 6 rules, not 5"),
    (
        "IPTABLES -t nat -R IP-MASQ-AGENT 2 -d 11.0.0.0/8 -j RETURN",
        "chain IP-MASQ-AGENT has 5 rules that are not the agent's",
    ),
    ("IPTABLES -t nat -F POSTROUTING", "nothing in POSTROUTING leads to IP-MASQ-AGENT"),
    (
        "eval IPTABLES -t nat $(IPTABLES -t nat -S POSTROUTING | grep MASQ)",
        "2 rules of POSTROUTING lead to IP-MASQ-AGENT",
    ),
    (
        "IPTABLES -t nat -F; IPTABLES -t nat -X IP-MASQ-AGENT",
        "there is no chain IP-MASQ-AGENT, nothing in POSTROUTING leads to IP-MASQ-AGENT",
    ),
];

fn harms(system: System) -> Vec<(String, &'static str)> {
    let harms = if system == System::Nftables { &IN_NFTABLES[..] } else { &IN_IPTABLES };
    harms.iter().map(|(harm, said)| (harm.replace("IPTABLES", programs(system)[0]), *said)).collect()
}

#[test]
fn every_harm_is_seen_named_and_put_right_in_one_pass() {
    in_every_system(|system| {
        let mut rules = open();
        let spec = spec(system);
        settle(&mut rules, &spec);
        let right = everything();
        for (harm, said) in harms(system) {
            sh(&harm);
            let told = settle(&mut rules, &spec);
            assert!(told.iter().any(|told| told.ends_with(said)), "{harm}: {told:?}");
            let now = everything();
            let sorted = |text: &str| {
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&now), sorted(&right), "{harm}");
        }
    });
}

#[test]
fn every_switch_between_systems_leaves_nothing_of_the_old_one() {
    in_a_node(|| {
        let mut rules = open();
        for (from, to) in SYSTEMS.iter().flat_map(|from| SYSTEMS.map(|to| (*from, to))) {
            settle(&mut rules, &spec(from));
            settle(&mut rules, &spec(to));
            let text = everything();
            let tables = text.matches("table ip ip-masq-agent").count();
            assert_eq!(tables, usize::from(to == System::Nftables), "{from} to {to}: {text}");
            let in_nft = text.matches("table ip nat").count() > 0 && text.contains("chain IP-MASQ-AGENT");
            assert_eq!(in_nft && to != System::Nftables, to == System::IptablesNft, "{from} to {to}: {text}");
            let legacy = text.matches("-A IP-MASQ-AGENT").count();
            assert_eq!(legacy > 0, to == System::IptablesLegacy, "{from} to {to}: {text}");
        }
    });
}

#[test]
fn switched_off_everything_is_gone_without_a_program_in_nftables() {
    in_a_node(|| {
        let mut rules = open();
        settle(&mut rules, &spec(System::IptablesNft));
        settle(&mut rules, &spec(System::Nftables));
        let mut nothing = spec(System::Nftables);
        nothing.source_ports = ByFamily::default();
        sh("mount --bind $(mktemp -d) /usr/sbin");
        let left = due(&mut rules, &nothing);
        assert_eq!(rules.apply(&nothing.scope(), &left).len(), 0);
        sh("umount /usr/sbin");
        let text = everything();
        assert!(!text.contains("MASQ") && !text.contains("ip-masq-agent"), "{text}");
    });
}

#[test]
fn a_family_that_is_switched_off_loses_its_rules_and_only_those() {
    in_every_system(|system| {
        let mut rules = open();
        let mut spec = spec(system);
        settle(&mut rules, &spec);
        spec.source_ports.v6 = None;
        settle(&mut rules, &spec);
        let text = everything();
        assert!(!text.contains("fe80::"), "{text}");
        assert!(text.contains("169.254.0.0/16"), "{text}");
    });
}

#[test]
fn a_chain_that_somebody_else_uses_stays_empty() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            let mut rules = open();
            settle(&mut rules, &spec(system));
            let iptables = programs(system)[0];
            sh(&format!("{iptables} -t nat -N MINE; {iptables} -t nat -A MINE -j {CHAIN}"));
            settle(&mut rules, &spec(System::Nftables));
            assert_eq!(sh(&format!("{iptables} -t nat -S {CHAIN}")), format!("-N {CHAIN}\n"));
            assert_eq!(sh(&format!("{iptables} -t nat -S POSTROUTING")), "-P POSTROUTING ACCEPT\n");
        });
    }
}

#[test]
fn two_agents_share_the_table_of_nftables_and_either_may_leave() {
    in_a_node(|| {
        let mut rules = open();
        let (first, mut second) = (spec(System::Nftables), spec(System::Nftables));
        second.chain = name("SECOND");
        let mut others = Rules::open_for(&second.scope());
        settle(&mut rules, &first);
        settle(&mut others, &second);
        assert_eq!(differences(&mut rules, &first), [""; 0]);
        second.source_ports = ByFamily::default();
        settle(&mut others, &second);
        assert_eq!(differences(&mut rules, &first), [""; 0]);
        assert!(!sh("nft list ruleset").contains("SECOND"));
    });
}

/// What others put into the table, and what of ours cannot be altered, are no reason to delete the table.
#[test]
fn what_others_have_in_the_table_outlives_every_repair_and_the_agent() {
    let theirs = ["counter theirs", "map portals", "chain SECOND", "set SECOND", "chain empty"];
    let stays = || {
        let text = sh("nft list table ip ip-masq-agent");
        theirs.iter().for_each(|object| assert!(text.contains(object), "{object} is gone:\n{text}"));
    };
    in_a_node(|| {
        let mut rules = open();
        let (first, mut second) = (spec(System::Nftables), spec(System::Nftables));
        second.chain = name("SECOND");
        let mut others = Rules::open_for(&second.scope());
        settle(&mut rules, &first);
        settle(&mut others, &second);
        sh("nft 'add counter ip ip-masq-agent theirs; add chain ip ip-masq-agent empty
                 add map ip ip-masq-agent portals { type ipv4_addr : verdict; }'");
        for (harm, _) in harms(System::Nftables).iter().skip(1) {
            sh(harm);
            settle(&mut rules, &first);
            stays();
        }
        // Somebody's rule holds on to a set of our name and another kind: it is said, and nothing is torn down.
        sh("nft 'flush chain ip ip-masq-agent IP-MASQ-AGENT; delete set ip ip-masq-agent IP-MASQ-AGENT
                 add set ip ip-masq-agent IP-MASQ-AGENT { type inet_service; }
                 add rule ip ip-masq-agent empty tcp dport @IP-MASQ-AGENT accept'");
        let asked = due(&mut rules, &first);
        let failures = rules.apply(&first.scope(), &asked);
        assert!(failures.iter().any(|failure| failure.to_string().contains("IP-MASQ-AGENT")), "{failures:?}");
        stays();
        sh("nft flush chain ip ip-masq-agent empty");
        settle(&mut rules, &first);
        for (rules, mut gone) in [(&mut rules, first), (&mut others, second.clone())] {
            gone.source_ports = ByFamily::default();
            settle(rules, &gone);
        }
        let text = sh("nft list table ip ip-masq-agent");
        assert!(!text.contains("MASQ-AGENT {") && !text.contains("SECOND"), "{text}");
        assert!(
            text.contains("counter theirs") && text.contains("map portals") && text.contains("chain empty"),
            "{text}"
        );
    });
}

#[test]
fn while_nothing_of_the_agents_changes_no_program_is_run() {
    in_every_system(|system| {
        let mut rules = open();
        let spec = spec(system);
        settle(&mut rules, &spec);
        let iptables = programs(system)[0];
        // Without programs a look that needs one fails.
        sh("mount --bind $(mktemp -d) /usr/sbin");
        assert_eq!(differences(&mut rules, &spec), [""; 0]);
        sh("umount /usr/sbin");
        sh(&format!("{iptables} -t nat -N OTHER; {iptables} -t nat -A POSTROUTING -s 192.0.2.1 -j OTHER"));
        if system != System::IptablesLegacy {
            sh("mount --bind $(mktemp -d) /usr/sbin");
        }
        assert_eq!(differences(&mut rules, &spec), [""; 0]);
    });
}

#[test]
fn changes_by_others_are_told_and_our_own_are_not() {
    in_a_node(|| {
        let mut rules = open();
        let own_ports = rules.port_id().into_iter().collect();
        let mut watch = RuleWatch::open(own_ports, &spec(System::Nftables).scope()).unwrap();
        settle(&mut rules, &spec(System::Nftables));
        sh("nft add table ip other; nft add table ip nat; nft add chain ip nat ELSE");
        let quiet = |watch: &mut RuleWatch| watch.wait_at_most(Duration::from_millis(200)).unwrap();
        // The table of iptables was made.
        assert_eq!(quiet(&mut watch).and_then(|notice| notice.by).as_deref(), Some("nft"));
        sh("nft add chain ip nat MORE; nft add rule ip nat MORE accept");
        assert_eq!(quiet(&mut watch), None);
        for change in [
            "nft flush set ip ip-masq-agent IP-MASQ-AGENT",
            "nft add chain ip nat IP-MASQ-AGENT",
            "nft 'add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }'",
            "nft delete table ip ip-masq-agent",
        ] {
            sh(change);
            assert_eq!(quiet(&mut watch).and_then(|notice| notice.by).as_deref(), Some("nft"), "{change}");
        }
    });
}

/// What flanneld keeps beside the agent.
fn flannel(system: System) -> Spec {
    let net = |text: &str| text.parse().unwrap();
    Spec {
        system,
        instance: "/run/flannel/subnet.env".into(),
        networks: ByFamily {
            v4: Some(PodNet { cluster: net("10.244.0.0/16"), node: net("10.244.1.0/24") }),
            v6: None,
        },
        masquerade: ByFamily { v4: Some(SourcePorts::Randomised), v6: None },
        non_masquerade_cidrs: vec![net("198.51.100.0/24")],
        forward: true,
        untracked: ByFamily::default(),
    }
}

#[test]
fn flanneld_and_the_agent_live_together_in_every_mix_of_systems() {
    for (ours, agents) in SYSTEMS.iter().flat_map(|ours| SYSTEMS.map(|agents| (*ours, agents))) {
        in_a_node(|| {
            let mut rules = Rules::open();
            let mut agents_rules = open();
            let (flannel, agent) = (flannel(ours), spec(agents));
            let scope = RuleScope {
                instance: flannel.instance.clone(),
                networks: vec!["10.244.0.0/16".parse().unwrap()],
                ..RuleScope::default()
            };
            let mut settle_flannel = || {
                let observation = rules.observe(ours);
                let due = changes(&scope, &desired(&flannel), &observation);
                let failures: Vec<String> =
                    rules.apply(&scope, &due).iter().map(ToString::to_string).collect();
                assert_eq!(failures, [""; 0]);
                assert_eq!(observed(&scope, &rules.observe(ours).tables), desired(&flannel));
                due.len()
            };
            for _ in 0..2 {
                settle_flannel();
                settle(&mut agents_rules, &agent);
                sh("nft flush ruleset");
                for program in programs(System::IptablesLegacy) {
                    sh(&format!("{program} -t nat -F; {program} -t filter -F"));
                }
            }
            settle(&mut agents_rules, &agent);
            settle_flannel();
            assert_eq!(differences(&mut agents_rules, &agent), [""; 0], "{ours} and {agents}");
            assert_eq!(settle_flannel(), 0, "{ours} and {agents}");
            // One goes, the other stays.
            let mut nothing = agent.clone();
            nothing.source_ports = ByFamily::default();
            settle(&mut agents_rules, &nothing);
            assert_eq!(settle_flannel(), 0, "{ours} and {agents}");
        });
    }
}
