//! The flannel plugin with a delegate that only notes what it is told, beside what Go's plugin did.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod calls;

use calls::{Call, Outcome, Stage, call_of, golden, steps};
use flannel_cni::json::indented;
use serde_json::{Value, json};

const SUBNET_ENV: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// What Go's plugin keeps of the configuration of every test.
const SAVED: &str = r#"{"cniVersion":"1.1.0","ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],"type":"host-local"},"isGateway":true,"mtu":1450,"name":"cbr0","type":"bridge"}"#;

/// A node whose `bridge` notes its commands in `calls` and its last configuration in `seen`, gives `result`, and
/// fails while there is a file `fails`.
struct Node {
    stage: Stage,
}

impl Node {
    fn new() -> Self {
        let stage = Stage::new();
        let folder = stage.text("");
        stage.script(
            "bridge",
            &format!(
                "cd {folder}; echo $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME >>calls; cat >seen
                 if [ -e fails ]; then cat fails; exit 1; fi
                 if [ $CNI_COMMAND = ADD ]; then cat result; fi"
            ),
        );
        stage.write("subnet.env", SUBNET_ENV);
        stage.write("result", r#"{"cniVersion":"1.1.0","ips":[{"address":"10.244.3.2/24"}]}"#);
        Self { stage }
    }

    /// The configuration with the paths of this node.
    fn config(&self, more: Value) -> Value {
        let mut config = json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "flannel"});
        config["subnetFile"] = self.stage.text("subnet.env").into();
        config["dataDir"] = self.stage.text("data").into();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    }

    fn call(&self, command: &str) -> Call {
        self.stage.call("flannel", command).config(&self.config(json!({})))
    }

    /// A call that must succeed.
    fn done(&self, command: &str) -> Outcome {
        let outcome = self.call(command).run();
        assert_eq!(outcome.exit, 0, "{outcome:?}");
        outcome
    }

    /// The commands that the delegate got since it was asked last.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.stage.path("calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.stage.path("calls"));
        calls.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    /// The delegate's last configuration.
    fn seen(&self) -> Value {
        self.stage.read("seen").parse().unwrap()
    }

    fn records(&self) -> Vec<String> {
        self.stage.names("data")
    }
}

fn saved() -> Value {
    SAVED.parse().unwrap()
}

#[test]
fn add_hands_over_saves_and_answers_what_gos_plugin_does() {
    for case in
        ["0.3.1", "0.4.0", "1.0.0", "dual", "forceaddress", "ipam-routes", "ipmasq-false", "no-delegate"]
    {
        let (node, case) = (Node::new(), golden(&format!("flannel-{case}")));
        let (step, files) = (&steps(&case)[0], &case["left"]["files"]);
        node.stage.write("subnet.env", files["/run/flannel/subnet.env"].as_str().unwrap());
        node.stage.write("result", &step["stdout"].to_string());
        let config = node.config(step["stdin"].clone());
        let outcome = call_of(&node.stage, step).config(&config).run();
        assert_eq!((outcome.exit, outcome.stdout), (0, indented(&step["stdout"])), "{}", case["name"]);
        let state = files["/var/lib/cni/flannel/c0ffee01"].as_str().unwrap();
        assert_eq!(node.stage.read("data/c0ffee01"), state);
        assert_eq!(node.seen(), state.parse::<Value>().unwrap());
    }
}

#[test]
fn a_delegate_that_says_too_much_is_refused_and_nothing_is_done() {
    let (node, case) = (Node::new(), golden("flannel-bad-delegate"));
    for step in steps(&case) {
        let outcome = call_of(&node.stage, step).config(&node.config(step["stdin"].clone())).run();
        assert_eq!((outcome.exit, outcome.json()), (1, step["stdout"].clone()));
    }
    assert_eq!((node.calls(), node.records()), (vec![], vec![]));
}

#[test]
fn a_missing_subnet_env_is_try_again_later_with_gos_words_and_flannelds_reason() {
    let (node, case) = (Node::new(), golden("flannel-no-subnet-env"));
    std::fs::remove_file(node.stage.path("subnet.env")).unwrap();
    node.stage
        .write("state.json", r#"{"version":"0.1.0","ready":false,"reasons":["node n7 has no podCIDR"]}"#);
    let outcome = node.call("ADD").run();
    let text = steps(&case)[0]["stdout"]["msg"].as_str().unwrap();
    let text = text.replace("/run/flannel/subnet.env", &node.stage.text("subnet.env"));
    assert_eq!(
        outcome.json(),
        json!({"code": 11, "msg": text, "details": "flanneld says: node n7 has no podCIDR", "finding": "FL-0201"})
    );
    assert_eq!((node.calls(), node.records()), (vec![], vec![]));
}

#[test]
fn a_life_ends_with_nothing_left_and_a_second_end_asks_the_delegate_again() {
    let node = Node::new();
    node.done("ADD");
    assert_eq!(node.stage.read("data/c0ffee01"), SAVED);
    node.done("CHECK");
    assert_eq!(node.calls(), ["ADD"], "without a previous result there is nothing to check");
    for _ in 0..2 {
        let outcome = node.done("DEL");
        assert_eq!((&*outcome.stdout, &*outcome.stderr), ("", ""));
        assert_eq!((node.calls(), node.seen(), node.records()), (vec!["DEL".into()], saved(), vec![]));
    }
}

#[test]
fn what_go_saved_is_handed_over_as_it_is_whatever_the_configuration_says_now() {
    let node = Node::new();
    let state = golden("flannel-ipam-routes")["left"]["files"]["/var/lib/cni/flannel/c0ffee01"].clone();
    node.stage.write("data/c0ffee01", state.as_str().unwrap());
    std::fs::remove_file(node.stage.path("subnet.env")).unwrap();
    node.done("DEL");
    let expected: Value = state.as_str().unwrap().parse().unwrap();
    assert_eq!((node.calls(), node.seen(), node.records()), (vec!["DEL".into()], expected, vec![]));
}

#[test]
fn a_failed_add_leaves_no_record_and_del_asks_the_delegate_all_the_same() {
    let node = Node::new();
    node.stage.write("fails", r#"{"code":11,"msg":"busy","details":"soon"}"#);
    assert_eq!(node.call("ADD").run().json(), json!({"code": 11, "msg": "busy", "details": "soon"}));
    assert_eq!((node.calls(), node.records()), (vec!["ADD".into()], vec![]));
    std::fs::remove_file(node.stage.path("fails")).unwrap();
    node.done("DEL");
    assert_eq!((node.calls(), node.seen(), node.records()), (vec!["DEL".into()], saved(), vec![]));
}

#[test]
fn a_second_add_that_fails_leaves_the_record_of_the_first() {
    let node = Node::new();
    node.done("ADD");
    node.stage.write("subnet.env", &SUBNET_ENV.replace("10.244.3.1", "10.244.9.1"));
    node.stage.write("fails", r#"{"code":999,"msg":"eth0 already exists"}"#);
    assert_eq!(node.call("ADD").run().error(), (999, "eth0 already exists".into()));
    assert_eq!((node.stage.read("data/c0ffee01"), node.records()), (SAVED.into(), vec!["c0ffee01".into()]));
}

#[test]
fn a_record_stays_until_the_delegate_is_done() {
    let node = Node::new();
    node.done("ADD");
    node.stage.write("fails", r#"{"code":11,"msg":"busy"}"#);
    assert_eq!(node.call("DEL").run().error(), (11, "busy".into()));
    assert_eq!(node.records(), ["c0ffee01"], "for the next DEL");
    std::fs::remove_file(node.stage.path("fails")).unwrap();
    node.done("DEL");
    assert_eq!((node.seen(), node.records()), (saved(), vec![]));
}

#[test]
fn without_a_usable_record_del_makes_the_configuration_anew() {
    for content in ["", "{", "[]", "{\"name\":\"cbr0\"}", "\0\0"] {
        let node = Node::new();
        node.stage.write("data/c0ffee01", content);
        node.done("DEL");
        assert_eq!(
            (node.calls(), node.seen(), node.records()),
            (vec!["DEL".into()], saved(), vec![]),
            "{content:?}"
        );
    }
    let node = Node::new();
    node.stage.write("fails", r#"{"code":999,"msg":"no"}"#);
    node.stage.write("data/c0ffee01", "");
    assert_eq!(node.call("DEL").run().error(), (999, "no".into()));
    assert_eq!(node.records(), ["c0ffee01"]);
}

#[test]
fn a_container_that_could_never_be_attached_is_not_stuck() {
    let node = Node::new();
    std::fs::remove_file(node.stage.path("subnet.env")).unwrap();
    node.stage.write("fails", r#"{"code":999,"msg":"no IP ranges specified"}"#);
    let outcome = node.done("DEL");
    assert_eq!(
        (&*outcome.stdout, &*outcome.stderr),
        ("", "flannel: nothing was taken away: no IP ranges specified\n")
    );
    assert_eq!(node.calls(), ["DEL"]);
    let bad =
        node.stage.call("flannel", "DEL").config(&node.config(json!({"delegate": {"name": "x"}}))).run();
    assert_eq!((bad.exit, node.calls()), (0, vec![]));
    let long = node.call("DEL").env("CNI_CONTAINERID", "x".repeat(300)).run();
    assert_eq!((long.exit, node.calls()), (0, vec!["DEL".into()]));
}

#[test]
fn a_network_that_was_renamed_is_left_under_both_names() {
    let node = Node::new();
    node.stage.write("data/c0ffee01", &SAVED.replace("cbr0", "old"));
    node.done("DEL");
    assert_eq!(
        (node.calls(), node.seen(), node.records()),
        (vec!["DEL".into(), "DEL".into()], saved(), vec![])
    );
}

#[test]
fn two_interfaces_of_a_container_do_not_share_a_record() {
    let node = Node::new();
    let other = node.config(json!({"name": "other", "delegate": {"mtu": 1300}}));
    let second = |command| node.stage.call("flannel", command).env("CNI_IFNAME", "net1").config(&other).run();
    node.done("ADD");
    assert_eq!(second("ADD").exit, 0);
    assert_eq!(node.records(), ["c0ffee01", "c0ffee01-net1"]);
    node.done("DEL");
    assert_eq!((node.seen(), node.records()), (saved(), vec!["c0ffee01-net1".into()]));
    assert_eq!(second("DEL").exit, 0);
    assert_eq!((&node.seen()["name"], &node.seen()["mtu"]), (&json!("other"), &json!(1300)));
    assert_eq!(node.records(), [""; 0]);
}

#[test]
fn what_the_runtime_says_reaches_the_delegate() {
    let node = Node::new();
    let ports = json!({"portMappings": [{"hostPort": 80}]});
    let config = node.config(json!({"runtimeConfig": ports, "capabilities": {"portMappings": true}}));
    assert_eq!(node.stage.call("flannel", "ADD").config(&config).run().exit, 0);
    assert_eq!((&node.seen()["runtimeConfig"], node.seen().get("capabilities")), (&ports, None));
    node.done("DEL");
    assert_eq!(node.seen()["runtimeConfig"], ports, "also when the runtime does not say it again");
}

#[test]
fn the_result_of_add_is_handed_over_in_the_form_of_the_delegates_version() {
    let node = Node::new();
    node.stage.write("data/c0ffee01", &SAVED.replace("1.1.0", "0.3.1"));
    let previous = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.244.3.2/24"}]});
    let config = node.config(json!({"prevResult": previous}));
    assert_eq!(node.stage.call("flannel", "CHECK").config(&config).run().exit, 0);
    let (seen, calls) = (node.seen(), node.calls());
    assert_eq!(
        (&seen["prevResult"], &seen["cniVersion"], calls),
        (&previous, &json!("1.1.0"), vec!["CHECK".into()])
    );
    assert_eq!(node.stage.call("flannel", "DEL").config(&config).run().exit, 0);
    let old =
        json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.244.3.2/24"}], "dns": {}});
    assert_eq!((&node.seen()["prevResult"], &node.seen()["cniVersion"]), (&old, &json!("0.3.1")));
}

#[test]
fn gc_reaches_the_delegate_and_forgets_the_records_of_nobody() {
    let node = Node::new();
    for container in ["c1", "c2"] {
        assert_eq!(node.call("ADD").env("CNI_CONTAINERID", container).run().exit, 0);
    }
    node.calls();
    node.done("GC");
    assert_eq!((node.calls(), node.records()), (vec!["GC".into()], vec!["c1".into(), "c2".into()]));
    let valid = json!([{"containerID": "c2", "ifname": "eth0"}]);
    let keys = json!({"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid});
    let call = node.stage.call("flannel", "GC").config(&node.config(keys.clone()));
    assert_eq!(call.run().exit, 0);
    let mut expected = saved();
    expected.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    assert_eq!((node.seen(), node.records()), (expected, vec!["c2".into()]));
    node.stage.write("fails", r#"{"code":999,"msg":"no"}"#);
    let none = node.config(json!({"cni.dev/valid-attachments": []}));
    assert_eq!(node.stage.call("flannel", "GC").config(&none).run().error(), (999, "no".into()));
    assert_eq!(node.records(), [""; 0], "a failing delegate does not stop it");
}

#[test]
fn status_is_not_available_without_subnets_or_without_the_delegate() {
    let node = Node::new();
    let outcome = node.done("STATUS");
    assert_eq!((&*outcome.stdout, node.calls(), node.seen()), ("", vec!["STATUS".into()], saved()));
    node.stage.write("fails", r#"{"code":50,"msg":"no addresses"}"#);
    assert_eq!(node.call("STATUS").run().error(), (50, "no addresses".into()));
    node.stage.write("subnet.env", "FLANNEL_MTU=1450\n");
    let (code, text) = node.call("STATUS").run().error();
    let missing =
        "FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_IPMASQ";
    let words = format!(
        "failed to load flannel 'subnet.env' file: {} is missing {missing}. Check the flannel pod log for this node.",
        node.stage.text("subnet.env")
    );
    assert_eq!((code, text), (50, words));
    std::fs::remove_file(node.stage.path("subnet.env")).unwrap();
    assert_eq!(node.call("STATUS").run().error().0, 50);
}

#[test]
fn a_delegate_that_is_not_there_is_named() {
    let node = Node::new();
    let bin = node.stage.text("bin");
    let told = |kind: &str| {
        let config = node.config(json!({"delegate": {"type": kind}}));
        node.stage.call("flannel", "ADD").config(&config).run().error()
    };
    assert_eq!(told("macvlan"), (999, format!("failed to find plugin \"macvlan\" in path [{bin}]")));
    assert_eq!(told("../bridge"), (999, "invalid plugin name: ../bridge".into()));
    assert_eq!(told(""), (999, "no plugin name provided".into()));
    assert_eq!(node.records(), [""; 0]);
    std::fs::remove_file(node.stage.path("bin/bridge")).unwrap();
    assert_eq!(node.call("DEL").run().exit, 0, "nothing was attached");
    assert_eq!(node.call("STATUS").run().error().0, 50);
    node.stage.write("data/c0ffee01", "");
    let lost = format!("failed to find plugin \"bridge\" in path [{bin}]");
    assert_eq!(node.call("DEL").run().error(), (999, lost), "something was");
}

#[test]
fn a_container_in_our_own_namespace_never_reaches_the_delegate() {
    let node = Node::new();
    for command in ["ADD", "DEL"] {
        assert_eq!(node.call(command).env("CNI_NETNS", "/proc/self/ns/net").run().error().0, 8);
    }
    assert_eq!((node.calls(), node.records()), (vec![], vec![]));
}
