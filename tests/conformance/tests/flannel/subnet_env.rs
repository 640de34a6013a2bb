//! How flanneld's file is read.

use conformance_tests::{Stage, scenarios};
use serde_json::json;

use super::{SUBNET_ENV, V4, add, asked, network, plain, records, spy};

scenarios! { "flannel":
    &["0.3.1", "1.0.0"] =>
        a_missing_file_says_where_to_look,
        missing_keys_are_named,
        values_that_are_none_are_refused,
        the_rest_of_the_file_is_ignored,
        a_key_without_a_value_is_an_error_and_no_crash,
        lines_of_windows_are_read_as_well;
}

fn a_missing_file_says_where_to_look(stage: &Stage) {
    stage.site.pod("pod1");
    let (_, words) = add(stage, &plain(stage)).run().error();
    for part in
        ["failed to load flannel 'subnet.env' file: ", SUBNET_ENV, "Check the flannel pod log for this node."]
    {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(records(stage), [""; 0]);
}

fn missing_keys_are_named(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, "FLANNEL_NETWORK=10.244.0.0/16\n");
    let (_, words) = add(stage, &plain(stage)).run().error();
    assert!(words.contains(&format!("{SUBNET_ENV} is missing FLANNEL_SUBNET,")), "{words}");
    assert!(words.contains("FLANNEL_MTU, FLANNEL_IPMASQ"), "{words}");
}

fn values_that_are_none_are_refused(stage: &Stage) {
    stage.site.pod("pod1");
    for (good, bad) in [
        ("NETWORK=10.244.0.0/16", "NETWORK=10.244.0.0"),
        ("SUBNET=10.244.3.1/24", "SUBNET=nonsense"),
        ("MTU=1450", "MTU=-1"),
        ("MTU=1450", "MTU=many"),
    ] {
        stage.site.write(SUBNET_ENV, V4.replace(good, bad));
        add(stage, &plain(stage)).run().error();
    }
    assert_eq!(records(stage), [""; 0]);
}

fn the_rest_of_the_file_is_ignored(stage: &Stage) {
    stage.site.pod("pod1");
    let odd = format!("# a comment\n\nOTHER=1\nFLANNEL_MTU=9000\n{V4}FLANNEL_NEW_KEY=x\n");
    stage.site.write(SUBNET_ENV, odd);
    let path = spy(stage);
    add(stage, &network(stage, json!({"delegate": {"type": "spy"}}))).set("CNI_PATH", path).run().result();
    assert_eq!(asked(stage, "ADD")["mtu"], 1450, "the last line of a key counts");
}

fn a_key_without_a_value_is_an_error_and_no_crash(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4.replace("FLANNEL_MTU=1450", "FLANNEL_MTU"));
    let (_, words) = add(stage, &plain(stage)).run().error();
    assert!(words.contains("FLANNEL_MTU"), "{words}");
}

fn lines_of_windows_are_read_as_well(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4.replace('\n', "\r\n"));
    add(stage, &plain(stage)).run().result();
    assert_eq!(stage.site.addresses(Some("pod1"), "eth0"), ["10.244.3.2/24"]);
}
