//! How pods get their network: by the real CNI plugins, run inside the node as a container runtime runs them.
//!
//! Takes a pod's name, gives what the plugins answered. The node's disk gets what kube-flannel installs: the
//! plugins in /opt/cni/bin and a network in /etc/cni/net.d; what a test has put there stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use flannel_cni::plugins::Plugin;
use flannel_cni::result::Attachment;
use flannel_cni::runtime::{CACHE, Container, Exec, LoadError, Network, Runtime, RuntimeError, Valid};

use crate::machine::Machine;
use crate::node::Node;
use crate::{LabError, Result, program};

/// Where a node has its plugins.
const PLUGINS: &str = "/opt/cni/bin";
/// Where a node has its networks.
const NETWORKS: &str = "/etc/cni/net.d";
const CONFLIST: &str = "10-flannel.conflist";
/// The interface inside a pod.
const INTERFACE: &str = "eth0";

/// That of kube-flannel, which runs flanneld with `--ip-masq`. The lab's nodes do not, and then the plugin
/// would hide pods behind their node, so it is told not to.
const KUBE_FLANNEL: &str = r#"{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true, "ipMasq": false}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"#;

/// What container runtimes attach every pod to besides.
const LOOPBACK: &str =
    r#"{"name": "cni-loopback", "cniVersion": "0.3.1", "plugins": [{"type": "loopback"}]}"#;

/// Runs plugins inside a machine.
struct Inside<'a>(&'a Machine);

impl Exec for Inside<'_> {
    fn path(&self, there: &Path) -> PathBuf {
        self.0.path(&there.to_string_lossy())
    }

    fn command(&self, program: &Path) -> Command {
        self.0.command(&program.to_string_lossy(), [] as [&str; 0])
    }
}

impl Node {
    /// The network that its pods are attached to.
    pub fn network(&self) -> Result<Network> {
        let folder = self.disk_path(NETWORKS);
        match Network::first(&folder) {
            Err(LoadError::Nothing(_)) => {
                program::make_folder(&folder)?;
                program::write(folder.join(CONFLIST), KUBE_FLANNEL)?;
                Ok(Network::first(&folder)?)
            }
            network => Ok(network?),
        }
    }

    /// A container runtime that runs the plugins of the node inside it.
    pub fn runtime(&self) -> Result<Runtime<'_>> {
        self.require_pid()?;
        self.install_plugins()?;
        let runtime = Runtime::new(vec![PLUGINS.into()]).with_exec(Inside(&self.machine));
        Ok(runtime.with_cache(self.disk_path(CACHE)))
    }

    /// The names of the plugins lead to the program, which all nodes see where it was built.
    fn install_plugins(&self) -> Result<()> {
        let folder = self.disk_path(PLUGINS);
        program::make_folder(&folder)?;
        let missing = |plugin: &Plugin| {
            !folder.join(plugin.name()).is_symlink() && !folder.join(plugin.name()).exists()
        };
        for plugin in Plugin::ALL.into_iter().filter(missing) {
            let (program, name) = (program::find("flannel-cni", "FLANNEL_CNI")?, folder.join(plugin.name()));
            let linked = fs::canonicalize(program).and_then(|program| symlink(program, &name));
            linked.map_err(LabError::file("create", name))?;
        }
        Ok(())
    }

    /// Attaches a pod whose namespace is there.
    pub(crate) fn attach(&self, pod: &str) -> Result<Attachment> {
        let runtime = self.runtime()?;
        let failed = |source| self.cannot("attach", pod, source);
        runtime.add(&loopback()?, &container(pod, "lo")).map_err(failed)?;
        let answer = runtime.add(&self.network()?, &container(pod, INTERFACE));
        Ok(answer.map_err(failed)?.attachment)
    }

    pub(crate) fn detach(&self, pod: &str) -> Result<()> {
        let runtime = self.runtime()?;
        let detached = runtime.del(&self.network()?, &container(pod, INTERFACE));
        let down = runtime.del(&loopback()?, &container(pod, "lo"));
        detached.and(down).map_err(|source| self.cannot("detach", pod, source))
    }

    /// Gives back what pods hold that a power failure took, as a runtime does when it starts again.
    pub(crate) fn detach_all_but(&self, living: &[String]) -> Result<()> {
        let runtime = self.runtime()?;
        for (network, interface) in [(self.network()?, INTERFACE), (loopback()?, "lo")] {
            let living = living.iter().map(|pod| container(pod, interface).attachment());
            let cleaned = runtime.gc(&network, &Valid::Only(living.collect()));
            cleaned.map_err(|source| self.cannot("detach", "the pods of before", source))?;
        }
        Ok(())
    }

    fn cannot(&self, act: &str, pod: &str, source: RuntimeError) -> LabError {
        LabError::System { what: format!("{act} {pod} on {}", self.name()), source: source.into() }
    }
}

fn loopback() -> Result<Network> {
    Network::parse(LOOPBACK.as_bytes()).map_err(|why| LabError::failed("cni-loopback", why))
}

/// A pod as its runtime knows it.
fn container(pod: &str, interface: &str) -> Container {
    Container {
        id: pod.to_owned(),
        netns: Some(Path::new("/run/netns").join(pod)),
        ifname: interface.to_owned(),
        ..Container::default()
    }
}
