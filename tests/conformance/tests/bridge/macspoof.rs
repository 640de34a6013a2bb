//! A pod may send with no MAC but its own.

use conformance_tests::version::{COMMON, WITH_GC};
use conformance_tests::{Stage, scenarios};
use serde_json::json;

use super::{add, del, host_end, plain};

scenarios! { "bridge":
    COMMON => frames_with_another_mac_are_dropped, the_rules_of_a_pod_go_with_it, the_rules_of_others_stay;
    WITH_GC => garbage_collection_frees_rules_of_this_network_only;
}

fn frames_with_another_mac_are_dropped(stage: &Stage) {
    stage.site.pod("pod1");
    let result = add(stage, &plain(stage, json!({"macspoofchk": true}))).run().result();
    let (chain, comment) = ("cni-br-iface-c0ffee01-eth0", "comment \"macspoofchk-c0ffee01-eth0\"");
    let mac = result["interfaces"][2]["mac"].as_str().unwrap();
    let entry = format!("iifname \"{}\" jump {chain} {comment}", host_end(&result));
    assert_eq!(stage.site.nft_chain("bridge nat", "PREROUTING"), [entry]);
    assert_eq!(stage.site.nft_chain("bridge nat", chain), [format!("jump {chain}-mac {comment}")]);
    let rules = [format!("ether saddr {mac} return {comment}"), format!("drop {comment}")];
    assert_eq!(stage.site.nft_chain("bridge nat", &format!("{chain}-mac")), rules);
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.1.2.1");
    stage.site.sh("ip -n pod1 link set eth0 address 02:00:00:00:00:66; ip -n pod1 neigh flush all");
    let output = stage.site.try_sh("ip netns exec pod1 ping -c 1 -W 1 10.1.2.1");
    assert!(!output.status.success(), "a foreign MAC gets through");
}

fn the_rules_of_a_pod_go_with_it(stage: &Stage) {
    stage.site.pod("pod1");
    let config = plain(stage, json!({"macspoofchk": true}));
    add(stage, &config).run().result();
    del(stage, &config).run().nothing();
    assert_eq!(rules(stage), [""; 0]);
    del(stage, &config).run().nothing();
}

fn the_rules_of_others_stay(stage: &Stage) {
    let config = plain(stage, json!({"macspoofchk": true}));
    for pod in ["pod1", "pod2"] {
        stage.site.pod(pod);
        add(stage, &config).pod(pod).container(pod).run().result();
    }
    let before = rules(stage);
    del(stage, &config).pod("pod1").container("pod1").run().nothing();
    let expected: Vec<_> = before.into_iter().filter(|line| !line.contains("pod1")).collect();
    assert_eq!(rules(stage), expected);
}

fn garbage_collection_frees_rules_of_this_network_only(stage: &Stage) {
    let config = plain(stage, json!({"macspoofchk": true}));
    for pod in ["pod1", "pod2", "pod3"] {
        stage.site.pod(pod);
        let mut config = config.clone();
        config["name"] = if pod == "pod3" { "other" } else { "mynet" }.into();
        add(stage, &config).pod(pod).container(pod).run().result();
    }
    let before = rules(stage);
    let mut garbage = config.clone();
    garbage["cni.dev/valid-attachments"] = json!([{"containerID": "pod2", "ifname": "eth0"}]);
    stage.call("GC", "bridge", &garbage).run().nothing();
    let expected: Vec<_> = before.into_iter().filter(|line| !line.contains("pod1")).collect();
    assert_eq!(rules(stage), expected);
}

/// What is there beside the table and the chain that all share.
fn rules(stage: &Stage) -> Vec<String> {
    let lines = stage.site.nft().into_iter().map(|line| line.trim().to_owned());
    lines.filter(|line| line.contains("macspoofchk") || line.contains("cni-br")).collect()
}
