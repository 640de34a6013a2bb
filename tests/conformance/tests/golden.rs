//! What Go's plugins did, captured from running ones: the same calls must have the same outcome.
//!
//! Compared are exit codes, the codes of errors, results, and what is left: files, rules of both firewalls, devices,
//! addresses and routes on both sides. MAC addresses, names of pairs and words are not.

use conformance_tests::{Scenario, Stage, not_run};
use serde_json::Value;

use crate::picture::{iptables, nft, view};

macro_rules! replays {
    ($($plugin:literal $version:literal: $($name:ident = $file:literal),+;)+) => {
        /// A scenario for each file of `golden/`.
        pub const SCENARIOS: &[Scenario] = &[$($(Scenario {
            module: module_path!(),
            name: stringify!($name),
            plugin: $plugin,
            versions: &[$version],
            peers: false,
            play: |stage| replay(stage, include_str!(concat!("../golden/", $file, ".json"))),
        }),+),+];
    };
}

replays! {
    "bridge" "0.1.0":
        bridge_0_1_0 = "bridge-0.1.0";
    "bridge" "0.2.0":
        bridge_0_2_0 = "bridge-0.2.0";
    "bridge" "0.3.0":
        bridge_0_3_0 = "bridge-0.3.0";
    "bridge" "0.3.1":
        bridge_0_3_1 = "bridge-0.3.1";
    "bridge" "0.4.0":
        bridge_0_4_0 = "bridge-0.4.0";
    "bridge" "1.0.0":
        bridge_1_0_0 = "bridge-1.0.0",
        bridge_dual = "bridge-dual",
        bridge_dual_ipmasq_iptables = "bridge-dual-ipmasq-iptables",
        bridge_hairpin_mtu_promisc_off = "bridge-hairpin-mtu-promisc-off",
        bridge_ipmasq_iptables = "bridge-ipmasq-iptables",
        bridge_ipmasq_nftables = "bridge-ipmasq-nftables",
        bridge_mac_dns = "bridge-mac-dns",
        bridge_promisc = "bridge-promisc";
    "bridge" "1.1.0":
        bridge_1_1_0 = "bridge-1.1.0",
        bridge_life_1_1_0 = "bridge-life-1.1.0",
        bridge_life_ipmasq_iptables = "bridge-life-ipmasq-iptables",
        errors_bridge = "errors-bridge";
    "flannel" "0.3.1":
        flannel_0_3_1 = "flannel-0.3.1",
        flannel_forceaddress = "flannel-forceaddress";
    "flannel" "0.4.0":
        flannel_0_4_0 = "flannel-0.4.0";
    "flannel" "1.0.0":
        flannel_1_0_0 = "flannel-1.0.0",
        flannel_bad_delegate = "flannel-bad-delegate",
        flannel_dual = "flannel-dual",
        flannel_ipam_routes = "flannel-ipam-routes",
        flannel_ipmasq_false = "flannel-ipmasq-false",
        flannel_life = "flannel-life",
        flannel_no_delegate = "flannel-no-delegate",
        flannel_no_subnet_env = "flannel-no-subnet-env";
    "flannel" "1.1.0":
        errors_flannel = "errors-flannel";
    "host-local" "0.1.0":
        host_local_0_1_0 = "host-local-0.1.0";
    "host-local" "0.2.0":
        host_local_0_2_0 = "host-local-0.2.0";
    "host-local" "0.3.0":
        host_local_0_3_0 = "host-local-0.3.0";
    "host-local" "0.3.1":
        host_local_0_3_1 = "host-local-0.3.1";
    "host-local" "0.4.0":
        host_local_0_4_0 = "host-local-0.4.0";
    "host-local" "1.0.0":
        host_local_1_0_0 = "host-local-1.0.0",
        host_local_check = "host-local-check",
        host_local_exhausted = "host-local-exhausted",
        host_local_keys = "host-local-keys",
        host_local_requested = "host-local-requested";
    "host-local" "1.1.0":
        errors_host_local = "errors-host-local",
        host_local_1_1_0 = "host-local-1.1.0";
    "loopback" "0.1.0":
        loopback_0_1_0 = "loopback-0.1.0";
    "loopback" "0.2.0":
        loopback_0_2_0 = "loopback-0.2.0";
    "loopback" "0.3.0":
        loopback_0_3_0 = "loopback-0.3.0";
    "loopback" "0.3.1":
        loopback_0_3_1 = "loopback-0.3.1";
    "loopback" "0.4.0":
        loopback_0_4_0 = "loopback-0.4.0";
    "loopback" "1.0.0":
        loopback_1_0_0 = "loopback-1.0.0";
    "loopback" "1.1.0":
        errors_loopback = "errors-loopback",
        loopback_1_1_0 = "loopback-1.1.0";
    "portmap" "1.0.0":
        portmap_iptables = "portmap-iptables",
        portmap_iptables_conditions = "portmap-iptables-conditions",
        portmap_iptables_del = "portmap-iptables-del",
        portmap_iptables_dual = "portmap-iptables-dual",
        portmap_iptables_masqall = "portmap-iptables-masqall",
        portmap_iptables_snat_off = "portmap-iptables-snat-off",
        portmap_markbit = "portmap-markbit",
        portmap_markbit_extchain = "portmap-markbit-extchain",
        portmap_nftables = "portmap-nftables",
        portmap_nftables_conditions = "portmap-nftables-conditions",
        portmap_nftables_del = "portmap-nftables-del",
        portmap_nftables_dual = "portmap-nftables-dual",
        portmap_nftables_masqall = "portmap-nftables-masqall",
        portmap_nftables_snat_off = "portmap-nftables-snat-off",
        portmap_no_ports = "portmap-no-ports";
    "portmap" "1.1.0":
        errors_portmap = "errors-portmap";
}

fn replay(stage: &Stage, golden: &str) {
    if !stage.plugins.speaks("host-local", "1.1.0") {
        not_run("the golden files are of newer plugins");
    }
    let golden: Value = serde_json::from_str(golden).unwrap();
    stage.site.pod("pod1");
    prepare(stage, &golden);
    let mut results = Vec::new();
    for (number, step) in golden["steps"].as_array().unwrap().iter().enumerate() {
        let result = call(stage, step, &results).unwrap_or_else(|why| panic!("step {}: {why}", number + 1));
        results.push((step["stdout"].clone(), result));
    }
    compare(stage, &golden["left"]);
}

/// What was there before the first call: flanneld's file, and a chain of somebody else.
fn prepare(stage: &Stage, golden: &Value) {
    let path = "/run/flannel/subnet.env";
    if let Some(content) = golden["left"]["files"][path].as_str() {
        stage.site.write(path, content);
    }
    if let Some(chain) = golden["steps"][0]["stdin"]["externalSetMarkChain"].as_str() {
        stage.site.sh(&format!("iptables -t nat -N {chain}"));
    }
}

/// Makes the call of a step, and says what is not as it was; gives the result.
fn call(stage: &Stage, step: &Value, results: &[(Value, Value)]) -> Result<Value, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut config = step["stdin"].clone();
    if let Some((_, ours)) =
        results.iter().find(|(golden, _)| !golden.is_null() && *golden == config["prevResult"])
    {
        config["prevResult"] = ours.clone();
    }
    let input = if let Value::String(text) = &config { text.clone() } else { config.to_string() };
    let call = stage
        .call("", &text(&step["plugin"]), &config)
        .text(input)
        .unset("CNI_NETNS")
        .unset("CNI_CONTAINERID");
    let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"];
    let given = names.into_iter().filter(|name| !step["env"][name].is_null());
    let answer = given.fold(call, |call, name| call.set(name, text(&step["env"][name]))).run();
    let ours = serde_json::from_str(&answer.stdout).unwrap_or(Value::Null);
    let (was, is) = (outcome(&step["exit"], &step["stdout"]), outcome(&answer.status.into(), &ours));
    if was == is { Ok(ours) } else { Err(format!("was {was}\n    and is {is}{}", answer.stderr)) }
}

/// The exit code with the code of an error or with a result, without what differs from run to run.
fn outcome(exit: &Value, stdout: &Value) -> String {
    match stdout {
        Value::Object(error) if *exit != 0 => format!("{exit}: code {}", error["code"]),
        Value::Object(_) => format!("{exit}: {}", without_accidents(stdout.clone())),
        _ => exit.to_string(),
    }
}

fn without_accidents(mut result: Value) -> Value {
    for interface in result["interfaces"].as_array_mut().into_iter().flatten() {
        let name = interface["name"].as_str().unwrap_or_default();
        // A name or a MAC that the configuration gives stays.
        if name.len() == 12 && name.starts_with("veth") {
            interface["name"] = "VETH".into();
        }
        let given = interface["mac"]
            .as_str()
            .is_some_and(|mac| mac.starts_with("aa:aa:aa:") || mac.starts_with("00:"));
        if !given {
            interface["mac"] = "MAC".into();
        }
    }
    result.sort_all_objects();
    result
}

fn compare(stage: &Stage, left: &Value) {
    let lines = |key: &str| {
        let lines = left[key].as_array().unwrap();
        lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut files = stage.site.files("/var/lib/cni");
    files.extend(stage.site.files("/run/flannel"));
    let files: Vec<_> =
        files.into_iter().map(|(path, content)| (path, content.replace("\r\n", "\n"))).collect();
    let golden = left["files"].as_object().unwrap().iter();
    let mut golden: Vec<_> =
        golden.map(|(path, text)| (path.clone(), text.as_str().unwrap().to_owned())).collect();
    golden.sort();
    assert_eq!(files, golden, "files");
    assert_eq!(
        iptables(&stage.site.sh("iptables-save")),
        iptables(&lines("iptables").join("\n")),
        "iptables"
    );
    assert_eq!(nft(&stage.site.nft()), nft(&lines("nft")), "nftables");
    let host = stage.site.sh("ip addr; ip route; ip -6 route; bridge -d link");
    assert_eq!(view(&host), view(&lines("host").join("\n")), "the host");
    let pod = stage.site.sh("ip -n pod1 addr; ip -n pod1 route; ip -n pod1 -6 route");
    assert_eq!(view(&pod), view(&lines("pod").join("\n")), "the pod");
}
