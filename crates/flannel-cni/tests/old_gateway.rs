//! A node that got another subnet while pods run: the gateway of the old one stays for them, and not longer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod calls;

use std::path::Path;
use std::process::Command;

use calls::{Outcome, Stage, with_a_pod};
use serde_json::{Value, json};

const V6: &str = "FLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64\n";

/// A node whose pods are interfaces of one namespace.
struct Node<'a> {
    stage: Stage,
    pods: &'a Path,
}

impl Node<'_> {
    /// flanneld writes another subnet.
    fn subnet(&self, number: u8) {
        let v4 = format!("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.{number}.1/24\n");
        let v6 = V6.replace(":3::", &format!(":{number}::"));
        self.stage.write("subnet.env", &format!("{v4}{v6}FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"));
    }

    fn call(&self, command: &str, pod: &str, more: Value) -> Outcome {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "cbr0", "type": "flannel",
            "subnetFile": self.stage.text("subnet.env"), "dataDir": self.stage.text("flannel"),
            "ipam": {"dataDir": self.stage.text("networks")}, "delegate": {"isDefaultGateway": false},
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let call = self.stage.call("flannel", command).env("CNI_NETNS", self.pods).config(&config);
        let call = call.env("CNI_CONTAINERID", format!("c0ffee-{pod}")).env("CNI_IFNAME", pod);
        let outcome = call.run_folder(self.stage.path("run")).run();
        assert_eq!(outcome.exit, 0, "{outcome:?}");
        outcome
    }

    fn add(&self, pod: &str) {
        self.call("ADD", pod, json!({}));
    }

    fn del(&self, pod: &str) {
        self.call("DEL", pod, json!({}));
    }
}

fn on_a_node(test: impl FnOnce(&Node) + Send) {
    with_a_pod(|pods| {
        let node = Node { stage: Stage::new(), pods };
        node.subnet(3);
        test(&node);
    });
}

/// The addresses of the bridge but the link-local one.
fn gateways() -> Vec<String> {
    let out = Command::new("ip").args(["-o", "addr", "show", "dev", "cni0", "scope", "global"]).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let mut found: Vec<_> =
        text.lines().map(|line| line.split_whitespace().nth(3).unwrap().to_owned()).collect();
    found.sort();
    found
}

/// The gateways of some subnets.
fn of(numbers: &[u8]) -> Vec<String> {
    let v4 = numbers.iter().map(|n| format!("10.244.{n}.1/24"));
    v4.chain(numbers.iter().map(|n| format!("fd00:244:0:{n}::1/64"))).collect()
}

#[test]
fn the_gateway_of_an_earlier_subnet_goes_with_the_last_pod_that_used_it() {
    on_a_node(|node| {
        node.add("old1");
        node.add("old2");
        node.subnet(4);
        node.add("new1");
        assert_eq!(gateways(), of(&[3, 4]));
        node.del("old1");
        assert_eq!(gateways(), of(&[3, 4]), "another pod uses it");
        node.del("old2");
        assert_eq!(gateways(), of(&[4]));
        node.del("new1");
        assert_eq!(gateways(), of(&[4]), "today's gateway stays, pods or not");
    });
}

#[test]
fn a_subnet_that_came_back_keeps_its_gateway() {
    on_a_node(|node| {
        node.add("old1");
        node.subnet(4);
        node.add("new1");
        node.subnet(3);
        node.del("old1");
        assert_eq!(gateways(), of(&[3, 4]), "3 is today's again, and 4 is used");
        node.del("new1");
        assert_eq!(gateways(), of(&[3]));
    });
}

#[test]
fn addresses_that_flannel_did_not_give_stay() {
    on_a_node(|node| {
        node.add("old1");
        let foreign = "ip addr add 192.168.9.1/24 dev cni0 && ip addr add 10.244.77.1/24 dev cni0";
        assert!(Command::new("sh").args(["-c", foreign]).status().unwrap().success());
        node.subnet(4);
        node.add("new1");
        node.del("old1");
        let mut expected = of(&[4]);
        expected.splice(1..1, ["10.244.77.1/24".to_owned(), "192.168.9.1/24".to_owned()]);
        assert_eq!(gateways(), expected);
    });
}

#[test]
fn while_nobody_knows_todays_subnet_every_gateway_stays() {
    on_a_node(|node| {
        node.add("old1");
        std::fs::remove_file(node.stage.path("subnet.env")).unwrap();
        node.del("old1");
        assert_eq!(gateways(), of(&[3]));
    });
}

#[test]
fn the_gateway_of_pods_that_are_collected_goes_with_them() {
    on_a_node(|node| {
        node.add("old1");
        node.subnet(4);
        node.add("new1");
        let valid = json!([{"containerID": "c0ffee-new1", "ifname": "new1"}]);
        node.call("GC", "new1", json!({"cni.dev/valid-attachments": valid}));
        assert_eq!((gateways(), node.stage.names("flannel")), (of(&[4]), vec!["c0ffee-new1".into()]));
    });
}
