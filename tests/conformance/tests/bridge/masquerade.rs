//! Packets of pods to the outside get the host's address: by iptables or by nftables.

use conformance_tests::version::{COMMON, WITH_GC};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, gateway, plain};

scenarios! { "bridge":
    COMMON =>
        iptables_has_a_chain_for_each_pod,
        nftables_has_a_rule_for_each_address,
        iptables_is_what_is_used_unless_told_otherwise,
        a_backend_of_another_name_is_refused,
        del_leaves_no_rule_of_either_kind,
        several_addresses_of_a_family_share_a_chain,
        two_interfaces_of_a_pod_do_not_take_each_others_rules,
        an_address_that_is_used_again_has_one_rule,
        without_the_wish_no_rule_is_made;
    WITH_GC => garbage_collection_frees_rules_and_addresses, status_is_that_of_ipam;
}

fn masked(stage: &Stage, backend: Value) -> Value {
    let mut config = gateway(stage, &["10.1.2.0/24", "fd00::/64"]);
    (config["ipMasq"], config["ipMasqBackend"]) = (true.into(), backend);
    config
}

/// sha512 of `mynet` and `c0ffee01`, cut to 28 characters.
const CHAIN: &str = "CNI-7acf3bcf10978b059887025b";

fn chain_of(stage: &Stage, family: u8) -> String {
    let chains = stage.site.nat_chains(family);
    let [chain] = &chains[..] else { panic!("{chains:?}") };
    chain.clone()
}

fn iptables_has_a_chain_for_each_pod(stage: &Stage) {
    stage.site.pod("pod1");
    let config = masked(stage, "iptables".into());
    add(stage, &config).run().result();
    let comment = r#"-m comment --comment "name: \"mynet\" id: \"c0ffee01\"""#;
    for (family, pod, subnet, multicast) in
        [(4, "10.1.2.2/32", "10.1.2.0/24", "224.0.0.0/4"), (6, "fd00::2/128", "fd00::/64", "ff00::/8")]
    {
        let chain = chain_of(stage, family);
        assert_eq!(chain, CHAIN);
        let entry = format!("-s {pod} {comment} -j {chain}");
        assert_eq!(stage.site.nat_chain(family, "POSTROUTING"), [entry]);
        let rules =
            [format!("-d {subnet} {comment} -j ACCEPT"), format!("! -d {multicast} {comment} -j MASQUERADE")];
        assert_eq!(stage.site.nat_chain(family, &chain), rules);
    }
    del(stage, &config).run().nothing();
    assert_eq!(rules_of_both_kinds(stage), [""; 0]);
}

/// All rules, without the empty chains that a firewall may keep.
fn rules_of_both_kinds(stage: &Stage) -> Vec<String> {
    let mut rules: Vec<String> = [4, 6].into_iter().flat_map(|family| stage.site.iptables(family)).collect();
    rules.retain(|line| line.starts_with("-A") || line.ends_with(" -"));
    rules.extend(stage.site.nft_chain("inet cni_plugins_masquerade", "masq_checks"));
    rules
}

fn nftables_has_a_rule_for_each_address(stage: &Stage) {
    stage.site.pod("pod1");
    let config = masked(stage, "nftables".into());
    add(stage, &config).run().result();
    let rules = stage.site.nft_chain("inet cni_plugins_masquerade", "masq_checks");
    let comment = "net: mynet, if: eth0, id: c0ffee01\"";
    let [v4, v6] = &rules[..] else { panic!("{rules:?}") };
    assert!(
        v4.starts_with("ip saddr 10.1.2.2 ip daddr != 10.1.2.0/24 masquerade comment \"")
            && v4.ends_with(comment),
        "{v4}"
    );
    assert!(
        v6.starts_with("ip6 saddr fd00::2 ip6 daddr != fd00::/64 masquerade comment \"")
            && v6.ends_with(comment),
        "{v6}"
    );
    let entry = stage.site.nft_chain("inet cni_plugins_masquerade", "postrouting");
    let expected = ["ip daddr 224.0.0.0/4 return", "ip6 daddr ff00::/8 return", "goto masq_checks"];
    assert_eq!(entry, expected);
    del(stage, &config).run().nothing();
    assert_eq!(rules_of_both_kinds(stage), [""; 0]);
}

fn iptables_is_what_is_used_unless_told_otherwise(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &masked(stage, Value::Null)).run().result();
    assert_eq!(stage.site.nat_chains(4).len(), 1);
}

fn a_backend_of_another_name_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &masked(stage, "ebpf".into())).run().fails(999, "unknown ipmasq backend \"ebpf\"");
}

/// The setting may have changed between ADD and DEL.
fn del_leaves_no_rule_of_either_kind(stage: &Stage) {
    for (before, after) in [("iptables", "nftables"), ("nftables", "iptables")] {
        stage.site.pod("pod1");
        add(stage, &masked(stage, before.into())).run().result();
        del(stage, &masked(stage, after.into())).run().nothing();
        assert_eq!(rules_of_both_kinds(stage), [""; 0], "{before} then {after}");
        stage.site.remove_pod("pod1");
    }
}

/// A packet between pods of the second subnet must not meet the MASQUERADE of the first.
fn several_addresses_of_a_family_share_a_chain(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = gateway(stage, &["10.1.2.0/24", "10.1.3.0/24"]);
    config["ipMasq"] = true.into();
    (config["isDefaultGateway"], config["isGateway"]) = (false.into(), false.into());
    add(stage, &config).run().result();
    let rules = stage.site.nat_chain(4, &chain_of(stage, 4));
    let targets: Vec<_> = rules.iter().map(|rule| rule.rsplit(' ').next().unwrap()).collect();
    assert_eq!(targets, ["ACCEPT", "ACCEPT", "MASQUERADE"], "{rules:?}");
    del(stage, &config).run().nothing();
    assert_eq!(rules_of_both_kinds(stage), [""; 0]);
}

fn two_interfaces_of_a_pod_do_not_take_each_others_rules(stage: &Stage) {
    for backend in ["iptables", "nftables"] {
        stage.site.pod("pod1");
        let config =
            plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend, "isDefaultGateway": false}));
        for interface in ["eth0", "eth1"] {
            add(stage, &config).interface(interface).run().result();
        }
        let before = rules_of_both_kinds(stage);
        del(stage, &config).interface("eth1").run().nothing();
        let left = rules_of_both_kinds(stage);
        assert!(
            left.iter().any(|rule| rule.contains("10.1.2.2") || rule.contains("10.1.2.4")),
            "{backend}: {left:?}"
        );
        assert!(left.len() < before.len(), "{backend}: {left:?}");
        assert!(left.iter().any(|rule| rule.to_lowercase().contains("masquerade")), "{backend}: {left:?}");
        del(stage, &config).interface("eth0").run().nothing();
        assert_eq!(rules_of_both_kinds(stage), [""; 0], "{backend}");
        stage.site.remove_pod("pod1");
    }
}

/// A pod that vanished without DEL leaves a rule; who gets its address must not be hit by it.
fn an_address_that_is_used_again_has_one_rule(stage: &Stage) {
    for backend in ["iptables", "nftables"] {
        stage.site.pod("pod1");
        let config = plain(stage, json!({"ipMasq": true, "ipMasqBackend": backend}));
        add(stage, &config).run().result();
        stage.site.remove_pod("pod1");
        stage.site.sh("rm -r /var/lib/cni/networks");
        stage.site.pod("pod1");
        add(stage, &config).run().result();
        let rules = rules_of_both_kinds(stage);
        let of_pod: Vec<_> = rules.iter().filter(|rule| rule.contains("10.1.2.2")).collect();
        assert_eq!(of_pod.len(), 1, "{of_pod:?}");
        del(stage, &config).run().nothing();
        assert_eq!(rules_of_both_kinds(stage), [""; 0], "{backend}");
        stage.site.remove_pod("pod1");
        stage.site.sh("rm -r /var/lib/cni/networks");
    }
}

fn without_the_wish_no_rule_is_made(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &gateway(stage, &["10.1.2.0/24"])).run().result();
    assert_eq!(stage.site.nft(), [""; 0]);
}

fn garbage_collection_frees_rules_and_addresses(stage: &Stage) {
    for backend in ["iptables", "nftables"] {
        let mut config = masked(stage, backend.into());
        for pod in ["pod1", "pod2"] {
            stage.site.pod(pod);
            add(stage, &config).pod(pod).container(pod).run().result();
        }
        config["cni.dev/valid-attachments"] = json!([{"containerID": "pod2", "ifname": "eth0"}]);
        stage
            .call("GC", "bridge", &config)
            .unset("CNI_CONTAINERID")
            .unset("CNI_NETNS")
            .unset("CNI_IFNAME")
            .run()
            .nothing();
        let rules = rules_of_both_kinds(stage);
        assert!(!rules.iter().any(|rule| rule.contains("pod1")), "{rules:?}");
        assert!(rules.iter().any(|rule| rule.contains("pod2")), "{rules:?}");
        assert_eq!(super::taken(stage).len(), 2);
        config["cni.dev/valid-attachments"] = json!([]);
        stage.call("GC", "bridge", &config).run().nothing();
        assert_eq!((rules_of_both_kinds(stage), super::taken(stage)), (vec![], vec![]));
        for pod in ["pod1", "pod2"] {
            stage.site.remove_pod(pod);
        }
    }
}

fn status_is_that_of_ipam(stage: &Stage) {
    let config = gateway(stage, &["10.1.2.0/30"]);
    stage.call("STATUS", "bridge", &config).run().nothing();
    stage.site.pod("pod1");
    add(stage, &config).run().result();
    stage.call("STATUS", "bridge", &config).run().fails(50, "10.1.2");
}
