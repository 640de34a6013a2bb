//! Peers as Node objects of 12 KB, as kubelets write them, with Go's annotations.

use std::thread;

use anyhow::Context;
use flannel_lab::{Lab, Node, Relay, Signal, Store};
use serde_json::{Value, json};

use super::api::Api;
use super::cluster::{self, backend_data, public, subnet};
use super::race::Place;

/// Where the cable to the API server is.
const PORT: u16 = 6444;
const PREFIX: &str = "flannel.alpha.coreos.com";
const WORKERS: u32 = 4;
const MERGE: &str = "application/strategic-merge-patch+json";

/// A node on Kubernetes.
pub struct Kubernetes {
    relay: Relay,
    api: Api,
    lab: Lab,
}

impl Kubernetes {
    /// Brings it up with so many peers.
    pub fn up(peers: u32) -> anyhow::Result<Self> {
        let lab = cluster::lab(Store::Kubernetes { programs: None })?;
        // It would look at each of the peers, on the cores that are measured.
        lab.kubernetes()?.controllers().stop(Signal::KILL)?;
        fill(&lab, peers)?;
        let relay = Relay::start(lab.kubernetes()?.server(), PORT, 6443)?;
        let api = Api::connect(lab.kubernetes()?)?;
        Ok(Self { relay, api, lab })
    }
}

fn fill(lab: &Lab, peers: u32) -> anyhow::Result<()> {
    let share = |worker: u32| -> anyhow::Result<()> {
        let mut api = Api::connect(lab.kubernetes()?)?;
        let mut own = (0..peers).filter(|peer| peer % WORKERS == worker);
        own.try_for_each(|peer| {
            api.ask("POST", "/api/v1/nodes", "application/json", &object(peer).to_string())
        })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || share(worker))).collect();
        let done = workers.into_iter().map(|worker| worker.join().ok().context("a worker ended early")?);
        done.collect()
    })
}

impl Place for Kubernetes {
    fn node(&self) -> anyhow::Result<&Node> {
        cluster::node(&self.lab)
    }

    fn relay(&self) -> &Relay {
        &self.relay
    }

    fn arguments(&self) -> Vec<String> {
        let url = format!("https://10.0.0.11:{PORT}");
        ["--kube-api-url", &url, "-v", "0"].map(str::to_owned).to_vec()
    }

    fn change(&mut self, peer: u32, version: u32) -> anyhow::Result<()> {
        let data = backend_data(peer, version);
        let change = json!({"metadata": {"annotations": {format!("{PREFIX}/backend-data"): data}}});
        self.api.ask("PATCH", &format!("/api/v1/nodes/{}", name(peer)), MERGE, &change.to_string())
    }

    fn sign_of_life(&mut self, peer: u32, version: u32) -> anyhow::Result<()> {
        let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", version / 3600, version / 60 % 60, version % 60);
        let change = json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}});
        self.api.ask(
            "PATCH",
            &format!("/api/v1/nodes/{}/status", name(4000 + peer)),
            MERGE,
            &change.to_string(),
        )
    }

    fn sign(&self) -> &'static str {
        "a kubelet's word in the status of its node"
    }
}

fn name(peer: u32) -> String {
    format!("ip-172-16-{}-{}.eu-west-1.compute.internal", peer / 256, peer % 256)
}

/// A node as a kubelet of a large cloud writes it: 12 KB.
fn object(peer: u32) -> Value {
    let cidr = format!("{}/24", subnet(peer));
    json!({
        "metadata": {
            "name": name(peer),
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                format!("{PREFIX}/backend-data"): backend_data(peer, 0),
                format!("{PREFIX}/backend-type"): "vxlan",
                format!("{PREFIX}/kube-subnet-manager"): "true",
                format!("{PREFIX}/public-ip"): public(peer).to_string(),
            },
            "labels": {
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name(peer), "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.4xlarge", "topology.kubernetes.io/zone": "eu-west-1b",
            },
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": format!("aws:///eu-west-1b/i-{peer:016x}")},
        "status": status(peer),
    })
}

fn status(peer: u32) -> Value {
    let image = |number: u32| {
        let repository =
            format!("registry.example.com/team-{:02}/a-service-of-that-team-{number:03}", number % 7);
        let digest = format!("{repository}@sha256:{:064x}", u64::from(number) * 7919 + u64::from(peer));
        json!({"names": [digest, format!("{repository}:v1.{number}.{peer}")], "sizeBytes": 123_456_789 + number})
    };
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("KubeletHas{kind}"),
            "message": format!("kubelet has {kind} as it should be on this node"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let resources =
        json!({"cpu": "16", "memory": "65841452Ki", "pods": "110", "ephemeral-storage": "104845292Ki"});
    json!({
        "addresses": [{"type": "InternalIP", "address": public(peer).to_string()}],
        "allocatable": resources, "capacity": resources,
        "conditions": [
            condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
            condition("PIDPressure", "False"), condition("Ready", "True"),
        ],
        "images": (0..40).map(image).collect::<Vec<_>>(),
        "nodeInfo": {
            "architecture": "amd64", "bootID": "5f2b2f0e-2f0e-4d53-9c11-1f0f0a0b0c0d", "kubeProxyVersion": "",
            "containerRuntimeVersion": "containerd://2.0.1", "kernelVersion": "6.8.0-1021-aws",
            "kubeletVersion": "v1.34.4", "machineID": format!("{peer:032x}"), "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.1 LTS", "systemUUID": format!("{peer:032x}"),
        },
    })
}
