//! DEL when something is missing, and two interfaces of one pod: nothing may stay, whatever was lost.

use conformance_tests::{Stage, scenarios};

use super::{SUBNET_ENV, V4, add, del, plain, records, taken};

scenarios! { "flannel":
    &["0.3.1", "0.4.0", "1.0.0"] =>
        a_daemon_that_is_gone_is_no_reason_to_keep_a_pod,
        a_namespace_that_is_gone_costs_no_address,
        a_record_that_is_empty_costs_no_address,
        a_record_that_is_gone_costs_no_address,
        a_record_and_a_subnet_that_are_gone_cost_no_address,
        a_delegate_that_fails_is_asked_again,
        two_interfaces_of_a_pod_do_not_share_a_record;
}

const RECORD: &str = "/var/lib/cni/flannel/c0ffee01";

fn added(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    add(stage, &plain(stage)).run().result();
}

#[track_caller]
fn leaves_nothing(stage: &Stage) {
    del(stage, &plain(stage)).run().nothing();
    assert_eq!((taken(stage), records(stage)), (vec![], vec![]));
}

fn a_daemon_that_is_gone_is_no_reason_to_keep_a_pod(stage: &Stage) {
    added(stage);
    stage.site.sh(&format!("rm {SUBNET_ENV}"));
    leaves_nothing(stage);
    assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
}

fn a_namespace_that_is_gone_costs_no_address(stage: &Stage) {
    added(stage);
    stage.site.remove_pod("pod1");
    leaves_nothing(stage);
}

/// What a power failure leaves of a file that was being written.
fn a_record_that_is_empty_costs_no_address(stage: &Stage) {
    for content in ["", "{\"type\": \"bri"] {
        added(stage);
        stage.site.write(RECORD, content);
        leaves_nothing(stage);
        stage.site.remove_pod("pod1");
    }
}

fn a_record_that_is_gone_costs_no_address(stage: &Stage) {
    added(stage);
    stage.site.sh(&format!("rm {RECORD}"));
    leaves_nothing(stage);
    assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
}

fn a_record_and_a_subnet_that_are_gone_cost_no_address(stage: &Stage) {
    added(stage);
    stage.site.sh(&format!("rm {RECORD} {SUBNET_ENV}"));
    leaves_nothing(stage);
}

fn a_delegate_that_fails_is_asked_again(stage: &Stage) {
    added(stage);
    stage.site.write(
        "/run/bin/bridge",
        "#!/bin/sh\ncat >/dev/null\necho '{\"code\": 11, \"msg\": \"later\"}'\nexit 1\n",
    );
    stage.site.sh("chmod +x /run/bin/bridge");
    let path = format!("/run/bin:{}", stage.plugins.folder.display());
    del(stage, &plain(stage)).set("CNI_PATH", path).run().fails(11, "later");
    assert_eq!(records(stage), [RECORD], "without it the second try would do nothing");
    leaves_nothing(stage);
}

fn two_interfaces_of_a_pod_do_not_share_a_record(stage: &Stage) {
    added(stage);
    let mut second = plain(stage);
    second["name"] = "second".into();
    second["delegate"] = serde_json::json!({"bridge": "cni1"});
    second["ipam"] = serde_json::json!({"dataDir": "/var/lib/cni/other"});
    add(stage, &second).interface("net1").run().result();
    del(stage, &second).interface("net1").run().nothing();
    assert_eq!(stage.site.devices(Some("pod1")), ["eth0"]);
    leaves_nothing(stage);
    let other = stage.site.files("/var/lib/cni/other").into_keys();
    let other: Vec<_> = other.filter(|path| path.contains("/10.")).collect();
    assert_eq!(other, [""; 0]);
}
