//! Go's other plugins work beside ours and below them, and ours below theirs.

use std::path::Path;

use conformance_tests::listing::Remains;
use conformance_tests::traffic::{At, Protocol, Server, ask};
use conformance_tests::version::COMMON;
use conformance_tests::{Chain, Plugins, PodInterface, Stage, not_run, scenarios};
use serde_json::{Value, json};

scenarios! { "host-local":
    COMMON =>
        our_bridge_takes_fixed_addresses_of_static,
        our_bridge_takes_addresses_of_gos_host_local,
        gos_bridge_takes_addresses_of_our_host_local,
        our_ports_lead_into_a_pod_of_ptp;
    &["0.4.0", "1.0.0"] => a_chain_of_ours_goes_on_with_tuning_bandwidth_and_firewall;
}

/// Our folder, and that of the plugins under test.
fn folders<'a>(stage: &'a Stage, ours: &'a Plugins) -> (&'a Path, &'a Path) {
    if stage.plugins.is_ours() {
        not_run("ours beside others needs others");
    }
    (&ours.folder, &stage.plugins.folder)
}

fn chain<'a>(stage: &'a Stage, folders: &[&Path], plugins: Vec<Value>) -> Chain<'a> {
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    Chain {
        site: &stage.site,
        folders: folders.iter().map(|folder| folder.to_path_buf()).collect(),
        inner: None,
        version: stage.version,
        name: "mynet",
        plugins,
        capabilities: json!({"portMappings": mappings}),
    }
}

/// A folder with one plugin of each side: a bridge, and who gives the addresses.
fn mixed(stage: &Stage, bridge: &Path, addresses: &Path) -> &'static Path {
    let (bridge, addresses) = (bridge.display(), addresses.display());
    stage.site.sh(&format!("mkdir /run/mixed && ln -s {bridge}/bridge {addresses}/host-local /run/mixed"));
    Path::new("/run/mixed")
}

fn bridge(ipam: Value) -> Value {
    json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipam": ipam})
}

fn host_local() -> Value {
    json!({"type": "host-local", "subnet": "10.1.2.0/24"})
}

fn life(stage: &Stage, chain: &Chain, address: &str) {
    stage.site.pod("pod1");
    let result = chain.add(PodInterface::of("pod1"));
    assert_eq!(stage.site.addresses(Some("pod1"), "eth0"), [address]);
    stage.site.sh("ip netns exec pod1 ping -c 1 -W 2 10.1.2.1");
    chain.del(PodInterface::of("pod1"), &result);
    assert_eq!(
        (stage.site.devices(Some("pod1")), stage.site.devices(None)),
        (vec![], vec!["br0".to_owned()])
    );
    let files = stage.site.files("/var/lib/cni").into_keys();
    assert_eq!(files.filter(|path| path.contains("/10.")).collect::<Vec<_>>(), [""; 0]);
}

fn our_bridge_takes_fixed_addresses_of_static(stage: &Stage) {
    let ours = Plugins::ours();
    let (ours, theirs) = folders(stage, &ours);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.2.77/24", "gateway": "10.1.2.1"}]});
    life(stage, &chain(stage, &[ours, theirs], vec![bridge(ipam)]), "10.1.2.77/24");
}

fn our_bridge_takes_addresses_of_gos_host_local(stage: &Stage) {
    let ours = Plugins::ours();
    let (ours, theirs) = folders(stage, &ours);
    let mixed = mixed(stage, ours, theirs);
    let chain = Chain { folders: vec![ours.into()], ..chain(stage, &[], vec![bridge(host_local())]) };
    // The folder of links is on the site only; what is run there is found by the plugin itself.
    life(stage, &chain.with_path(mixed), "10.1.2.2/24");
}

fn gos_bridge_takes_addresses_of_our_host_local(stage: &Stage) {
    let ours = Plugins::ours();
    let (ours, theirs) = folders(stage, &ours);
    let mixed = mixed(stage, theirs, ours);
    let chain = Chain { folders: vec![theirs.into()], ..chain(stage, &[], vec![bridge(host_local())]) };
    life(stage, &chain.with_path(mixed), "10.1.2.2/24");
}

fn our_ports_lead_into_a_pod_of_ptp(stage: &Stage) {
    let ours = Plugins::ours();
    let (ours, theirs) = folders(stage, &ours);
    let mut ipam = host_local();
    ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let chain =
        chain(stage, &[ours, theirs], vec![json!({"type": "ptp", "ipMasq": true, "ipam": ipam}), portmap]);
    stage.site.pod("pod1");
    let result = chain.add(PodInterface::of("pod1"));
    let server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "0.0.0.0:80");
    for (from, to) in [(At::Host, "127.0.0.1:8080"), (At::Pod("pod1"), "10.1.2.1:8080")] {
        let answer = ask(&stage.site, from, Protocol::Tcp, to);
        assert!(answer.as_ref().is_ok_and(|answer| answer.starts_with("pod1 ")), "{from:?} {to}: {answer:?}");
    }
    drop(server);
    chain.del(PodInterface::of("pod1"), &result);
    assert_eq!(leftovers(&stage.site.remains()), [""; 0]);
}

/// What belongs to the pod.
fn leftovers(remains: &Remains) -> Vec<String> {
    let lines =
        remains.devices.iter().chain(&remains.nft).chain(&remains.iptables).chain(remains.files.keys());
    let of_pod = |line: &&String| {
        ["10.1.2.2", "10.244.3.2", "pod1", "bwp", "veth"].iter().any(|mark| line.contains(mark))
    };
    lines.filter(of_pod).filter(|line| !line.contains("last_reserved")).cloned().collect()
}

fn a_chain_of_ours_goes_on_with_tuning_bandwidth_and_firewall(stage: &Stage) {
    let ours = Plugins::ours();
    let (ours, theirs) = folders(stage, &ours);
    let env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    stage.site.write("/run/flannel/subnet.env", env);
    let plugins = vec![
        json!({"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}),
        json!({"type": "portmap", "capabilities": {"portMappings": true}}),
        json!({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "mac": "02:42:00:00:00:77"}),
        json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 8_000_000,
            "egressRate": 8_000_000, "egressBurst": 8_000_000}),
        json!({"type": "firewall", "backend": "iptables"}),
    ];
    let chain = chain(stage, &[ours, theirs], plugins);
    stage.site.pod("pod1");
    let result = chain.add(PodInterface::of("pod1"));
    assert_eq!(stage.site.sysctl(Some("pod1"), "net/ipv4/conf/eth0/arp_filter"), "1");
    assert_eq!(stage.site.device(Some("pod1"), "eth0")["address"], "02:42:00:00:00:77");
    assert!(stage.site.devices(None).iter().any(|name| name.starts_with("bwp")));
    let server = Server::start(&stage.site, At::Pod("pod1"), "pod1", "0.0.0.0:80");
    let answer = ask(&stage.site, At::Host, Protocol::Tcp, "127.0.0.1:8080");
    assert!(answer.as_ref().is_ok_and(|answer| answer.starts_with("pod1 ")), "{answer:?}");
    drop(server);
    chain.del(PodInterface::of("pod1"), &result);
    assert_eq!(leftovers(&stage.site.remains()), [""; 0]);
}
