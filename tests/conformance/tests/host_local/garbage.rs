//! GC and STATUS of host-local, which Go's has not.

use conformance_tests::version::WITH_GC;
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{given, network, owned, subnet};

scenarios! { "host-local":
    WITH_GC =>
        garbage_collection_frees_what_belongs_to_nobody,
        garbage_collection_with_an_empty_list_frees_all,
        garbage_collection_without_a_list_frees_nothing,
        an_entry_without_interface_stays_while_its_container_does,
        status_of_a_network_with_free_addresses_is_good,
        status_of_a_full_network_is_not_available;
}

const MYNET: &str = "/var/lib/cni/networks/mynet";

fn collect(stage: &Stage, valid: Value) {
    let mut config = subnet(stage, "10.1.2.0/24");
    config["cni.dev/valid-attachments"] = valid.clone();
    config["cni.dev/attachments"] = valid;
    stage
        .call("GC", "host-local", &config)
        .unset("CNI_CONTAINERID")
        .unset("CNI_NETNS")
        .unset("CNI_IFNAME")
        .run()
        .nothing();
}

fn names(stage: &Stage) -> Vec<String> {
    let files = owned(stage.site.files(MYNET)).into_iter();
    files.map(|(path, _)| path.rsplit('/').next().unwrap().to_owned()).collect()
}

fn garbage_collection_frees_what_belongs_to_nobody(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/24");
    for container in ["a", "b", "c"] {
        given(stage, &config, container);
    }
    stage.site.write(&format!("{MYNET}/10.1.2.9"), "b\r\neth1");
    stage.site.write(&format!("{MYNET}/10.1.2.10"), "");
    stage.site.write("/var/lib/cni/networks/other/10.7.0.2", "x\r\neth0");
    collect(stage, json!([{"containerID": "b", "ifname": "eth0"}]));
    assert_eq!(names(stage), ["10.1.2.3"]);
    assert!(stage.site.read("/var/lib/cni/networks/other/10.7.0.2").is_some(), "another network's");
    assert_eq!(stage.site.read(&format!("{MYNET}/last_reserved_ip.0")).as_deref(), Some("10.1.2.4"));
}

fn garbage_collection_with_an_empty_list_frees_all(stage: &Stage) {
    given(stage, &subnet(stage, "10.1.2.0/24"), "a");
    collect(stage, json!([]));
    assert_eq!(names(stage), [""; 0]);
}

/// A runtime that does not say what is valid knows nothing: no reason to take anything away.
fn garbage_collection_without_a_list_frees_nothing(stage: &Stage) {
    given(stage, &subnet(stage, "10.1.2.0/24"), "a");
    collect(stage, Value::Null);
    assert_eq!(names(stage), ["10.1.2.2"]);
}

fn an_entry_without_interface_stays_while_its_container_does(stage: &Stage) {
    stage.site.write(&format!("{MYNET}/10.1.2.8"), "a");
    stage.site.write(&format!("{MYNET}/10.1.2.9"), "b");
    collect(stage, json!([{"containerID": "a", "ifname": "eth7"}]));
    assert_eq!(names(stage), ["10.1.2.8"]);
}

fn status(stage: &Stage, config: &Value) -> conformance_tests::Answer {
    stage
        .call("STATUS", "host-local", config)
        .unset("CNI_CONTAINERID")
        .unset("CNI_NETNS")
        .unset("CNI_IFNAME")
        .run()
}

fn status_of_a_network_with_free_addresses_is_good(stage: &Stage) {
    let config = subnet(stage, "10.1.2.0/29");
    status(stage, &config).nothing();
    given(stage, &config, "a");
    status(stage, &config).nothing();
}

fn status_of_a_full_network_is_not_available(stage: &Stage) {
    let config =
        network(stage, json!({"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/30"}]]}));
    given(stage, &config, "a");
    status(stage, &config).fails(50, "10.1.3");
}
