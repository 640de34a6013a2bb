//! The loopback plugin in real namespaces, beside what Go's plugin answered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod calls;

use std::path::Path;

use calls::{Call, Stage, golden, inside, steps, with_a_pod};
use flannel_kernel::address::Dad;
use flannel_kernel::stack::{Device, Stack};
use serde_json::{Value, json};

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

fn lo(stack: &mut Stack) -> Device {
    stack.device("lo".parse().unwrap()).unwrap().unwrap()
}

/// Whether `lo` is up, and its addresses, in the namespace of this thread.
fn state() -> (bool, Vec<String>) {
    let mut stack = Stack::open().unwrap();
    let device = lo(&mut stack);
    let addresses = stack.addresses(device.index).unwrap();
    (device.up, addresses.iter().map(|found| found.address.to_string()).collect())
}

fn call(stage: &Stage, command: &str, netns: &Path) -> Call {
    stage.call("loopback", command).env("CNI_NETNS", netns).env("CNI_IFNAME", "lo")
}

fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "lo", "type": "loopback"})
}

/// What Go's plugin gave, in the form that the version has: Go's gives the newest form to all.
fn expected(version: &str, netns: &Path) -> Value {
    let case = golden(&format!("loopback-{version}"));
    let mut result = steps(&case)[0]["stdout"].clone();
    result["interfaces"][0]["sandbox"] = netns.to_str().unwrap().into();
    match version {
        "1.0.0" | "1.1.0" => result,
        "0.1.0" | "0.2.0" => {
            json!({"cniVersion": version, "ip4": {"ip": "127.0.0.1/8"}, "ip6": {"ip": "::1/128"}, "dns": {}})
        }
        _ => {
            result["dns"] = json!({});
            result["ips"][0]["version"] = "4".into();
            result["ips"][1]["version"] = "6".into();
            result
        }
    }
}

#[test]
fn add_raises_lo_and_answers_in_the_form_of_the_version_and_del_lowers_it() {
    let stage = Stage::new();
    for version in VERSIONS {
        with_a_pod(|pod| {
            let run = |command| call(&stage, command, pod).config(&config(version)).run();
            let added = run("ADD");
            assert_eq!((added.exit, added.json(), &*added.stderr), (0, expected(version, pod), ""));
            let both = vec!["127.0.0.1/8".to_owned(), "::1/128".to_owned()];
            assert_eq!(inside(pod, state), (true, both));
            let removed = run("DEL");
            assert_eq!((removed.exit, &*removed.stdout, &*removed.stderr), (0, "", ""));
            assert_eq!(inside(pod, state), (false, vec!["127.0.0.1/8".to_owned()]));
            assert_eq!(run("DEL"), removed, "a second time there is nothing to do");
        });
    }
}

#[test]
fn check_tells_whether_lo_is_up() {
    let stage = Stage::new();
    with_a_pod(|pod| {
        let run = |command| call(&stage, command, pod).config(&config("1.0.0")).run();
        assert_eq!(run("CHECK").error(), (999, "loopback interface is down".into()));
        run("ADD");
        let checked = run("CHECK");
        assert_eq!((checked.exit, &*checked.stdout), (0, ""));
    });
}

#[test]
fn behind_other_plugins_their_result_is_the_answer() {
    let stage = Stage::new();
    with_a_pod(|pod| {
        let previous =
            json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.2/24"}], "dns": {}});
        let mut config = config("0.4.0");
        config["prevResult"] = previous.clone();
        assert_eq!(call(&stage, "ADD", pod).config(&config).run().json(), previous);
        assert!(inside(pod, state).0);
        config["prevResult"]["cniVersion"] = "1.0.0".into();
        let text = "could not parse prevResult: result type supports [0.3.0 0.3.1 0.4.0] but unmarshalled CNIVersion is \"1.0.0\"";
        assert_eq!(call(&stage, "ADD", pod).config(&config).run().error(), (999, text.into()));
    });
}

#[test]
fn an_address_that_does_not_belong_there_is_told() {
    let stage = Stage::new();
    with_a_pod(|pod| {
        inside(pod, || {
            let mut stack = Stack::open().unwrap();
            let index = lo(&mut stack).index;
            stack.add_address(index, "10.0.0.1/8".parse().unwrap(), Dad::Disabled).unwrap();
        });
        let text = "loopback interface found with non-loopback address \"10.0.0.1\"";
        assert_eq!(call(&stage, "ADD", pod).config(&config("1.0.0")).run().error(), (999, text.into()));
    });
}

#[test]
fn a_namespace_that_is_gone_is_an_error_for_add_and_nothing_to_do_for_del() {
    let stage = Stage::new();
    stage.write("left-behind", "");
    let run = |command, netns: &str| call(&stage, command, &stage.path(netns)).config(&config("1.0.0")).run();
    let gone = stage.text("gone");
    let text = format!("failed to open netns {gone:?}: failed to Statfs {gone:?}: no such file or directory");
    assert_eq!(run("ADD", "gone").error(), (999, text));
    let (code, text) = run("ADD", "left-behind").error();
    assert_eq!(code, 999);
    assert!(text.contains("unknown FS magic on "), "{text}");
    for netns in ["gone", "left-behind"] {
        assert_eq!((run("DEL", netns).exit, &*run("DEL", netns).stdout), (0, ""));
    }
    let unknown = stage.call("loopback", "DEL").env("CNI_NETNS", "").config(&config("1.0.0")).run();
    assert_eq!((unknown.exit, &*unknown.stdout), (0, ""));
}

#[test]
fn the_hosts_own_lo_is_never_touched() {
    let stage = Stage::new();
    with_a_pod(|_| {
        let ours = Path::new("/proc/self/ns/net");
        let before = state();
        for command in ["ADD", "DEL"] {
            let text = "plugin's netns and netns from CNI_NETNS should not be the same";
            let outcome = call(&stage, command, ours).config(&config("1.0.0")).run();
            assert_eq!(outcome.error(), (8, text.into()));
            assert_eq!(state(), before);
        }
        let added =
            call(&stage, "ADD", ours).env("CNI_NETNS_OVERRIDE", "TRUE").config(&config("1.0.0")).run();
        assert_eq!((added.exit, state().0), (0, true), "who overrides the check gets what he asks for");
        let removed = call(&stage, "DEL", ours).env("CNI_NETNS_OVERRIDE", "1").config(&config("1.0.0")).run();
        assert_eq!((removed.exit, state().0), (0, true), "but lo stays up");
    });
}
