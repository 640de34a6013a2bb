//! What `iptables-save` prints, which holds the rules of everybody on the host. What is read can be explained, and
//! made what flanneld and ip-masq-agent want in one step each.
#![no_main]

use std::collections::BTreeSet;

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::edit::{applied, edits};
use flannel_plan::rules::explain::{Packet, explain_snat};
use flannel_plan::rules::found::FoundTable;
use flannel_plan::rules::iptables::{saved, script};
use flannel_plan::rules::observed::{RuleScope, observed_table};
use flannel_plan::rules::spec::{PodNet, Spec, desired};
use flannel_plan::rules::translated::translation_of;
use flannel_plan::rules::{RuleTable, SourcePorts, System, TableId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let system = System::IptablesNft;
    let Ok(found) = saved(system, Family::V4, text) else { return };
    let tables = found.tables;
    assert!(!explain_snat(&tables, &packet()).to_string().is_empty());
    let _ = translation_of(&tables, 8472);
    let (spec, scope) = (spec(system), scope());
    let wanted = desired(&spec);
    let ids: BTreeSet<_> =
        wanted.iter().map(|table| &table.id).chain(tables.iter().map(|table| &table.id)).collect();
    for id in ids {
        let (want, have) =
            (wanted.iter().find(|table| table.id == *id), tables.iter().find(|table| table.id == *id));
        mend(&scope, want, have, id);
    }
    // Nothing of ip-masq-agent is to be there.
    let agent = "IP-MASQ-AGENT".to_owned().try_into().expect("a name");
    let agent = RuleScope { masq_agent: Some(agent), ..RuleScope::default() };
    tables.iter().for_each(|table| mend(&agent, None, Some(table), &table.id));
});

/// What is read can be made what is wanted in one step.
fn mend(scope: &RuleScope, want: Option<&RuleTable>, have: Option<&FoundTable>, id: &TableId) {
    let edits = edits(scope, want, have);
    let _ = script(&id.name, &edits);
    let made = applied(have, id, &edits);
    let left = made.as_ref().and_then(|made| observed_table(scope, made));
    assert_eq!(left.as_ref(), want.filter(has_chains), "{id}");
}

fn has_chains(table: &&RuleTable) -> bool {
    !table.chains.is_empty()
}

fn packet() -> Packet {
    Packet {
        source: [10, 244, 1, 5].into(),
        destination: [198, 51, 100, 9].into(),
        protocol: None,
        port: None,
        mark: 0,
        out_link: None,
        to_host: Some(false),
    }
}

fn spec(system: System) -> Spec {
    let net = |text: &str| text.parse().expect("a network");
    let pods = PodNet { cluster: net("10.244.0.0/16"), node: net("10.244.1.0/24") };
    Spec {
        system,
        instance: "/run/flannel/subnet.env".into(),
        networks: ByFamily { v4: Some(pods), v6: None },
        masquerade: ByFamily { v4: Some(SourcePorts::Randomised), v6: None },
        non_masquerade_cidrs: vec![],
        forward: true,
        untracked: ByFamily::default(),
    }
}

fn scope() -> RuleScope {
    let networks = vec!["10.244.0.0/16".parse().expect("a network")];
    RuleScope {
        instance: "10.244.0.0/16".into(),
        former: vec!["/run/flannel/subnet.env".into()],
        networks,
        masq_agent: None,
    }
}
