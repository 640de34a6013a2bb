//! The Kubernetes of a lab: an API server, its etcd and the controller that gives nodes their pod subnets, on one
//! server; no kubelets.
//!
//! Takes the folder of the programs, gives Node objects, and on every node's disk what a flanneld of kube-flannel
//! has: a net-conf that is swapped as a ConfigMap is, and a kubeconfig with no more rights than flannel's role.

mod client;
mod disk;
mod objects;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::lab::Lab;
use crate::node::Node;
use crate::store::Store;
use crate::{LabError, Result, Service, program};

pub(crate) use disk::STORE_ARGS;

/// The names under which the server runs them, which are their own.
const API_SERVER: &str = "kube-apiserver";
const CONTROLLERS: &str = "kube-controller-manager";
const PORT: u16 = 6443;
/// How long the API server may take to serve, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const SERVICES: &str = "10.96.0.0/16";

/// The Kubernetes of a running lab.
#[derive(Clone, Copy, Debug)]
pub struct Kubernetes<'a> {
    lab: &'a Lab,
    server: &'a Node,
}

impl Lab {
    /// The lab's Kubernetes, if that is its store.
    pub fn kubernetes(&self) -> Result<Kubernetes<'_>> {
        match (self.store_kind(), self.servers().first()) {
            (Store::Kubernetes { .. }, Some(server)) => Ok(Kubernetes { lab: self, server }),
            _ => Err(self.other_store("Kubernetes")),
        }
    }
}

/// Looks for the programs of Kubernetes: in the named folder, else in that of `$KUBE_PEERS`, else where `make peers`
/// builds them, beside the folder of this program.
pub(crate) fn find_programs(named: Option<PathBuf>) -> Result<PathBuf> {
    let by_variable = || std::env::var_os("KUBE_PEERS").filter(|named| !named.is_empty()).map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let has = |folder: &Path| folder.join(API_SERVER).is_file();
    let built = || own.ancestors().map(|folder| folder.join("peers/bin")).find(|folder| has(folder));
    let found = named.or_else(by_variable).or_else(built);
    let looked = found.clone().unwrap_or_else(|| "target/peers/bin".into());
    // Servers are started in folders of their own.
    let found = found.filter(|folder| has(folder)).and_then(|folder| std::path::absolute(folder).ok());
    let how = "build it with `make peers`, or name its folder in $KUBE_PEERS";
    found.ok_or_else(|| LabError::Missing(format!("no kube-apiserver in {}: {how}", looked.display())))
}

impl<'a> Kubernetes<'a> {
    /// The server that everything runs on.
    pub fn server(&self) -> &'a Node {
        self.server
    }

    /// What clients call the API server.
    pub fn url(&self) -> String {
        format!("https://{}:{PORT}", self.server.v4())
    }

    fn folder(&self) -> PathBuf {
        self.lab.store().join("kubernetes")
    }

    fn file(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    /// The certificates that vouch for the API server.
    pub fn certificate(&self) -> PathBuf {
        self.folder().join("apiserver.crt")
    }

    fn program(&self, name: &str) -> String {
        match self.lab.store_kind() {
            Store::Kubernetes { programs: Some(folder) } => folder.join(name).display().to_string(),
            _ => name.to_owned(),
        }
    }

    /// Starts etcd and the API server, and waits until it serves.
    pub(crate) fn start_all(&self) -> Result<()> {
        program::make_folder(self.folder())?;
        self.write_secrets()?;
        self.lab.etcd()?.start_all()?;
        self.start_api_server()?;
        self.wait_served()?;
        self.make_rights()
    }

    /// Makes the node objects, starts what gives them pod subnets out of the networks of a net-conf, and writes what
    /// the nodes need.
    pub(crate) fn populate(&self, net_conf: &str) -> Result<()> {
        self.start_controllers(net_conf)?;
        self.lab.nodes().iter().try_for_each(|node| self.make_node(node))?;
        self.lab.nodes().iter().try_for_each(|node| self.wait_pod_subnet(node.name()))?;
        self.lab.nodes().iter().try_for_each(|node| self.furnish(node))
    }

    /// Starts the API server on what etcd holds.
    pub fn start_api_server(&self) -> Result<()> {
        let address = self.server.v4();
        let words = [
            self.program(API_SERVER),
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--bind-address=0.0.0.0 --secure-port={PORT} --advertise-address={address}"),
            format!("--cert-dir={} --token-auth-file={}", self.folder().display(), self.file("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.file("sa.key")),
            format!("--service-account-signing-key-file={}", self.file("sa.key")),
            format!("--authorization-mode=RBAC --service-cluster-ip-range={SERVICES}"),
        ];
        start(self.api_server(), &words)
    }

    /// Starts the controller that gives nodes their pod subnets.
    pub fn start_controllers(&self, net_conf: &str) -> Result<()> {
        let words = [
            self.program(CONTROLLERS),
            format!("--kubeconfig={} --leader-elect=false", self.file("admin.kubeconfig")),
            "--controllers=node-ipam-controller --allocate-node-cidrs=true --bind-address=127.0.0.1"
                .to_owned(),
            format!("--service-cluster-ip-range={SERVICES}"),
            objects::pod_subnet_flags(net_conf)?,
        ];
        start(self.controllers(), &words)
    }

    /// The API server.
    pub fn api_server(&self) -> Service<'a> {
        self.server.service(API_SERVER)
    }

    /// The controller that gives nodes their pod subnets.
    pub fn controllers(&self) -> Service<'a> {
        self.server.service(CONTROLLERS)
    }

    /// Waits until the API server serves.
    pub fn wait_served(&self) -> Result<()> {
        let service = self.api_server();
        self.lab.interrupt.wait_for("the API server", START_LIMIT, || {
            match self.request("GET", "/readyz", None) {
                Ok((200, _)) => Ok(()),
                Ok((code, body)) => Err(format!("{code} {body}\n{}", service.last_words())),
                Err(why) => Err(format!("{why}\n{}", service.last_words())),
            }
        })
    }

    /// Waits until the controller has given a node its pod subnet.
    pub fn wait_pod_subnet(&self, node: &str) -> Result<()> {
        let log = || self.controllers().last_words();
        self.lab.interrupt.wait_for(&format!("the pod subnet of {node}"), START_LIMIT, || {
            match self.node(node) {
                Ok(found) if found["spec"]["podCIDR"].is_string() => Ok(()),
                Ok(_) => Err(log()),
                Err(why) => Err(why.to_string()),
            }
        })
    }

    /// A node object.
    pub fn node(&self, name: &str) -> Result<Value> {
        self.get(&format!("/api/v1/nodes/{name}"))
    }
}

fn start(service: Service<'_>, words: &[String]) -> Result<()> {
    let words: Vec<_> = words.iter().flat_map(|words| words.split(' ')).map(str::to_owned).collect();
    service.start(&words, |_| {})
}
