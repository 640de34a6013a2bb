//! Which store is meant, by flanneld's own flags, and how everything is read from it and written to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use flannel_files::MOST_BY_HAND;
use flannel_leases::etcd::{Etcd, EtcdOptions, Secret, StoredLease};
use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};
use flannel_leases::{Directory, LeaseStore, Snapshot};
use flannel_plan::annotations::AnnotationPrefix;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::Lease;

use super::file::{Held, Holdings};
use crate::lease;

/// How long a lease of etcd lives, as in Go: whoever runs then has renewed it.
const DAY: Duration = Duration::from_secs(86_400);
/// How long a server may take to tell everything.
const PATIENCE: Duration = Duration::from_secs(30);
/// No node has such a name: every node is somebody else's.
const NOBODY: &str = "flannelctl.invalid";

/// A lease store, named as flanneld names it
#[derive(Args)]
pub struct StoreFlags {
    /// The store is this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["etcd_endpoints", "kubeconfig_file", "kube_api_url"])]
    lease_dir: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdFlags,
    #[command(flatten)]
    kubernetes: KubernetesFlags,
}

/// How etcd is reached
#[derive(Args)]
struct EtcdFlags {
    /// The store is this etcd: its servers, with commas between
    #[arg(long, value_name = "URLS", conflicts_with_all = ["kubeconfig_file", "kube_api_url"])]
    etcd_endpoints: Option<String>,
    /// What all keys of flannel begin with
    #[arg(long, value_name = "PREFIX", default_value = "/coreos.com/network")]
    etcd_prefix: String,
    /// Certificate authority of the etcd servers
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Certificate shown to etcd
    #[arg(long, value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,
    /// Private key for --etcd-certfile
    #[arg(long, value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,
    /// User name for etcd; else FLANNELD_ETCD_USERNAME
    #[arg(long, value_name = "NAME")]
    etcd_username: Option<String>,
    /// Password for etcd; else FLANNELD_ETCD_PASSWORD, which `ps` does not show
    #[arg(long, value_name = "SECRET")]
    etcd_password: Option<String>,
}

/// How Kubernetes is reached
#[derive(Args)]
struct KubernetesFlags {
    /// The store is the Kubernetes of this kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig_file: Option<PathBuf>,
    /// The store is the Kubernetes whose API server is there
    #[arg(long, value_name = "URL")]
    kube_api_url: Option<String>,
    /// What the names of flannel's annotations begin with
    #[arg(long, value_name = "PREFIX", default_value = "flannel.alpha.coreos.com")]
    kube_annotation_prefix: AnnotationPrefix,
    /// The net-conf of that cluster: the ConfigMap kube-flannel-cfg, saved to a file
    #[arg(long, value_name = "FILE", default_value = "/etc/kube-flannel/net-conf.json")]
    net_config_path: PathBuf,
}

impl StoreFlags {
    fn is_kubernetes(&self) -> bool {
        self.kubernetes.kubeconfig_file.is_some() || self.kubernetes.kube_api_url.is_some()
    }

    /// Everything that it holds.
    pub fn read(&self) -> anyhow::Result<Holdings> {
        match (&self.lease_dir, &self.etcd.etcd_endpoints) {
            (Some(dir), _) => {
                Ok(Holdings { config: Directory::config_text(dir)?, ..holdings(Directory::list(dir)?, None) })
            }
            (None, Some(endpoints)) => wait(self.etcd.read(endpoints)),
            (None, None) if self.is_kubernetes() => wait(self.kubernetes.read()),
            (None, None) => bail!(
                "no store is named: use --lease-dir, --etcd-endpoints, --kubeconfig-file or --kube-api-url"
            ),
        }
    }

    /// Puts all of that into it.
    pub fn write(&self, holdings: &Holdings) -> anyhow::Result<()> {
        if self.is_kubernetes() {
            bail!(
                "leases cannot be put into Kubernetes: a node's subnet there is its podCIDR, which the \
                 kube-controller-manager gives once and for all. Set spec.podCIDR of each Node object when it is made, \
                 or let nodes take their new subnets one by one, drained: docs/stores.md tells how"
            );
        }
        let leases = || holdings.leases.iter();
        let config = holdings.config.as_deref();
        match (&self.lease_dir, &self.etcd.etcd_endpoints) {
            (Some(dir), _) => {
                let leases: Vec<Lease> = leases().map(|held| held.lease.clone()).collect();
                Ok(Directory::fill(dir, config, &leases)?)
            }
            (None, Some(endpoints)) => {
                let life = |held: &Held| (!held.reserved).then_some(DAY);
                let stored =
                    |held: &Held| StoredLease { lease: held.lease.clone(), time_to_live: life(held) };
                let leases: Vec<_> = leases().map(stored).collect();
                let mut etcd = Etcd::open(self.etcd.options(endpoints), ByFamily::default())?;
                wait(async { Ok(etcd.write(config, &leases).await?) })
            }
            (None, None) => bail!("no store is named: use --lease-dir or --etcd-endpoints"),
        }
    }
}

impl fmt::Display for StoreFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.lease_dir, &self.etcd.etcd_endpoints) {
            (Some(dir), _) => dir.display().fmt(f),
            (None, Some(endpoints)) => write!(f, "etcd {endpoints} below {}", self.etcd.etcd_prefix),
            (None, None) => f.write_str("Kubernetes"),
        }
    }
}

impl EtcdFlags {
    fn options(&self, endpoints: &str) -> EtcdOptions {
        let or_variable = |given: &Option<String>, name: &str| {
            given.clone().or_else(|| std::env::var(name).ok()).unwrap_or_default()
        };
        EtcdOptions {
            endpoints: endpoints
                .split(',')
                .map(|url| url.trim().to_owned())
                .filter(|url| !url.is_empty())
                .collect(),
            prefix: self.etcd_prefix.clone(),
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
            username: or_variable(&self.etcd_username, "FLANNELD_ETCD_USERNAME"),
            password: Secret::new(or_variable(&self.etcd_password, "FLANNELD_ETCD_PASSWORD")),
            renew_margin: Duration::ZERO,
        }
    }

    async fn read(&self, endpoints: &str) -> anyhow::Result<Holdings> {
        let contents = Etcd::open(self.options(endpoints), ByFamily::default())?.read_all().await?;
        let held =
            |stored: StoredLease| Held { reserved: stored.time_to_live.is_none(), lease: stored.lease };
        Ok(Holdings {
            config: contents.config,
            leases: contents.leases.into_iter().map(held).collect(),
            faults: contents.faults.iter().map(ToString::to_string).collect(),
        })
    }
}

impl KubernetesFlags {
    async fn read(&self) -> anyhow::Result<Holdings> {
        let mut store = Kubernetes::open(KubernetesOptions {
            api_url: self.kube_api_url.clone(),
            kubeconfig: self.kubeconfig_file.clone(),
            node_name: Some(NOBODY.to_owned()),
            pod: None,
            prefix: self.kube_annotation_prefix.clone(),
            net_conf: self.net_config_path.clone(),
            set_condition: false,
        })?
        .asking_for_the_newest();
        let snapshot = store.next().await?;
        let config = flannel_files::read_text(&self.net_config_path, MOST_BY_HAND).ok();
        Ok(Holdings { config, ..holdings(snapshot, Some(NOBODY)) })
    }
}

/// The leases and faults of a snapshot; what is said of a node that is not there is left out.
fn holdings(snapshot: Snapshot, nobody: Option<&str>) -> Holdings {
    let mut faults = lease::faults(&snapshot);
    faults.retain(|fault| nobody.is_none_or(|nobody| !fault.contains(nobody)));
    let leases = snapshot.peers.iter().map(|lease| Held { lease: Lease::clone(lease), reserved: false });
    Holdings { config: None, leases: leases.collect(), faults }
}

/// Runs to the end, with a limit.
fn wait<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let limited = async { tokio::time::timeout(PATIENCE, work).await };
    runtime.block_on(limited).with_context(|| format!("no answer within {PATIENCE:?}"))?
}
