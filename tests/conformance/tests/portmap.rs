//! The portmap plugin: ports of the host lead to a pod, by iptables or by nftables.

pub mod config;
pub mod iptables;
pub mod life;
pub mod nftables;
pub mod traffic;

use conformance_tests::{Call, Stage};
use serde_json::{Value, json};

/// A configuration of portmap in the network `mynet` with these mappings: host port, container port, protocol.
fn ports(stage: &Stage, mappings: &[(u16, u16, &str)], keys: Value) -> Value {
    let map = |(host, pod, protocol): &(u16, u16, &str)| json!({"hostPort": host, "containerPort": pod, "protocol": protocol});
    let mappings: Vec<_> = mappings.iter().map(map).collect();
    let mut config = stage.config("mynet", "portmap", keys);
    config["capabilities"] = json!({"portMappings": true});
    config["runtimeConfig"] = json!({"portMappings": mappings});
    config["prevResult"] = result(stage, &["10.22.0.2/16"]);
    config
}

/// What bridge gave before, with these addresses.
fn result(stage: &Stage, addresses: &[&str]) -> Value {
    let ip = |address: &&str| {
        let mut ip = json!({"interface": 2, "address": address});
        if !stage.at_least("1.0.0") {
            ip["version"] = if address.contains(':') { "6" } else { "4" }.into();
        }
        ip
    };
    let ips: Vec<_> = addresses.iter().map(ip).collect();
    let sandbox = json!({"name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": "/run/netns/pod1"});
    json!({"cniVersion": stage.version, "ips": ips,
        "interfaces": [{"name": "br0", "mac": "02:00:00:00:00:01"}, {"name": "veth1", "mac": "02:00:00:00:00:02"}, sandbox]})
}

fn add<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("ADD", "portmap", config)
}

fn del<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("DEL", "portmap", config)
}

/// All rules that lead to a pod, or belong to one: of both families and both kinds.
fn rules(stage: &Stage) -> Vec<String> {
    let families = [4, 6].into_iter().flat_map(|family| stage.site.iptables(family));
    let own = families.filter(|line| line.contains("CNI-DN-"));
    own.chain(nft_rules(stage)).collect()
}

fn nft_rules(stage: &Stage) -> Vec<String> {
    let mut rules = Vec::new();
    for table in ["ip cni_hostport", "ip6 cni_hostport"] {
        for chain in ["hostports", "hostip_hostports", "masquerading"] {
            rules.extend(stage.site.nft_chain(table, chain));
        }
    }
    rules
}
