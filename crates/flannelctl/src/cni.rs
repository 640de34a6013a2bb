//! `flannelctl cni`: attaches network namespaces by CNI plugins, as cnitool does and with its variables.
//!
//! Takes a network of a folder of configurations and the path of a namespace, gives what the plugins answered.

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail, ensure};
use flannel_cni::json::indented;
use flannel_cni::request::AttachmentId;
use flannel_cni::result::{Attachment, Route};
use flannel_cni::runtime::{Answer, CACHE, Container, Network, Runtime, Valid};
use flannel_cni::sandbox;
use serde_json::{Map, Value};

use flannel_screen::Form;

/// Where Kubernetes looks for networks, and for plugins.
const NETWORKS: &str = "/etc/cni/net.d";
const PLUGINS: &str = "/opt/cni/bin";

/// Attach network namespaces to networks by CNI plugins, as cnitool does
///
/// Reads the variables of cnitool: NETCONFPATH, CNI_PATH, CNI_IFNAME, CNI_ARGS (K=V;K2=V2) and CAP_ARGS (a JSON
/// object such as {"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}).
#[derive(clap::Subcommand)]
pub enum Command {
    /// Attach a namespace and show what the plugins answered; what a failed ADD did is undone
    Add {
        #[command(flatten)]
        target: Target,
        /// The form of the answer
        #[arg(short, long, value_enum, default_value = "json")]
        output: Form,
    },
    /// Detach a namespace
    Del(Target),
    /// Ask the plugins whether a namespace is attached as it was
    Check(Target),
    /// Remove what belongs to no container: all attachments of the network that are remembered, or all but some
    Gc {
        #[command(flatten)]
        network: NetworkArguments,
        /// An attachment to keep
        #[arg(long, value_name = "CONTAINER/IFNAME", value_parser = attachment)]
        keep: Vec<AttachmentId>,
        /// Keep the attachments whose namespace is still there
        #[arg(long)]
        keep_living: bool,
        /// Not used; cnitool wants it
        netns: Option<PathBuf>,
    },
    /// Ask the plugins whether namespaces can be attached
    Status {
        #[command(flatten)]
        network: NetworkArguments,
        /// Not used; cnitool wants it
        netns: Option<PathBuf>,
    },
}

/// Which network, and where things are.
#[derive(clap::Args)]
pub struct NetworkArguments {
    /// The name of the network
    network: String,
    /// The folder with the configurations of networks [default: $NETCONFPATH, or /etc/cni/net.d]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
    /// The folders with plugins, separated by colons [default: $CNI_PATH, or /opt/cni/bin]
    #[arg(long, value_name = "DIRS")]
    cni_path: Option<OsString>,
    /// The folder where runtimes remember what they attached
    #[arg(long, value_name = "DIR", default_value = CACHE)]
    cache_dir: PathBuf,
}

/// A namespace and the network that it is to be attached to.
#[derive(clap::Args)]
pub struct Target {
    #[command(flatten)]
    network: NetworkArguments,
    /// The path of the network namespace, such as /run/netns/pod1
    netns: PathBuf,
    /// The name of the interface inside the namespace [default: $CNI_IFNAME, or eth0]
    #[arg(short, long)]
    ifname: Option<String>,
}

pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Add { target, output } => {
            let (network, container) = target.read()?;
            let answer = target.network.runtime().add(&network, &container)?;
            out.write_all(written(&answer, &container, *output).as_bytes())?;
        }
        Command::Del(target) => {
            let (network, container) = target.read()?;
            target.network.runtime().del(&network, &container)?;
        }
        Command::Check(target) => {
            let (network, container) = target.read()?;
            target.network.runtime().check(&network, &container)?;
        }
        Command::Gc { network, keep, keep_living, netns: _ } => {
            let found = network.find()?;
            let living = if *keep_living { Some(living(&network.runtime())?) } else { None };
            network.runtime().gc(&found, &valid(keep, living))?;
        }
        Command::Status { network, netns: _ } => network.runtime().status(&network.find()?)?,
    }
    Ok(())
}

impl NetworkArguments {
    fn find(&self) -> anyhow::Result<Network> {
        let folder = self.conf_dir.clone().or_else(|| variable("NETCONFPATH").map(PathBuf::from));
        Ok(Network::find(&folder.unwrap_or_else(|| NETWORKS.into()), &self.network)?)
    }

    fn runtime(&self) -> Runtime<'static> {
        let path = self.cni_path.clone().or_else(|| variable("CNI_PATH"));
        let path = path.unwrap_or_else(|| PLUGINS.into());
        Runtime::new(env::split_paths(&path).collect()).with_cache(&self.cache_dir)
    }
}

impl Target {
    fn read(&self) -> anyhow::Result<(Network, Container)> {
        let netns = cleaned(&self.netns)?;
        let ifname = self.ifname.clone().or_else(|| env::var("CNI_IFNAME").ok());
        let container = Container {
            args: variable("CNI_ARGS")
                .map(|text| pairs(&text.to_string_lossy()))
                .transpose()?
                .unwrap_or_default(),
            capabilities: variable("CAP_ARGS").map(capabilities).transpose()?.unwrap_or_default(),
            ..Container::of_netns(&netns, ifname.as_deref().unwrap_or("eth0"))
        };
        Ok((self.network.find()?, container))
    }
}

/// A variable of cnitool's; an empty one is none.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The absolute path without `.` and `..`, by its text alone: cnitool names a container after it.
fn cleaned(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("{path:?} is no path of a namespace"))?;
    let mut cleaned = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                cleaned.pop();
            }
            part => cleaned.push(part),
        }
    }
    Ok(cleaned)
}

fn pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let pair = |pair: &str| match pair.split('=').collect::<Vec<_>>()[..] {
        [key, value] if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("invalid CNI_ARGS pair {pair:?}: it must be KEY=VALUE, and pairs are separated by ;"),
    };
    text.split(';').map(pair).collect()
}

fn capabilities(text: OsString) -> anyhow::Result<Map<String, Value>> {
    let read: Option<Map<String, Value>> = serde_json::from_slice(text.as_encoded_bytes())
        .with_context(|| format!("CAP_ARGS must be a JSON object, not {}", text.to_string_lossy()))?;
    Ok(read.unwrap_or_default())
}

fn attachment(text: &str) -> anyhow::Result<AttachmentId> {
    let (container_id, ifname) = text.split_once('/').context("it must be CONTAINER/IFNAME")?;
    ensure!(!container_id.is_empty() && !ifname.is_empty(), "it must be CONTAINER/IFNAME");
    Ok(AttachmentId { container_id: container_id.to_owned(), ifname: ifname.to_owned() })
}

/// Without a word about what is to stay nothing does, which is what cnitool does.
fn valid(keep: &[AttachmentId], living: Option<Vec<AttachmentId>>) -> Valid {
    match living {
        None if keep.is_empty() => Valid::Unknown,
        living => Valid::Only(keep.iter().cloned().chain(living.into_iter().flatten()).collect()),
    }
}

/// The attachments whose namespace is there; one that cannot be looked at counts as there.
fn living(runtime: &Runtime<'_>) -> anyhow::Result<Vec<AttachmentId>> {
    let records = runtime.records()?.into_iter().map(|record| record.container);
    let is_there = |container: &Container| !matches!(sandbox::find(container.netns.as_deref()), Ok(None));
    Ok(records.filter(is_there).map(|container| container.attachment()).collect())
}

fn written(answer: &Answer, container: &Container, form: Form) -> String {
    match form {
        Form::Json => indented(&Value::Object(answer.json.clone())) + "\n",
        Form::Text => text(&answer.attachment, container),
    }
}

fn text(attachment: &Attachment, container: &Container) -> String {
    let mut text = format!("attached {} of container {}\n", container.ifname, container.id);
    for ip in &attachment.ips {
        let gateway = ip.gateway.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
        text += &format!("  address {}{gateway}\n", ip.address);
    }
    for Route { dst, gw, .. } in &attachment.routes {
        let via = gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
        text += &format!("  route {dst}{via}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_namespace_is_cleaned_as_go_does() {
        let clean = |path: &str| cleaned(Path::new(path)).unwrap();
        assert_eq!(clean("/run//netns/./a/../b"), Path::new("/run/netns/b"));
        assert_eq!(clean("/../x"), Path::new("/x"));
        assert_eq!(clean("x"), env::current_dir().unwrap().join("x"));
        assert!(cleaned(Path::new("")).is_err());
    }

    #[test]
    fn arguments_for_plugins_are_pairs() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs("A=1;B=2").unwrap(), [pair("A", "1"), pair("B", "2")]);
        for wrong in ["A", "A=", "=1", "A=1;", "A=1=2"] {
            assert!(pairs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_word_nothing_is_kept() {
        let of = |id: &str| attachment(id).unwrap();
        assert_eq!(valid(&[], None), Valid::Unknown);
        assert_eq!(valid(&[], Some(vec![])), Valid::Only(vec![]));
        let both = Valid::Only(vec![of("a/eth0"), of("b/net1")]);
        assert_eq!(valid(&[of("a/eth0")], Some(vec![of("b/net1")])), both);
        assert!(attachment("a").is_err() && attachment("/eth0").is_err());
    }

    #[test]
    fn an_answer_is_shown_with_addresses_and_routes() {
        let json = serde_json::json!({
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.244.1.5/24", "gateway": "10.244.1.1"}, {"address": "fd00::5/64"}],
            "routes": [{"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0", "gw": "10.244.1.1"}],
        });
        let json = json.as_object().unwrap().clone();
        let version = flannel_cni::version::Version::V1_0_0;
        let answer = Answer { attachment: Attachment::from_output(&json, version).unwrap(), json };
        let container = Container { id: "c1".into(), ifname: "eth0".into(), ..Container::default() };
        assert_eq!(
            written(&answer, &container, Form::Text),
            "attached eth0 of container c1\n  address 10.244.1.5/24, gateway 10.244.1.1\n  address fd00::5/64\n  \
             route 10.244.0.0/16\n  route 0.0.0.0/0 via 10.244.1.1\n"
        );
        assert!(written(&answer, &container, Form::Json).starts_with("{\n    \"cniVersion\": \"1.0.0\",\n"));
    }
}
