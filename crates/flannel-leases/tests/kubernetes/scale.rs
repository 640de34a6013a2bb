//! Five thousand nodes of 12 KB, as a large cluster has them: what a daemon receives, how long it takes, and how
//! much memory it needs. Prints its figures; the limits are those of the daemon's goals.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::cluster::{ADMIN, Cluster};
use crate::proxy::Proxy;
use crate::stage::Stage;

const NODES: usize = 5000;

/// A node as a kubelet of 12 KB writes it.
fn node(stage: &Stage<'_>, n: usize) -> Value {
    let name = stage.name(&format!("n{n:04}"));
    let cidr = format!("10.{}.{}.0/24", 128 + n / 256, n % 256);
    json!({
        "metadata": {
            "name": name,
            "annotations": annotations(stage, n),
            "labels": {
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.4xlarge",
                "topology.kubernetes.io/region": "eu-west-1", "topology.kubernetes.io/zone": "eu-west-1b",
            },
        },
        "spec": { "podCIDR": cidr, "podCIDRs": [cidr], "providerID": format!("aws:///eu-west-1b/i-{n:016x}") },
        "status": status(n),
    })
}

fn annotations(stage: &Stage<'_>, n: usize) -> Value {
    let mac = format!("02:00:00:00:{:02x}:{:02x}", n / 256, n % 256);
    json!({
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{n:016x}\"}}"),
        stage.key("backend-data"): format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#),
        stage.key("backend-type"): "vxlan",
        stage.key("kube-subnet-manager"): "true",
        stage.key("public-ip"): format!("10.1.{}.{}", n / 256, n % 256),
    })
}

fn status(n: usize) -> Value {
    let image = |i: usize| {
        let repository = format!("registry.example.com/team-{:02}/some-service-of-that-team-{i:03}", i % 7);
        let names =
            [format!("{repository}@sha256:{:064x}", i * 7919 + n), format!("{repository}:v1.{i}.{n}")];
        json!({ "names": names, "sizeBytes": 123_456_789 + i })
    };
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("KubeletHas{kind}"),
            "message": format!("kubelet has {kind} as it should be on this node"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let resources = json!({
        "cpu": "16", "memory": "65841452Ki", "pods": "110", "ephemeral-storage": "104845292Ki",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    json!({
        "addresses": [{ "type": "InternalIP", "address": format!("10.1.{}.{}", n / 256, n % 256) }],
        "allocatable": resources, "capacity": resources,
        "conditions": [
            condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
            condition("PIDPressure", "False"), condition("Ready", "True"),
        ],
        "images": (0..36).map(image).collect::<Vec<_>>(),
        "nodeInfo": {
            "architecture": "amd64", "bootID": "5f2b2f0e-2f0e-4d53-9c11-1f0f0a0b0c0d",
            "containerRuntimeVersion": "containerd://2.0.1", "kernelVersion": "6.8.0-1021-aws",
            "kubeProxyVersion": "", "kubeletVersion": "v1.34.4",
            "machineID": format!("{n:032x}"), "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.1 LTS", "systemUUID": format!("{n:032x}"),
        },
    })
}

/// Makes all nodes, by one curl that sends many requests at a time.
fn fill(stage: &Stage<'_>) {
    let cluster = stage.cluster;
    let mut config = String::new();
    for n in 0..NODES {
        let body = node(stage, n).to_string().replace('\\', r"\\").replace('"', "\\\"");
        let _ = write!(
            config,
            "{}url = \"{}/api/v1/nodes\"\ncacert = \"{}\"\nheader = \"Authorization: Bearer {ADMIN}\"\n\
             header = \"Content-Type: application/json\"\ndata-binary = \"{body}\"\noutput = /dev/null\n\
             fail\nsilent\nshow-error\n",
            if n == 0 { "" } else { "next\n" },
            cluster.url(),
            cluster.path("ca.crt").display(),
        );
    }
    let path = cluster.write("nodes.curl", &config);
    let sent =
        Command::new("curl").args(["--parallel", "--parallel-max", "8", "--config"]).arg(path).output();
    let sent = sent.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
}

/// A store in a process of its own, which says what it costs.
struct Follower {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Follower {
    fn start(stage: &Stage<'_>, url: &str) -> Self {
        let mut follower = Command::new(program());
        follower.arg(stage.options("n0000").kubeconfig.unwrap()).arg(url).arg(stage.name("n0000"));
        follower.arg(stage.prefix().key("").trim_end_matches('/')).arg(stage.net_conf());
        let mut child = follower.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { said: BufReader::new(child.stdout.take().unwrap()), child }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// What it costs now; none of the nodes may have looked changed to it.
    fn now(&mut self) -> String {
        self.tell("");
        let line = self.line();
        assert!(line.starts_with("now "), "{line}");
        line
    }
}

/// The example of this crate; `FOLLOW_KUBERNETES` may name one that is optimised.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("FOLLOW_KUBERNETES") {
        return program.into();
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "flannel-leases", "--example", "follow_kubernetes"])
        .status();
    assert!(built.unwrap().success());
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples/follow_kubernetes")
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a list costs in each of the forms in which the API server gives it: bytes, and seconds.
fn measure_lists(stage: &Stage<'_>) {
    let protobuf = "application/vnd.kubernetes.protobuf";
    let metadata = format!("{protobuf};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    for (form, accept) in [("JSON", "application/json"), ("protobuf", protobuf), ("metadata", &metadata)] {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--fail",
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download} bytes, %{time_total} s",
        ]);
        curl.arg("--cacert").arg(stage.cluster.path("ca.crt"));
        curl.args([
            "--header",
            &format!("Authorization: Bearer {ADMIN}"),
            "--header",
            &format!("Accept: {accept}"),
        ]);
        let answer = curl.arg(format!("{}/api/v1/nodes", stage.cluster.url())).output().unwrap();
        println!("all nodes as {form}: {}", String::from_utf8_lossy(&answer.stdout));
    }
}

/// A kubelet's word that all is well: a new time in a condition.
fn heartbeat(stage: &Stage<'_>, node: &str, n: usize) {
    let time = format!("2026-01-01T01:{:02}:{:02}Z", n / 60, n % 60);
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": time }] } });
    stage.cluster.api("PATCH", &format!("{}/status", stage.path(node)), Some(&patch));
}

#[test]
#[ignore = "needs a Kubernetes API server"]
fn five_thousand_nodes_are_followed_with_little_memory_and_few_bytes() {
    let cluster = Cluster::start();
    let stage = Stage::new(&cluster, r#"{"Network":"10.128.0.0/9","Backend":{"Type":"vxlan"}}"#);
    let begun = Instant::now();
    fill(&stage);
    println!(
        "{NODES} nodes of {} bytes of JSON, made in {:?}",
        stage.read("n0001").to_string().len(),
        begun.elapsed()
    );
    measure_lists(&stage);
    let proxy = Proxy::start(cluster.port);
    let mut follower = Follower::start(&stage, &proxy.url());
    println!("start: {}, received {} KB", follower.line(), proxy.received() >> 10);
    assert!(proxy.received() < 6 << 20, "all nodes should come packed");
    let before = proxy.received();
    for n in 0..100 {
        heartbeat(&stage, &format!("n{n:04}"), n);
    }
    let heartbeat = (proxy.received() - before) / 100;
    let cost = follower.now();
    println!("100 heartbeats: {cost}, received {heartbeat} bytes each");
    assert!(heartbeat < 3000, "a heartbeat should carry metadata only");
    let memory = cost.split_once("rss_kb=").unwrap().1.split(' ').next().unwrap();
    assert!(memory.parse::<u32>().unwrap() < 25 << 10, "{cost}");
    let before = proxy.received();
    follower.tell("again");
    println!(
        "start with what is remembered: {}, received {} KB",
        follower.line(),
        (proxy.received() - before) >> 10
    );
    assert!(proxy.received() - before < 2 << 20, "metadata should do for nodes that are known");
}
