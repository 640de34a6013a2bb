//! An upgrade and a downgrade: what one program made, the other checks and removes.
//!
//! Each scenario plays both ways: Go's ADD and our CHECK and DEL, then our ADD and theirs. In the end nothing may be
//! left that Go's own DEL would not leave.

pub mod flannel;

use std::path::Path;

use conformance_tests::listing::Remains;
use conformance_tests::version::COMMON;
use conformance_tests::{Chain, Plugins, PodInterface, Stage, not_run, scenarios};
use serde_json::{Value, json};

scenarios! { "portmap":
    COMMON =>
        addresses_are_freed_by_the_other,
        a_bridge_is_used_and_a_pod_is_removed_by_the_other,
        masquerade_of_iptables_is_removed_by_the_other,
        masquerade_of_nftables_is_removed_by_the_other,
        the_check_of_macs_is_removed_by_the_other,
        ports_of_iptables_are_removed_by_the_other,
        ports_of_nftables_are_removed_by_the_other,
        one_of_each_live_side_by_side;
    &["0.4.0", "1.0.0", "1.1.0"] =>
        what_one_made_the_other_checks;
    &["1.1.0"] => what_go_made_our_garbage_collection_frees;
}

/// The plugins under test stand for Go's; ours are on the other side.
fn two_sides<'a>(stage: &'a Stage, ours: &'a Plugins) -> [(&'a Path, &'a Path); 2] {
    if stage.plugins.is_ours() {
        not_run("a cross test is between ours and others");
    }
    [(&stage.plugins.folder, &ours.folder), (&ours.folder, &stage.plugins.folder)]
}

fn network<'a>(stage: &'a Stage, plugins: Vec<Value>) -> Chain<'a> {
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp", "hostIP": "127.0.0.1"}]);
    Chain {
        site: &stage.site,
        folders: Vec::new(),
        inner: None,
        version: stage.version,
        name: "mynet",
        plugins,
        capabilities: json!({"portMappings": mappings}),
    }
}

fn bridge(keys: Value) -> Value {
    let ranges = json!([[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]);
    let mut bridge = json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "ranges": ranges}});
    bridge.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    bridge
}

fn portmap(backend: &str) -> Value {
    json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}})
}

/// What is left by Go's plugins alone, which is the measure: shared chains and tables, the bridge, the last address.
fn measure(stage: &Stage, chain: &Chain) -> Remains {
    stage.site.pod("pod0");
    let alone = chain.with(&[&stage.plugins.folder]);
    let result = alone.add(PodInterface::of("pod0"));
    alone.del(PodInterface::of("pod0"), &result);
    stage.site.remove_pod("pod0");
    without_last_given(stage.site.remains())
}

/// Which address was given last is no matter of who gave it.
fn without_last_given(mut remains: Remains) -> Remains {
    remains.files.retain(|path, _| !path.contains("last_reserved_ip"));
    remains
}

fn both_ways(stage: &Stage, plugins: Vec<Value>) {
    let ours = Plugins::ours();
    let sides = two_sides(stage, &ours);
    let chain = network(stage, plugins);
    let expected = measure(stage, &chain);
    for (before, after) in sides {
        stage.site.pod("pod1");
        let result = chain.with(&[before]).add(PodInterface::of("pod1"));
        chain.with(&[after]).del(PodInterface::of("pod1"), &result);
        let what = format!("ADD by {}, DEL by {}", before.display(), after.display());
        assert_eq!(stage.site.devices(Some("pod1")), [""; 0], "{what}");
        stage.site.remove_pod("pod1");
        assert_eq!(without_last_given(stage.site.remains()), expected, "{what}");
    }
}

fn addresses_are_freed_by_the_other(stage: &Stage) {
    let ours = Plugins::ours();
    let config = stage.config("mynet", "x", json!({"ipam": {"type": "host-local", "subnet": "10.1.2.0/28"}}));
    let mut expected = 2..;
    for (before, after) in two_sides(stage, &ours) {
        for (adds, deletes) in [(before, after), (after, before)] {
            let call = |folder: &Path, command| {
                conformance_tests::Call::new(&stage.site, folder, "host-local", command).config(&config).run()
            };
            let given = call(adds, "ADD").result()["ips"][0]["address"].clone();
            assert_eq!(given, format!("10.1.2.{}/28", expected.next().unwrap()), "the walk goes on");
            call(deletes, "ADD").fails(999, "duplicate allocation is not allowed");
            call(deletes, "DEL").nothing();
            assert_eq!(
                stage.site.files("/var/lib/cni/networks/mynet").len(),
                2,
                "the lock and the last given"
            );
        }
    }
}

fn a_bridge_is_used_and_a_pod_is_removed_by_the_other(stage: &Stage) {
    both_ways(stage, vec![bridge(json!({}))]);
}

fn masquerade_of_iptables_is_removed_by_the_other(stage: &Stage) {
    both_ways(stage, vec![bridge(json!({"ipMasq": true, "ipMasqBackend": "iptables"}))]);
}

fn masquerade_of_nftables_is_removed_by_the_other(stage: &Stage) {
    needs_nftables(stage);
    both_ways(stage, vec![bridge(json!({"ipMasq": true, "ipMasqBackend": "nftables"}))]);
}

/// The plugins of Debian 12 know no nftables but in the check of MACs.
fn needs_nftables(stage: &Stage) {
    if !stage.plugins.speaks("host-local", "1.1.0") {
        not_run(format!("{} does not know nftables", stage.plugins.name));
    }
}

fn the_check_of_macs_is_removed_by_the_other(stage: &Stage) {
    both_ways(stage, vec![bridge(json!({"macspoofchk": true}))]);
}

fn ports_of_iptables_are_removed_by_the_other(stage: &Stage) {
    both_ways(stage, vec![bridge(json!({})), portmap("iptables")]);
}

fn ports_of_nftables_are_removed_by_the_other(stage: &Stage) {
    needs_nftables(stage);
    both_ways(stage, vec![bridge(json!({})), portmap("nftables")]);
}

/// In the middle of an upgrade there are pods of both, and they reach each other.
fn one_of_each_live_side_by_side(stage: &Stage) {
    let ours = Plugins::ours();
    let [(theirs, ours), _] = two_sides(stage, &ours);
    let chain = network(stage, vec![bridge(json!({"ipMasq": true})), json!({"type": "portmap"})]);
    let expected = measure(stage, &chain);
    for (first, second) in [(theirs, ours), (ours, theirs)] {
        ["pod1", "pod2"].iter().for_each(|pod| drop(stage.site.pod(pod)));
        let one = chain.with(&[first]).add(PodInterface::of("pod1"));
        let two = chain.with(&[second]).add(PodInterface::of("pod2"));
        for (from, to) in [("pod1", &two), ("pod2", &one)] {
            let address = to["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap();
            stage.site.sh(&format!("ip netns exec {from} ping -c 1 -W 2 {address}"));
        }
        chain.with(&[second]).del(PodInterface::of("pod1"), &one);
        chain.with(&[first]).del(PodInterface::of("pod2"), &two);
        ["pod1", "pod2"].iter().for_each(|pod| stage.site.remove_pod(pod));
        assert_eq!(without_last_given(stage.site.remains()), expected);
    }
}

fn what_one_made_the_other_checks(stage: &Stage) {
    let ours = Plugins::ours();
    let backends: &[&str] =
        if stage.plugins.speaks("host-local", "1.1.0") { &["iptables", "nftables"] } else { &["iptables"] };
    for (before, after) in two_sides(stage, &ours) {
        for backend in backends {
            stage.site.pod("pod1");
            let keys = json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true});
            let chain = network(stage, vec![bridge(keys), portmap(backend)]);
            let result = chain.with(&[before]).add(PodInterface::of("pod1"));
            chain.with(&[after]).check(PodInterface::of("pod1"), &result);
            chain.with(&[before]).check(PodInterface::of("pod1"), &result);
            chain.with(&[after]).del(PodInterface::of("pod1"), &result);
            let answers = chain.with(&[before]).each("CHECK", PodInterface::of("pod1"), &result);
            assert!(answers.iter().all(|answer| answer.status == 1), "{answers:?}");
            stage.site.remove_pod("pod1");
        }
    }
}

fn what_go_made_our_garbage_collection_frees(stage: &Stage) {
    let ours = Plugins::ours();
    let [(theirs, ours), _] = two_sides(stage, &ours);
    for backend in ["iptables", "nftables"] {
        // Go's port rules of nftables and its check of MACs do not say whose network they are of: they are left.
        let keys = json!({"ipMasq": true, "ipMasqBackend": backend});
        let chain = network(stage, vec![bridge(keys), portmap("iptables")]);
        let expected = measure(stage, &chain);
        ["pod1", "pod2"].iter().for_each(|pod| drop(stage.site.pod(pod)));
        chain.with(&[theirs]).add(PodInterface::of("pod1"));
        let kept = chain.with(&[theirs]).add(PodInterface::of("pod2"));
        stage.site.remove_pod("pod1");
        chain.with(&[ours]).collect(&[PodInterface::of("pod2")]);
        chain.with(&[theirs]).check(PodInterface::of("pod2"), &kept);
        stage.site.remove_pod("pod2");
        chain.with(&[ours]).collect(&[]);
        assert_eq!(without_last_given(stage.site.remains()), expected, "{backend}");
    }
}
