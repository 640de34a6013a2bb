//! The bridge plugin: a veth pair between a bridge and the pod.

pub mod address;
pub mod check;
pub mod config;
pub mod life;
pub mod loss;
pub mod macspoof;
pub mod masquerade;
pub mod vlan;

use conformance_tests::{Call, Stage};
use serde_json::{Value, json};

/// A network `mynet` on the bridge `br0`, which is the pods' default gateway, with these subnets.
fn gateway(stage: &Stage, subnets: &[&str]) -> Value {
    let ranges: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
    layer2(stage, json!({"isDefaultGateway": true, "ipam": {"type": "host-local", "ranges": ranges}}))
}

/// The same with one subnet of IPv4, and with other keys.
fn plain(stage: &Stage, keys: Value) -> Value {
    let mut config = gateway(stage, &["10.1.2.0/24"]);
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// A network `mynet` on the bridge `br0` without addresses.
fn layer2(stage: &Stage, keys: Value) -> Value {
    let mut config = stage.config("mynet", "bridge", json!({"bridge": "br0"}));
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

fn add<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("ADD", "bridge", config)
}

fn del<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("DEL", "bridge", config)
}

/// The name of the host's end of a pair, as results tell it.
fn host_end(result: &Value) -> String {
    result["interfaces"][1]["name"].as_str().unwrap().to_owned()
}

/// The addresses that are taken in the network.
fn taken(stage: &Stage) -> Vec<String> {
    let files = stage.site.files("/var/lib/cni/networks/mynet").into_keys();
    let names = files.map(|path| path.rsplit('/').next().unwrap().to_owned());
    names.filter(|name| !name.starts_with("last_reserved") && name != "lock").collect()
}
