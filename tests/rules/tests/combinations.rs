//! flanneld's masquerade and that of the CNI plugin, in all combinations of who is asked to do it.

use std::fs;

use cluster_tests::is_ready;
use flannel_lab::Signal;
use rule_tests::{Case, Family, Mode, Site};
use store_tests::{Need, Program, go_flanneld, scenarios};

scenarios! {
    &[] => who_masquerades_decides_the_sources_in_iptables_mode, who_masquerades_decides_the_sources_in_nftables_mode;
    &[Need::GoFlanneld] => who_masquerades_decides_the_same_with_go;
}

/// The packets, as lines of the truth table: the fourth word is filled in.
const PACKETS: [&str; 6] = [
    "46 one.a two.a two.a - a pod to a pod of another node",
    "46 one.a one.b one.b - a pod to a pod of the same node",
    "46 one.a far far - a pod to a machine outside",
    "46 far one.a one.a - a machine outside to a pod, by the pod's node",
    "46 far two.a two.a - a machine outside to a pod, by another node",
    "46 one@one two.a two.a - a node to a pod of another node",
];

/// `--ip-masq`, the delegate's `ipMasq`, and the source of each packet.
///
/// Where both masquerade, the plugin hides pods from other nodes' pods, as Go's does: it knows only its own subnet. That
/// is why it is not asked to unless somebody says so.
const COMBINATIONS: [(bool, Option<bool>, [&str; 6]); 6] = [
    (true, None, ["one.a", "one.a", "one", "far", "one.flannel", "one.flannel"]),
    (true, Some(false), ["one.a", "one.a", "one", "far", "one.flannel", "one.flannel"]),
    (true, Some(true), ["one.flannel", "one.a", "one", "far", "one.flannel", "one.flannel"]),
    (false, None, ["one.flannel", "one.a", "one", "far", "far", "one"]),
    (false, Some(true), ["one.flannel", "one.a", "one", "far", "far", "one"]),
    (false, Some(false), ["one.a", "one.a", "one.a", "far", "far", "one"]),
];

fn who_masquerades_decides_the_sources_in_iptables_mode() {
    all_hold(Program::Ours, Mode::Iptables, "iptables");
}

fn who_masquerades_decides_the_sources_in_nftables_mode() {
    all_hold(Program::Ours, Mode::Nftables, "nftables");
}

fn who_masquerades_decides_the_same_with_go() {
    all_hold(Program::Go, Mode::Iptables, "iptables");
}

fn all_hold(program: Program, mode: Mode, backend: &str) {
    let mut site = Site::up("masq", program, mode);
    let mut started = true;
    for (ip_masq, delegate, sources) in COMBINATIONS {
        if ip_masq != started {
            restart(&site, program, ip_masq);
            started = ip_masq;
        }
        site.renew_pods(&network(delegate, backend));
        let what = format!("--ip-masq={ip_masq}, the delegate's ipMasq {delegate:?}");
        assert_eq!(seen(&site), expected(sources), "{what}");
    }
}

fn restart(site: &Site, program: Program, ip_masq: bool) {
    let flag = [format!("--ip-masq={ip_masq}")];
    for node in ["one", "two"].map(|name| site.node(name)) {
        node.flanneld().stop(Signal::TERM).unwrap();
        match program {
            Program::Ours => node.start_flanneld(&flag).unwrap(),
            Program::Go => {
                // Go leaves its rules behind when it is told to masquerade no more.
                node.run("nft", ["flush", "ruleset"]).unwrap();
                node.start_as("flanneld", &go_flanneld().unwrap(), &flag).unwrap();
            }
        }
        is_ready(node);
        let env = fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap();
        assert!(env.contains(&format!("FLANNEL_IPMASQ={ip_masq}\n")), "{env}");
    }
}

fn network(delegate: Option<bool>, backend: &str) -> String {
    let ip_masq = delegate.map_or_else(String::new, |value| format!(r#""ipMasq": {value}, "#));
    format!(
        r#"{{"name": "cbr0", "cniVersion": "1.0.0", "plugins": [{{"type": "flannel", "delegate":
            {{{ip_masq}"ipMasqBackend": "{backend}", "hairpinMode": true, "isDefaultGateway": true}}}}]}}"#
    )
}

fn cases() -> impl Iterator<Item = Case> {
    PACKETS.iter().flat_map(|line| Family::BOTH.map(|family| Case::read(line, family).unwrap()))
}

fn seen(site: &Site) -> Vec<String> {
    cases().map(|case| format!("{case}: {}", case.play(site))).collect()
}

fn expected(sources: [&str; 6]) -> Vec<String> {
    let each = sources.into_iter().flat_map(|source| [source; 2]);
    cases().zip(each).map(|(case, source)| format!("{case}: {source}")).collect()
}
