//! Which lease store the flags choose, and how it is reached. Takes what was given, gives a [`Store`], and warns of
//! flags that belong to another one.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use flannel_leases::etcd::{EtcdOptions, Secret};
use flannel_leases::kubernetes::KubernetesOptions;
use flannel_plan::annotations::AnnotationPrefix;

use super::check::Reader;
use super::fault::{OptionFault, Origin};
use super::flags::{Belongs, FLANNELD, Flag};
use super::value::{self, Why};
use super::{Environment, Store};

/// Chooses the store: a folder if one is named, Kubernetes if it is asked for, else etcd, as Go does.
pub fn choose(reader: &mut Reader<'_>, environment: &Environment) -> Option<Store> {
    // Values are judged also if their store is not chosen.
    let kubernetes = reader.switch("kube-subnet-mgr");
    let (dir, etcd, cluster) =
        (reader.last("lease-dir", value::path), etcd(reader), cluster(reader, environment));
    if let Some(lease_dir) = reader.given.origin("lease-dir") {
        let asked = reader.given.origin("kube-subnet-mgr").filter(|_| kubernetes);
        let by_name =
            askers(reader, Belongs::Etcd).into_iter().filter(|origin| origin.flag.starts_with("etcd-"));
        let origins: Vec<Origin> = asked.into_iter().chain(by_name).collect();
        if !origins.is_empty() {
            reader.faults.push(OptionFault::StoreTwice { lease_dir, origins });
        }
        return dir.map(|dir| Store::Directory(dir.into()));
    }
    if !kubernetes {
        return etcd.map(Store::Etcd);
    }
    if cluster.node_name.is_none() && cluster.pod.is_none() {
        reader.faults.push(OptionFault::NoNode);
    }
    Some(Store::Kubernetes(cluster))
}

/// What to tell of flags that belong to another store than the chosen one.
pub fn strangers(reader: &mut Reader<'_>, store: &Store) -> Vec<String> {
    let (others, chosen) = match store {
        Store::Directory(_) => (&[Belongs::Etcd, Belongs::Kubernetes][..], "--lease-dir"),
        Store::Kubernetes(_) => (&[Belongs::Etcd][..], "--kube-subnet-mgr"),
        Store::Etcd(_) => (&[Belongs::Kubernetes][..], "etcd"),
    };
    let origins = others.iter().flat_map(|other| askers(reader, *other)).collect::<Vec<_>>();
    origins.iter().map(|origin| format!("{origin} has no effect: leases are kept by {chosen}")).collect()
}

/// Who asks for something that only this store has.
fn askers(reader: &mut Reader<'_>, store: Belongs) -> Vec<Origin> {
    let of_store = |flag: &&'static Flag| flag.belongs == store && flag.name != "kube-subnet-mgr";
    FLANNELD.all().filter(of_store).filter_map(|flag| reader.asks(flag)).collect()
}

fn etcd(reader: &mut Reader<'_>) -> Option<EtcdOptions> {
    let mut text = |flag| reader.value(flag, value::text).unwrap_or_default();
    let (endpoints, prefix) = (text("etcd-endpoints"), text("etcd-prefix"));
    let mut file = |flag| Some(text(flag)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (ca_file, cert_file, key_file) = (file("etcd-cafile"), file("etcd-certfile"), file("etcd-keyfile"));
    let (username, password) = (text("etcd-username"), Secret::new(text("etcd-password")));
    let margin = reader.value("subnet-lease-renew-margin", value::integer(1..=1439))?;
    Some(EtcdOptions {
        endpoints: endpoints
            .split(',')
            .map(|url| url.trim().to_owned())
            .filter(|url| !url.is_empty())
            .collect(),
        prefix,
        ca_file,
        cert_file,
        key_file,
        username,
        password,
        renew_margin: Duration::from_secs(60 * u64::from(margin.unsigned_abs())),
    })
}

fn cluster(reader: &mut Reader<'_>, environment: &Environment) -> KubernetesOptions {
    let mut optional = |flag| reader.last(flag, value::text).filter(|text| !text.is_empty());
    let (api_url, kubeconfig) = (optional("kube-api-url"), optional("kubeconfig-file").map(PathBuf::from));
    let net_conf = reader.value("net-config-path", value::path).unwrap_or_default().into();
    let prefix = reader.value("kube-annotation-prefix", annotation_prefix).unwrap_or_default();
    let set_condition = reader.switch("set-node-network-unavailable");
    let variable = |name| {
        let value = environment.get(OsStr::new(name)).and_then(|value| value.to_str());
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let node_name = variable("NODE_NAME");
    let pod = variable("POD_NAME").zip(variable("POD_NAMESPACE"));
    KubernetesOptions { api_url, kubeconfig, node_name, pod, prefix, net_conf, set_condition }
}

fn annotation_prefix(text: &str) -> Result<AnnotationPrefix, Why> {
    text.parse().map_err(|_| {
        "is no prefix of annotations: expected a domain in lower case such as flannel.alpha.coreos.com, and \
         perhaps one slash and a name"
            .to_owned()
    })
}
