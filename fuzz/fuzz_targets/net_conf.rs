//! net-conf.json, written by an operator. A net-conf that is understood is understood the same when all of it is
//! written out, and every network of it has a subnet to give.
#![no_main]

use flannel_plan::allocate::{fits, free_subnet};
use flannel_plan::config::{Backend, NetworkConfig, PodNetwork};
use flannel_plan::family::Family;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fuzz_target!(|text: &str| {
    match NetworkConfig::parse(text) {
        Err(faults) => assert!(!faults.0.is_empty() && !faults.to_string().is_empty()),
        Ok(config) => {
            assert_eq!(NetworkConfig::parse(&written(&config)), Ok(config.clone()));
            let saved = serde_json::to_string(&config).expect("a config can be saved");
            assert_eq!(serde_json::from_str::<NetworkConfig>(&saved).expect("and read"), config);
            for (_, network) in config.networks.iter() {
                let subnet = free_subnet(network, []).expect("the first subnet is free");
                assert!(fits(network, subnet), "{subnet} is not of {network:?}");
            }
        }
    }
});

/// The whole net-conf with nothing left to a default.
fn written(config: &NetworkConfig) -> String {
    let mut keys = Map::new();
    let has = |family| config.networks.get(family).is_some();
    keys.insert("EnableIPv4".into(), has(Family::V4).into());
    keys.insert("EnableIPv6".into(), has(Family::V6).into());
    keys.insert("EnableNFTables".into(), config.nftables.into());
    for (family, network) in config.networks.iter() {
        keys.extend(pod_network(family, network));
    }
    let kept: Vec<String> = config.non_masquerade_cidrs.iter().map(ToString::to_string).collect();
    keys.insert("NonMasqueradeCIDRs".into(), kept.into());
    keys.insert("Backend".into(), backend(&config.backend));
    Value::Object(keys).to_string()
}

fn pod_network(family: Family, network: &PodNetwork) -> [(String, Value); 4] {
    let prefix = if family == Family::V4 { "" } else { "IPv6" };
    [
        (format!("{prefix}Network"), network.network.to_string().into()),
        (format!("{prefix}SubnetLen"), network.subnet_len.into()),
        (format!("{prefix}SubnetMin"), network.subnet_min.to_string().into()),
        (format!("{prefix}SubnetMax"), network.subnet_max.to_string().into()),
    ]
}

fn backend(backend: &Backend) -> Value {
    match backend {
        Backend::Vxlan(vxlan) => json!({
            "Type": "vxlan", "VNI": vxlan.vni, "Port": vxlan.port, "MTU": vxlan.mtu.unwrap_or(0),
            "GBP": vxlan.gbp, "Learning": vxlan.learning, "DirectRouting": vxlan.direct_routing,
        }),
        Backend::HostGw => json!({"Type": "host-gw"}),
        Backend::Alloc => json!({"Type": "alloc"}),
        Backend::Missing(name) => json!({"Type": name}),
    }
}
