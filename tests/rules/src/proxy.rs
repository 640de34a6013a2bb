//! A real kube-proxy on nodes of a lab whose store is Kubernetes, and services with endpoints that a test chooses.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use cluster_tests::wait_until;
use flannel_lab::{Kubernetes, Node};
use serde_json::{Value, json};

/// Where a node has what its kube-proxy needs; the lab has put the certificate there.
const FOLDER: &str = "/etc/kube-flannel";
const HEALTH_PORT: u16 = 10256;

/// How kube-proxy keeps its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// In iptables.
    Iptables,
    /// In nftables.
    Nftables,
}

/// A kube-proxy on a node; it dies with the lab.
#[derive(Debug)]
pub struct Proxy {
    outer: Child,
    log: PathBuf,
}

impl Proxy {
    /// Starts one.
    pub fn start(kubernetes: &Kubernetes<'_>, node: &Node, mode: ProxyMode) -> Self {
        let folder = node.disk_path(FOLDER);
        fs::write(folder.join("proxy.kubeconfig"), login(kubernetes)).unwrap();
        let log = folder.join("kube-proxy.log");
        let file = File::create(&log).unwrap();
        let mut command = node.command(&program().display().to_string(), words(node, mode));
        let outer = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Self { outer, log }
    }

    /// Waits until it has written its rules.
    pub fn wait_ready(&self, node: &Node) {
        wait_until(&format!("kube-proxy on {}", node.name()), || {
            match node.http_get(HEALTH_PORT, "/healthz") {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", fs::read_to_string(&self.log).unwrap_or_default())),
            }
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The one inside goes with the lab, which knows its processes by their mark.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

/// The one that `make peers` builds, beside the folder of this program.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.ancestors().map(|folder| folder.join("peers/bin/kube-proxy")).find(|path| path.is_file());
    built.expect("kube-proxy is built by `make peers`")
}

/// Limits of connection tracking are the whole machine's, and not for a node of a lab to set.
fn words(node: &Node, mode: ProxyMode) -> Vec<String> {
    let mode = match mode {
        ProxyMode::Iptables => "iptables",
        ProxyMode::Nftables => "nftables",
    };
    let words = format!(
        "--kubeconfig={FOLDER}/proxy.kubeconfig --proxy-mode={mode} --hostname-override={} \
         --cluster-cidr=10.244.0.0/16,fd00:244::/48 --conntrack-max-per-core=0 \
         --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
         --metrics-bind-address=127.0.0.1:10249 --healthz-bind-address=127.0.0.1:{HEALTH_PORT}",
        node.name()
    );
    words.split_whitespace().map(str::to_owned).collect()
}

fn login(kubernetes: &Kubernetes<'_>) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
         clusters:\n- name: lab\n  cluster:\n    server: {}\n    certificate-authority: {FOLDER}/ca.crt\n\
         users:\n- name: lab\n  user:\n    token: {}\n\
         contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\n",
        kubernetes.url(),
        kubernetes.admin_token().unwrap().trim()
    )
}

/// A service of TCP with one endpoint.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: &'static str,
    /// Its address.
    pub address: &'static str,
    /// Its port on every node.
    pub node_port: u16,
    /// Whether a node gives packets from outside only to pods of its own, with their source.
    pub policy: &'static str,
}

impl Service {
    /// Makes it, with a pod of a node behind it. There are no controllers for that in the lab.
    pub fn create(&self, kubernetes: &Kubernetes<'_>, node: &Node, pod: IpAddr, port: u16) {
        let ports =
            json!([{"port": port, "targetPort": port, "nodePort": self.node_port, "protocol": "TCP"}]);
        let service = json!({
            "metadata": {"name": self.name},
            "spec": {
                "type": "NodePort", "clusterIP": self.address, "ports": ports,
                "externalTrafficPolicy": self.policy,
            },
        });
        kubernetes.create("/api/v1/namespaces/default/services", &service).unwrap();
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        kubernetes.create(slices, &self.endpoints(node, pod, port)).unwrap();
    }

    fn endpoints(&self, node: &Node, pod: IpAddr, port: u16) -> Value {
        json!({
            "metadata": {"name": self.name, "labels": {"kubernetes.io/service-name": self.name}},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": [pod], "nodeName": node.name(), "conditions": {"ready": true}},
            ],
        })
    }
}
