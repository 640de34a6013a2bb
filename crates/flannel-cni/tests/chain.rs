//! The whole chain in real namespaces: flannel, bridge and host-local in one process, beside what Go's did.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod calls;

use std::path::Path;

use calls::{Outcome, Stage, call_of, golden, inside, steps, with_a_pod};
use flannel_kernel::stack::Stack;
use serde_json::{Value, json};

/// A result with the names and hardware addresses that are made up at every call replaced.
fn settled(mut result: Value, pod: &str) -> Value {
    for interface in result["interfaces"].as_array_mut().into_iter().flatten() {
        assert_eq!(interface["mac"].as_str().unwrap().len(), 17);
        interface["mac"] = "MAC".into();
        if interface["name"].as_str().unwrap().starts_with("veth") {
            interface["name"] = "VETH".into();
        }
        if interface["sandbox"] == pod {
            interface["sandbox"] = "POD".into();
        }
    }
    result
}

fn call(stage: &Stage, step: &Value, command: &str, pod: &Path) -> Outcome {
    let mut config = step["stdin"].clone();
    config["subnetFile"] = stage.text("subnet.env").into();
    config["dataDir"] = stage.text("flannel").into();
    config["ipam"]["dataDir"] = stage.text("networks").into();
    let call = call_of(stage, step).env("CNI_COMMAND", command).env("CNI_NETNS", pod).config(&config);
    call.run_folder(stage.path("run")).run()
}

#[test]
fn a_pod_is_attached_and_detached_as_by_gos_plugins() {
    for case in ["0.3.1", "0.4.0", "1.0.0", "dual", "forceaddress", "no-delegate"] {
        let case = golden(&format!("flannel-{case}"));
        let (stage, step) = (Stage::new(), &steps(&case)[0]);
        stage.write("subnet.env", case["left"]["files"]["/run/flannel/subnet.env"].as_str().unwrap());
        with_a_pod(|pod| {
            let path = pod.to_str().unwrap();
            let added = call(&stage, step, "ADD", pod);
            assert_eq!((added.exit, &*added.stderr), (0, ""), "{}", added.stdout);
            let expected = settled(step["stdout"].clone(), "/run/netns/pod1");
            assert_eq!(settled(added.json(), path), expected, "{}", case["name"]);
            assert_eq!(stage.names("flannel"), ["c0ffee01"]);
            assert!(
                inside(pod, || Stack::open().unwrap().device("eth0".parse().unwrap())).unwrap().is_some()
            );
            for _ in 0..2 {
                let removed = call(&stage, step, "DEL", pod);
                assert_eq!((removed.exit, &*removed.stdout, &*removed.stderr), (0, "", ""));
            }
            assert!(
                inside(pod, || Stack::open().unwrap().device("eth0".parse().unwrap())).unwrap().is_none()
            );
            let left: Vec<_> = stage
                .names("networks/cbr0")
                .into_iter()
                .filter(|name| name.starts_with(['1', 'f']))
                .collect();
            assert_eq!((stage.names("flannel"), left), (vec![], vec![]));
        });
    }
}

#[test]
fn check_gc_and_status_walk_the_chain() {
    let stage = Stage::new();
    let case = golden("flannel-1.0.0");
    let mut step = steps(&case)[0].clone();
    step["stdin"]["cniVersion"] = "1.1.0".into();
    stage.write("subnet.env", case["left"]["files"]["/run/flannel/subnet.env"].as_str().unwrap());
    with_a_pod(|pod| {
        assert_eq!(call(&stage, &step, "STATUS", pod).exit, 0);
        let added = call(&stage, &step, "ADD", pod);
        step["stdin"]["prevResult"] = added.json();
        let checked = call(&stage, &step, "CHECK", pod);
        assert_eq!((checked.exit, &*checked.stdout), (0, ""));
        step["stdin"]["cni.dev/valid-attachments"] = json!([{"containerID": "c0ffee01", "ifname": "eth0"}]);
        assert_eq!(call(&stage, &step, "GC", pod).exit, 0);
        assert_eq!(call(&stage, &step, "CHECK", pod).exit, 0, "what is valid stays");
        step["stdin"]["cni.dev/valid-attachments"] = json!([]);
        assert_eq!(call(&stage, &step, "GC", pod).exit, 0);
        assert_eq!(
            (stage.names("flannel"), stage.path("networks/cbr0/10.244.3.2").exists()),
            (vec![], false)
        );
    });
}

#[test]
fn del_frees_everything_whatever_was_lost_before() {
    let case = golden("flannel-1.0.0");
    let step = &steps(&case)[0];
    for lost in [&["flannel/c0ffee01"][..], &["subnet.env"], &["flannel/c0ffee01", "subnet.env"]] {
        let stage = Stage::new();
        stage.write("subnet.env", case["left"]["files"]["/run/flannel/subnet.env"].as_str().unwrap());
        with_a_pod(|pod| {
            assert_eq!(call(&stage, step, "ADD", pod).exit, 0);
            assert!(stage.path("networks/cbr0/10.244.3.2").exists());
            lost.iter().for_each(|file| std::fs::remove_file(stage.path(file)).unwrap());
            let removed = call(&stage, step, "DEL", pod);
            assert_eq!((removed.exit, &*removed.stderr), (0, ""), "{lost:?}");
            assert!(!stage.path("networks/cbr0/10.244.3.2").exists(), "{lost:?}");
            assert!(
                inside(pod, || Stack::open().unwrap().device("eth0".parse().unwrap())).unwrap().is_none()
            );
            assert_eq!(stage.names("flannel"), [""; 0]);
        });
    }
}
