//! The flannel plugin: reads what flanneld wrote, and has another plugin attach the pod.

pub mod delegate;
pub mod life;
pub mod loss;
pub mod subnet_env;

use conformance_tests::{Call, Stage};
use serde_json::{Value, json};

const SUBNET_ENV: &str = "/run/flannel/subnet.env";
const V4: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// The network of kube-flannel, with these keys.
fn network(stage: &Stage, keys: Value) -> Value {
    stage.config("cbr0", "flannel", keys)
}

fn plain(stage: &Stage) -> Value {
    network(stage, json!({"delegate": {"hairpinMode": true, "isDefaultGateway": true}}))
}

fn add<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("ADD", "flannel", config)
}

fn del<'a>(stage: &'a Stage, config: &Value) -> Call<'a> {
    stage.call("DEL", "flannel", config)
}

/// The addresses that are taken in the network.
fn taken(stage: &Stage) -> Vec<String> {
    let files = stage.site.files("/var/lib/cni/networks/cbr0").into_keys();
    let names = files.map(|path| path.rsplit('/').next().unwrap().to_owned());
    names.filter(|name| !name.starts_with("last_reserved") && name != "lock").collect()
}

/// The files in which the plugin keeps what it asked for.
fn records(stage: &Stage) -> Vec<String> {
    stage.site.files("/var/lib/cni/flannel").into_keys().collect()
}

/// A delegate that writes down what it is asked and gives an address.
fn spy(stage: &Stage) -> String {
    let result = if stage.at_least("0.3.0") {
        json!({"cniVersion": stage.version, "ips": [{"version": "4", "address": "10.244.3.9/24"}]})
    } else {
        json!({"cniVersion": stage.version, "ip4": {"ip": "10.244.3.9/24"}})
    };
    let script =
        format!("#!/bin/sh\ncat > /run/asked.$CNI_COMMAND\n[ $CNI_COMMAND != ADD ] || echo '{result}'\n");
    stage.site.write("/run/bin/spy", script);
    stage.site.sh("chmod +x /run/bin/spy");
    format!("/run/bin:{}", stage.plugins.folder.display())
}

/// What the spy was asked.
fn asked(stage: &Stage, command: &str) -> Value {
    let text = stage.site.read(&format!("/run/asked.{command}"));
    serde_json::from_str(&text.unwrap_or_else(|| panic!("the delegate was not asked to {command}"))).unwrap()
}
