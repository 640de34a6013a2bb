//! cnitool, the runtime of CNI's own authors.

use std::path::Path;

use conformance_tests::plugins::peer;
use conformance_tests::version::WITH_CHECK;
use conformance_tests::{Site, Stage, scenarios};
use serde_json::Value;

use super::{answers, bridge, kube_flannel, leaves_nothing, node};

scenarios! { peers "portmap":
    &["0.3.1", "0.4.0", "1.0.0", "1.1.0"] => cnitool_adds_and_removes_a_pod_of_a_bridge;
    WITH_CHECK => cnitool_checks_a_pod;
    &["1.1.0"] => cnitool_collects_what_a_reboot_left, cnitool_asks_for_the_status;
}

const PORTS: &str = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
    {"hostPort": 8080, "containerPort": 80, "protocol": "udp"}]}"#;

fn cnitool(stage: &Stage, site: &Site, verb: &str) -> Result<String, String> {
    let mut command = site.command(peer("cnitool"));
    command
        .args([verb, "cbr0", "/run/netns/pod1"])
        .env("CNI_PATH", &stage.plugins.folder)
        .env("CAP_ARGS", PORTS);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr) + &text(&output.stdout))
    }
}

/// flannel where there is one that speaks the version, else what it asks of bridge.
fn network(stage: &Stage) -> Value {
    if stage.plugins.speaks("flannel", stage.version) {
        kube_flannel(stage.version)
    } else {
        bridge(stage.version)
    }
}

fn cnitool_adds_and_removes_a_pod_of_a_bridge(stage: &Stage) {
    for network in [network(stage), bridge(stage.version)] {
        let site = node(&network);
        site.pod("pod1");
        let result: Value = serde_json::from_str(&cnitool(stage, &site, "add").unwrap()).unwrap();
        assert_eq!(result["ips"][0]["address"], "10.244.3.2/24");
        site.sh("ip -n pod1 link set lo up; ip netns exec pod1 ping -c 1 -W 2 192.0.2.2");
        answers(&site, Path::new("/run/netns/pod1"));
        cnitool(stage, &site, "del").unwrap();
        cnitool(stage, &site, "del").unwrap();
        site.remove_pod("pod1");
        leaves_nothing(&site);
    }
}

fn cnitool_checks_a_pod(stage: &Stage) {
    let site = node(&bridge(stage.version));
    site.pod("pod1");
    cnitool(stage, &site, "add").unwrap();
    cnitool(stage, &site, "check").unwrap();
    site.sh("ip -n pod1 addr del 10.244.3.2/24 dev eth0");
    cnitool(stage, &site, "check").unwrap_err();
    cnitool(stage, &site, "del").unwrap();
    site.remove_pod("pod1");
    leaves_nothing(&site);
}

fn cnitool_collects_what_a_reboot_left(stage: &Stage) {
    let site = node(&network(stage));
    site.pod("pod1");
    cnitool(stage, &site, "add").unwrap();
    site.remove_pod("pod1");
    site.sh("rm -r /var/lib/cni/results");
    cnitool(stage, &site, "gc").unwrap();
    assert!(
        site.read("/var/lib/cni/networks/cbr0/10.244.3.2").is_some(),
        "cnitool names no pods, so none is garbage"
    );
    site.sh("rm /var/lib/cni/networks/cbr0/10.244.3.2; iptables -t nat -F; iptables -t nat -X; rm -rf /var/lib/cni/flannel/*");
    site.pod("pod1");
    cnitool(stage, &site, "add").unwrap();
    site.remove_pod("pod1");
    cnitool(stage, &site, "gc").unwrap();
    leaves_nothing(&site);
}

fn cnitool_asks_for_the_status(stage: &Stage) {
    let site = node(&network(stage));
    cnitool(stage, &site, "status").unwrap();
}
