//! Nodes of Kubernetes that change, go and come back otherwise: the kernels of all others follow exactly; and what a
//! node hears of itself.

use std::fs;
use std::time::Duration;

use cluster_tests::{Picture, VXLAN, VXLAN_DUAL, is_ready, readyz, wait_until};
use flannel_lab::{Node, Signal};
use serde_json::{Value, json};
use store_tests::{Fleet, Need, NodeObject, scenarios, tell, time_to};

scenarios! {
    &[Need::Peers] => a_peer_of_both_families_that_changes_one_is_followed_in_that_one,
        a_peer_that_comes_back_with_another_subnet_is_followed, a_node_says_what_it_is_as_go_does,
        a_node_without_a_subnet_waits_and_says_why, status_shows_the_address_that_the_store_holds;
}

const LONG: Duration = Duration::from_secs(60);
const PREFIX: &str = "flannel.alpha.coreos.com";

/// What a kernel has of the tunnels: the only lines that may differ.
fn changes(before: &Picture, node: &Node) -> Vec<String> {
    before.changes_to(&Picture::of(node))
}

fn a_peer_of_both_families_that_changes_one_is_followed_in_that_one() {
    let fleet = Fleet::kubernetes("kube-dual", 1, VXLAN_DUAL).running();
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("master1"));
    let peer = NodeObject::dual(100);
    fleet.time_to_follow_node(&peer);
    fleet.wait_route(&peer.subnets[1]);
    // One family after the other gets another address; then another MAC.
    let steps: [(&str, Value, [&str; 2]); 4] = [
        ("public-ip", json!("10.0.0.77"), ["dst 10.0.0.100", "dst 10.0.0.77"]),
        ("public-ipv6", json!("fd00:10::77"), ["dst fd00:10::64", "dst fd00:10::77"]),
        (
            "backend-data",
            json!(r#"{"VNI":1,"VtepMAC":"02:00:00:00:03:01"}"#),
            ["02:00:00:00:01:64", "02:00:00:00:03:01"],
        ),
        (
            "backend-v6-data",
            json!(r#"{"VNI":1,"VtepMAC":"02:00:00:00:03:02"}"#),
            ["02:00:00:00:02:64", "02:00:00:00:03:02"],
        ),
    ];
    for (name, value, [old, new]) in steps {
        let before = Picture::of(node);
        kubernetes.annotate(&peer.name, &json!({format!("{PREFIX}/{name}"): value})).unwrap();
        let took = time_to("the kernel to follow", LONG, || {
            let changes = changes(&before, node);
            let (gone, come): (Vec<_>, Vec<_>) = changes.iter().partition(|line| line.starts_with('-'));
            !changes.is_empty()
                && gone.len() == come.len()
                && gone.iter().all(|line| line.contains(old))
                && come.iter().all(|line| line.contains(new))
        });
        tell(format!("{name} is followed after {took:?}: {:?}", changes(&before, node)));
    }
}

fn a_peer_that_comes_back_with_another_subnet_is_followed() {
    let fleet = Fleet::kubernetes("kube-back", 1, VXLAN).running();
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("master1"));
    let peer = NodeObject::v4(100);
    fleet.time_to_follow_node(&peer);
    let before = Picture::of(node);
    kubernetes.delete(&peer.path()).unwrap();
    let anew = NodeObject { subnets: vec!["10.244.101.0/24".to_owned()], ..peer };
    tell(format!("followed after {:?}", fleet.time_to_follow_node(&anew)));
    wait_until("the old subnet to be gone", || {
        let changes = changes(&before, node);
        let (gone, come): (Vec<_>, Vec<_>) = changes.iter().partition(|line| line.starts_with('-'));
        let exact = gone.len() == 2
            && come.len() == 2
            && gone.iter().all(|line| line.contains("10.244.100."))
            && come.iter().all(|line| line.contains("10.244.101."));
        if exact { Ok(()) } else { Err(format!("{changes:#?}")) }
    });
}

/// As Go's own test of Kubernetes has it, and as the captured objects are.
fn a_node_says_what_it_is_as_go_does() {
    let fleet = Fleet::kubernetes("kube-says", 1, VXLAN);
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("master1"));
    // A node without a single annotation ended Go's program.
    kubernetes.patch("/api/v1/nodes/master1", &json!({"metadata": {"annotations": null}})).unwrap();
    node.start_flanneld(["--kube-api-url", &kubernetes.url()]).unwrap();
    is_ready(node);
    let object = kubernetes.node("master1").unwrap();
    let mac = cluster_tests::vxlan_mac(node, "flannel.1");
    assert_eq!(object["metadata"]["annotations"], store_tests::go_annotations("10.0.0.20", &mac));
    let subnet = object["spec"]["podCIDR"].as_str().unwrap().replace(".0/24", ".1/24");
    let env = fs::read_to_string(node.path("/run/flannel/subnet.env")).unwrap();
    let expected = format!(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET={subnet}\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
    );
    assert_eq!(env, expected);
    wait_until("the condition", || {
        let object = kubernetes.node("master1").unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let words =
            |condition: &Value| ["type", "status", "reason", "message"].map(|key| condition[key].clone());
        let expected = ["NetworkUnavailable", "False", "FlannelIsUp", "Flannel is running on this node"];
        let found = conditions.iter().any(|condition| words(condition) == expected.map(|word| json!(word)));
        if found { Ok(()) } else { Err(format!("{conditions:?}")) }
    });
    kubernetes.annotate("master1", &json!({format!("{PREFIX}/public-ip-overwrite"): "172.18.0.2"})).unwrap();
    node.restart_flanneld().unwrap();
    let took = time_to("the overwritten address", LONG, || {
        let object = kubernetes.node("master1").unwrap();
        object["metadata"]["annotations"][format!("{PREFIX}/public-ip")] == "172.18.0.2"
    });
    tell(format!("public-ip-overwrite is followed {took:?} after a restart"));
}

fn a_node_without_a_subnet_waits_and_says_why() {
    let fleet = Fleet::kubernetes("kube-waits", 1, VXLAN);
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("master1"));
    kubernetes.controllers().stop(Signal::KILL).unwrap();
    kubernetes.delete_node("master1").unwrap();
    kubernetes.make_node(node).unwrap();
    node.start_flanneld([""; 0]).unwrap();
    wait_until("the reason", || {
        let body = node.http_get(8081, "/readyz").map(|(_, body)| body).unwrap_or_default();
        if body.contains("podCIDR") { Ok(()) } else { Err(format!("{body}\n{}", node.log())) }
    });
    tell(format!("readyz says: {:?}", readyz(node)));
    wait_until("state.json to say so, too", || {
        let state = fs::read_to_string(node.path("/run/flannel/state.json")).unwrap_or_default();
        if state.contains("podCIDR") { Ok(()) } else { Err(state) }
    });
    assert!(node.flanneld().lives(), "it waits");
    kubernetes.start_controllers(VXLAN).unwrap();
    kubernetes.wait_pod_subnet("master1").unwrap();
    let took = time_to("the node to be ready", LONG, || node.readiness().is_ok());
    tell(format!("ready {took:?} after it got a subnet"));
    node.add_pod("pod1").unwrap();
    node.flanneld().stop(Signal::TERM).unwrap();
}

fn status_shows_the_address_that_the_store_holds() {
    let fleet = Fleet::kubernetes("kube-overwrites", 1, VXLAN);
    let (kubernetes, node) = (fleet.kubernetes().unwrap(), fleet.node("master1"));
    let overwrite = json!({format!("{PREFIX}/public-ip-overwrite"): "203.0.113.9"});
    kubernetes.annotate("master1", &overwrite).unwrap();
    node.start_flanneld(["--kube-api-url", &kubernetes.url(), "--public-ip", "198.51.100.7"]).unwrap();
    is_ready(node);
    let flannelctl = cluster_tests::flanneld_path().with_file_name("flannelctl");
    let line = "announced as 203.0.113.9, which the lease store has instead of 198.51.100.7\n";
    wait_until("the address in the status", || {
        let text = node.run(flannelctl.to_str().unwrap(), ["status"]).map_err(|why| why.to_string())?;
        if text.contains(line) { Ok(()) } else { Err(text) }
    });
}
