//! The host-local plugin: addresses from ranges of this host, kept in files.

pub mod addresses;
pub mod config;
pub mod garbage;
pub mod store;

use conformance_tests::{Call, Stage};
use serde_json::{Value, json};

/// A network `mynet` with this `ipam`.
fn network(stage: &Stage, ipam: Value) -> Value {
    let mut config = stage.config("mynet", "x", json!({"ipam": ipam}));
    config["ipam"]["type"] = "host-local".into();
    config
}

/// A network of one subnet.
fn subnet(stage: &Stage, subnet: &str) -> Value {
    network(stage, json!({"ranges": [[{"subnet": subnet}]]}))
}

/// An ADD for a container of that id.
fn add<'a>(stage: &'a Stage, config: &Value, container: &str) -> Call<'a> {
    stage.call("ADD", "host-local", config).container(container)
}

/// The addresses that an ADD for a container gives.
#[track_caller]
fn given(stage: &Stage, config: &Value, container: &str) -> Vec<String> {
    addresses(&add(stage, config, container).run().result())
}

fn addresses(result: &Value) -> Vec<String> {
    let old = ["ip4", "ip6"].into_iter().filter_map(|key| result[key]["ip"].as_str());
    let new = result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str());
    old.chain(new).map(str::to_owned).collect()
}

/// Has an ADD of that id no effect but an error with these words?
#[track_caller]
fn refused(stage: &Stage, config: &Value, container: &str, words: &str) {
    let before = stage.site.files("/var/lib/cni/networks");
    add(stage, config, container).run().fails(999, words);
    assert_eq!(owned(before), owned(stage.site.files("/var/lib/cni/networks")));
}

/// The files of addresses, without the last given and the lock.
fn owned(files: std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    files
        .into_iter()
        .filter(|(path, _)| !path.contains("last_reserved") && !path.ends_with("/lock"))
        .collect()
}

fn last_given(stage: &Stage, set: usize, address: &str) {
    stage.site.write(&format!("/var/lib/cni/networks/mynet/last_reserved_ip.{set}"), address);
}
