//! The verbs about one node, run inside nodes of a lab with the real flanneld and the real kernel. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::pipe;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use flannel_lab::{Flanneld, Lab, LabOptions, Node, Signal, Topology, unique_name, wait_for};
use serde_json::{Value, json};

const FLANNELCTL: &str = env!("CARGO_BIN_EXE_flannelctl");
const REPORT: &str = "/run/flannel/state.json";

fn lab(flanneld: Flanneld) -> Lab {
    let topology = Topology::flat(2).unwrap();
    let name = unique_name("ctl");
    Lab::up(LabOptions { name, topology, flanneld, pods_per_node: 0, ..LabOptions::default() }).unwrap()
}

/// A lab whose nodes know each other, and the node to ask.
fn settled() -> Lab {
    let lab = lab(Flanneld::Started);
    let node = lab.node("master1").unwrap();
    wait_for("both nodes to be in the report", Duration::from_secs(10), || {
        let report = fs::read_to_string(node.path(REPORT)).map_err(|error| error.to_string())?;
        if report.contains("worker1") { Ok(()) } else { Err(report) }
    })
    .unwrap();
    lab
}

fn ask(node: &Node, words: &str) -> Output {
    node.command(FLANNELCTL, words.split_whitespace()).output().unwrap()
}

/// Exit code, standard output, standard error.
fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {:?}", told(output)))
}

fn subnet_of(lab: &Lab, owner: &str) -> String {
    let listing = Command::new(FLANNELCTL).args(["lease", "list", "-o", "json"]).arg(lab.store()).output();
    let listing = json_of(&listing.unwrap());
    let leases = listing["leases"].as_array().unwrap();
    let lease = leases.iter().find(|lease| lease["owner"] == owner).unwrap();
    lease["subnets"]["v4"].as_str().unwrap().to_owned()
}

#[test]
fn a_healthy_node_is_ready_and_nothing_differs() {
    let lab = settled();
    let node = lab.node("master1").unwrap();
    let (code, text, errors) = told(&ask(node, "status"));
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.starts_with("master1 is ready\n\nflanneld "), "{text}");
    assert!(text.contains("\npeers      1 ok\n"), "{text}");
    let rules = "\nrules      forwarding, untracked tunnel packets, in iptables (nf_tables)\n";
    assert!(text.contains(rules), "{text}");
    let status = json_of(&ask(node, "status -o json"));
    assert_eq!((&status["ready"], &status["daemon"]["life"]), (&json!(true), &json!("running")));
    assert_eq!(status["peers"][0]["owner"], "worker1");
    assert_eq!(status["peers"][0]["reached"], json!([{"how": "tunnel", "link": "flannel.1"}]));
    assert_eq!(status["peers"][0]["state"], "ok");
    let (code, text, _) = told(&ask(node, "diff"));
    assert_eq!((code, text.as_str()), (0, "nothing differs: all 9 objects are as they should be\n"));
    assert_eq!(json_of(&ask(node, "diff -o json")), json!({"changes": [], "foreign": [], "unseen": []}));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(told(&ask(node, "version")).1, format!("flannelctl {version}\nflanneld {version}\n"));
}

#[test]
fn a_route_that_is_lost_while_flanneld_hangs_or_is_gone_is_the_only_difference() {
    let lab = settled();
    let (node, subnet) = (lab.node("master1").unwrap(), subnet_of(&lab, "worker1"));
    node.flanneld().signal(Signal::STOP);
    wait_for("flanneld to stand still", Duration::from_secs(5), || {
        let status = json_of(&ask(node, "status -o json"));
        if status["daemon"]["life"] == "suspended" { Ok(()) } else { Err(status.to_string()) }
    })
    .unwrap();
    node.ip(&format!("route del {subnet}")).unwrap();
    assert_one_route_is_missing(node, &subnet);
    assert_first_line(node, "master1 is ready, but flanneld is suspended");
    node.flanneld().stop(Signal::KILL).unwrap();
    assert_one_route_is_missing(node, &subnet);
    assert_first_line(node, "master1 is ready, but flanneld is not running");
    assert_eq!(json_of(&ask(node, "status -o json"))["daemon"]["life"], "not_seen");
}

/// The first line of a node whose flanneld does nothing, which the exit code tells too.
fn assert_first_line(node: &Node, line: &str) {
    let (code, text, _) = told(&ask(node, "status"));
    assert_eq!((code, text.lines().next().unwrap()), (3, line));
    assert_eq!(ask(node, "status -o json").status.code(), Some(3));
}

fn assert_one_route_is_missing(node: &Node, subnet: &str) {
    let gateway = subnet.split('/').next().unwrap();
    let line = format!("+ route {subnet} via {gateway} dev flannel.1 onlink\n");
    assert_eq!(told(&ask(node, "diff")), (1, line, String::new()));
    let route = json!({"route": {
        "destination": subnet, "kind": "unicast", "via": gateway, "link": "flannel.1", "onlink": true,
        "protocol": 70,
    }});
    let expected = json!({"changes": [{"create": route}], "foreign": [], "unseen": []});
    assert_eq!(json_of(&ask(node, "diff -o json")), expected);
    let status = json_of(&ask(node, "status -o json"));
    assert_eq!((&status["ready"], &status["peers"][0]["state"]), (&json!(true), &json!("broken")));
    assert_eq!(status["peers"][0]["why"], json!(["route missing"]));
    assert!(told(&ask(node, "status")).1.contains("route missing\n"));
}

#[test]
fn what_others_put_into_the_pod_network_is_named_and_is_no_difference() {
    let lab = settled();
    let (node, router) = (lab.node("master1").unwrap(), lab.node("worker1").unwrap().v4());
    node.ip(&format!("route add 10.244.77.0/24 via {router}")).unwrap();
    let expected = format!(
        "nothing differs: all 9 objects are as they should be\nnot ours, left alone:\n  \
         route 10.244.77.0/24 via {router} dev eth0 protocol boot\n"
    );
    assert_eq!(told(&ask(node, "diff")), (0, expected, String::new()));
}

/// What is wrong with a bridge is told by status at once, and by the daemon when it looks next.
const LOOK: Duration = Duration::from_secs(90);

#[test]
fn pods_that_started_under_another_mtu_are_counted() {
    let lab = settled();
    let node = lab.node("master1").unwrap();
    let _pods = [node.add_pod("pod1").unwrap(), node.add_pod("pod2").unwrap()];
    assert!(told(&ask(node, "status")).1.contains("backend    vxlan, pods have MTU 1450\n"));
    lab.write_net_conf(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1400}}"#).unwrap();
    let line = "backend    vxlan, pods get MTU 1350; 2 of 2 pods have another: 1450\n";
    wait_for("the pods to be counted", Duration::from_secs(30), || {
        let text = told(&ask(node, "status")).1;
        if text.contains(line) { Ok(()) } else { Err(text) }
    })
    .unwrap();
    assert_eq!(json_of(&ask(node, "status -o json"))["node"]["pod_mtus"], json!({"1450": 2}));
}

#[test]
fn pods_behind_a_bridge_that_is_down_are_told_with_the_blackhole_route_as_the_remedy() {
    let lab = settled();
    let node = lab.node("master1").unwrap();
    let _pod = node.add_pod("pod1").unwrap();
    node.ip("link set cni0 down").unwrap();
    let note = "cni0 is down: the pods of this node are cut off, and packets for them leave by the default route, in \
                clear; with --ip-blackhole-route they are dropped; raise it with `ip link set cni0 up`";
    let (code, text, _) = told(&ask(node, "status"));
    assert_eq!(code, 0);
    assert!(text.contains(&format!("\n  ! {note} [FL-0205]\n")), "{text}");
    wait_for("/readyz to tell it, too", LOOK, || {
        let (_, body) = node.http_get(8081, "/readyz").map_err(|why| why.to_string())?;
        if body.lines().any(|line| line == note) { Ok(()) } else { Err(body) }
    })
    .unwrap();
    // What status has to say beside it, such as that bridges do not ask netfilter, /readyz says as well.
    let status = json_of(&ask(node, "status -o json"));
    let (_, body) = node.http_get(8081, "/readyz").unwrap();
    for told in status["notes"].as_array().unwrap() {
        assert!(body.lines().any(|line| line == told), "{told} is not in {body}");
    }
}

#[test]
fn a_node_without_flanneld_is_told_what_to_do() {
    let lab = lab(Flanneld::NotStarted);
    let node = lab.node("master1").unwrap();
    let (code, text, errors) = told(&ask(node, "status"));
    assert_eq!((code, text.as_str()), (1, ""));
    assert!(
        errors.starts_with("flannelctl: flanneld has not written /run/flannel/state.json: is it running?")
    );
    let (code, text, errors) = told(&ask(node, "diff --subnet-file /run/other/blue.env"));
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(errors.contains("flanneld has not written /run/other/blue.state.json"), "{errors}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(told(&ask(node, "version")).1, format!("flannelctl {version}\n"));
}

#[test]
fn a_report_that_is_damaged_or_of_another_version_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |report: &str, verb: &str| {
        fs::write(folder.path().join("state.json"), report).unwrap();
        let mut command = Command::new(FLANNELCTL);
        told(&command.arg(verb).arg("--subnet-file").arg(folder.path().join("subnet.env")).output().unwrap())
    };
    let (code, _, errors) = ask("{\"version\": ", "status");
    assert!(code == 1 && errors.contains("state.json is damaged: EOF while parsing"), "{errors}");
    let (code, _, errors) = ask(r#"{"version": "99.0.0"}"#, "diff");
    assert!(code == 2 && errors.contains("was written by flanneld 99.0.0"), "{errors}");
}

#[test]
fn whoever_may_read_the_report_needs_no_privilege_except_to_look_at_rules() {
    let lab = settled();
    let node = lab.node("master1").unwrap();
    let as_nobody = |words: &str| {
        let drop = ["--reuid=65534", "--regid=65534", "--clear-groups", FLANNELCTL];
        told(&node.command("setpriv", drop.into_iter().chain(words.split_whitespace())).output().unwrap())
    };
    let (code, _, errors) = as_nobody("status");
    assert!(code == 1 && errors.contains("Permission denied") && errors.contains("sudo"), "{errors}");
    fs::set_permissions(node.path(REPORT), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text, errors) = as_nobody("status");
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.contains("\npeers      1 ok\n"), "{text}");
    let unseen = "rules iptables filter cannot be looked at: ";
    assert!(text.starts_with("master1 is ready\n") && text.contains(unseen), "{text}");
    let (code, text, _) = as_nobody("diff");
    let known = "nothing differs in 7 of 9 objects, and of the others nothing is known:\n";
    assert!(code == 2 && text.starts_with(known) && text.contains(unseen), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let lab = settled();
    let node = lab.node("master1").unwrap();
    for words in ["status", "status -o json", "diff", "version", "completions bash"] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = node.command(FLANNELCTL, words.split_whitespace()).stdout(writer).output().unwrap();
        assert_eq!(told(&output), (0, String::new(), String::new()), "{words}");
    }
}

#[test]
fn a_lease_is_listed_until_it_is_released() {
    let store = tempfile::tempdir().unwrap();
    let leases = store.path().join("leases");
    fs::create_dir(&leases).unwrap();
    fs::write(store.path().join("config.json"), r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#)
        .unwrap();
    let lease = r#"{"Owner":"w2","Since":1,"PublicIP":"10.0.0.2","PublicIPv6":null,"BackendType":"vxlan",
        "BackendData":{"VNI":1,"VtepMAC":"0e:53:5b:a8:75:1d"}}"#;
    fs::write(leases.join("10.244.2.0-24.json"), lease).unwrap();
    let ask = |words: &str| {
        let words = words.split_whitespace();
        told(&Command::new(FLANNELCTL).arg("lease").args(words).arg(store.path()).output().unwrap())
    };
    let table = "NODE  SUBNET         PUBLIC IP  BACKEND\nw2    10.244.2.0/24  10.0.0.2   vxlan\n";
    assert_eq!(ask("list"), (0, table.to_owned(), String::new()));
    assert_eq!(ask("list --lease-dir").1, table);
    assert_eq!(ask("release w2 --lease-dir").1, "released 10.244.2.0/24 of w2\n");
    assert_eq!(ask("list").1, "no leases\n");
    let (code, _, errors) = ask("release w2 --lease-dir");
    assert!(code == 1 && errors.contains("w2 holds no lease in"), "{errors}");
    fs::write(leases.join("10.244.3.0-24.json"), "{").unwrap();
    assert!(ask("list").1.contains("10.244.3.0-24.json holds no lease"), "{:?}", ask("list"));
}
