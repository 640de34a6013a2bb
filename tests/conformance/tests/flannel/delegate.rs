//! What the delegate is asked, and which delegates are refused.

use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{SUBNET_ENV, V4, add, asked, del, network, records, spy};

scenarios! { "flannel":
    &["0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] =>
        a_delegate_is_told_the_subnet,
        wishes_of_the_network_come_before_defaults,
        addresses_of_another_plugin_get_the_subnet_too,
        del_asks_what_add_asked;
    &["0.3.1", "1.0.0"] =>
        what_the_runtime_has_is_handed_on,
        a_delegate_that_names_itself_is_refused,
        a_delegate_that_is_not_there_is_refused,
        a_failed_add_leaves_no_record,
        the_words_of_a_delegate_are_kept;
}

fn told(stage: &Stage, keys: Value) -> Value {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    let path = spy(stage);
    add(stage, &network(stage, keys)).set("CNI_PATH", path).run().result();
    asked(stage, "ADD")
}

fn a_delegate_is_told_the_subnet(stage: &Stage) {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.244.3.0/24"}]], "routes": [{"dst": "10.244.0.0/16"}]});
    let expected = json!({"cniVersion": stage.version, "name": "cbr0", "type": "spy", "ipMasq": false, "mtu": 1450, "ipam": ipam});
    assert_eq!(told(stage, json!({"delegate": {"type": "spy"}})), expected);
}

fn wishes_of_the_network_come_before_defaults(stage: &Stage) {
    let wishes =
        json!({"type": "spy", "mtu": 1300, "ipMasq": true, "isGateway": false, "any": [1, {"x": null}]});
    let mut told = told(stage, json!({"delegate": wishes}));
    told.as_object_mut().unwrap().retain(|key, _| !["ipam", "name", "cniVersion"].contains(&&**key));
    assert_eq!(told, wishes);
}

fn addresses_of_another_plugin_get_the_subnet_too(stage: &Stage) {
    let ipam = json!({"type": "my-ipam", "unknown-param": {"a": 1}, "routes": [{"dst": "192.168.9.0/24"}], "ranges": "mine"});
    let told = told(stage, json!({"delegate": {"type": "spy"}, "ipam": ipam}));
    let expected = json!({"type": "my-ipam", "unknown-param": {"a": 1}, "ranges": [[{"subnet": "10.244.3.0/24"}]],
        "routes": [{"dst": "192.168.9.0/24"}, {"dst": "10.244.0.0/16"}]});
    assert_eq!(told["ipam"], expected);
}

fn what_the_runtime_has_is_handed_on(stage: &Stage) {
    let runtime = json!({"mac": "02:00:00:00:00:09", "ips": ["10.244.3.77"]});
    let told = told(
        stage,
        json!({"delegate": {"type": "spy"}, "runtimeConfig": runtime, "args": {"cni": {}}, "dns": {}}),
    );
    assert_eq!((&told["runtimeConfig"], &told["args"], &told["dns"]), (&runtime, &Value::Null, &Value::Null));
}

/// flanneld may have written another subnet since, or the network may have been changed: what counts is what was done.
fn del_asks_what_add_asked(stage: &Stage) {
    let before = told(stage, json!({"delegate": {"type": "spy"}, "runtimeConfig": {"x": 1}}));
    stage.site.write(SUBNET_ENV, V4.replace("10.244.3.1", "10.244.99.1"));
    let changed = network(stage, json!({"delegate": {"type": "not-there", "mtu": 9000}}));
    del(stage, &changed).set("CNI_PATH", spy(stage)).run().nothing();
    assert_eq!(asked(stage, "DEL"), before);
    assert_eq!(records(stage), [""; 0]);
}

fn a_delegate_that_names_itself_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    for (delegate, words) in [
        (json!({"name": "x"}), "'delegate' dictionary must not have 'name' field, it'll be set by flannel"),
        (json!({"ipam": {}}), "'delegate' dictionary must not have 'ipam' field, it'll be set by flannel"),
        (json!({"type": 7}), "'delegate' dictionary, if present, must have (string) 'type' field"),
    ] {
        add(stage, &network(stage, json!({"delegate": delegate}))).run().fails(999, words);
    }
    assert_eq!(records(stage), [""; 0]);
}

fn a_delegate_that_is_not_there_is_refused(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    let config = network(stage, json!({"delegate": {"type": "not-there"}}));
    add(stage, &config).run().fails(999, "failed to find plugin \"not-there\" in path");
}

/// The runtime may ask for a DEL all the same, and then the delegate must be asked, too.
fn a_failed_add_leaves_no_record(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    stage.site.write(
        "/run/bin/half",
        "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ] || exit 1\ntouch /run/undone\n",
    );
    stage.site.sh("chmod +x /run/bin/half");
    let config = network(stage, json!({"delegate": {"type": "half"}}));
    let path = format!("/run/bin:{}", stage.plugins.folder.display());
    add(stage, &config).set("CNI_PATH", &*path).run().error();
    assert_eq!(records(stage), [""; 0]);
    del(stage, &config).set("CNI_PATH", path).run().nothing();
    assert!(stage.site.read("/run/undone").is_some(), "the delegate undoes what it did");
    assert_eq!(records(stage), [""; 0]);
}

fn the_words_of_a_delegate_are_kept(stage: &Stage) {
    stage.site.pod("pod1");
    stage.site.write(SUBNET_ENV, V4);
    let script = "#!/bin/sh\ncat >/dev/null\necho '{\"code\": 123, \"msg\": \"no more\", \"details\": \"of this\"}'\nexit 1\n";
    stage.site.write("/run/bin/no", script);
    stage.site.sh("chmod +x /run/bin/no");
    let path = format!("/run/bin:{}", stage.plugins.folder.display());
    add(stage, &network(stage, json!({"delegate": {"type": "no"}})))
        .set("CNI_PATH", path)
        .run()
        .fails(123, "no more of this");
}
