//! The plugins of kube-flannel's network, Go's or ours, called for pods one after the other as a runtime does.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{node, size};

/// How many pods come at once.
pub(super) const CROWD: u16 = 20;

/// The name of our plugins, as they are shipped.
pub(super) const OURS: &str = "ours";

/// A folder of plugins with a network of its own, so that neither disturbs what the other remembers.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// Whose plugins they are.
    pub name: &'static str,
    folder: PathBuf,
    /// The name of the network and of its bridge.
    network: String,
}

/// What a pod wants of portmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// Nothing, as most pods.
    None,
    /// One port of the host, by a firewall.
    One(&'static str),
    /// Twenty of them, which is a lot.
    Twenty(&'static str),
}

impl Ports {
    /// The firewall, and how many ports it has to lead to the pod.
    fn wanted(self) -> Option<(&'static str, u16)> {
        match self {
            Self::None => None,
            Self::One(backend) => Some((backend, 1)),
            Self::Twenty(backend) => Some((backend, 20)),
        }
    }
}

/// A pod: its name, and its number among all pods.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// The name of its namespace and its id.
    pub id: String,
    port: u16,
}

impl Pod {
    pub(super) fn new(number: u16) -> Self {
        Self { id: format!("pod{number}"), port: 20_000 + number }
    }
}

impl Contender {
    /// Go's plugins, and ours as far as they are built.
    pub(super) fn all() -> anyhow::Result<Vec<Self>> {
        let go =
            node::program(Path::new("target/peers/bin/flannel"), "build Go's plugins with `make peers`")?;
        let go = go.parent().context("a folder of plugins")?.canonicalize()?;
        let mut all = vec![Self::new("Go", go, 0)?];
        all.extend(Self::ours()?);
        Ok(all)
    }

    /// Ours, with each C library for which they are built; the one that is shipped first.
    pub(super) fn ours() -> anyhow::Result<Vec<Self>> {
        let mut ours = Vec::new();
        for (number, (library, place)) in (1..).zip(size::programs()) {
            let folder = format!("/var/lib/{library}");
            node::sh(&place.to_string_lossy(), &["install", &folder])?;
            let name = if ours.is_empty() { OURS } else { "ours with glibc" };
            ours.push(Self::new(name, folder.into(), number)?);
        }
        ensure!(!ours.is_empty(), "there is no flannel-cni: `cargo build --profile cni -p flannel-cni`");
        Ok(ours)
    }

    /// Ours, as they are shipped.
    pub(super) fn shipped() -> anyhow::Result<Self> {
        Self::ours()?.into_iter().next().context("bug: no plugins")
    }

    fn new(name: &'static str, folder: PathBuf, number: u8) -> anyhow::Result<Self> {
        let network = format!("net{number}");
        let subnet = format!(
            "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.{number}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
        );
        std::fs::write(format!("/run/{network}.env"), subnet)?;
        Ok(Self { name, folder, network })
    }

    /// Attaches a pod, as a runtime does: the result of one plugin is the input of the next.
    pub(super) fn add(&self, pod: &Pod, ports: Ports) -> anyhow::Result<()> {
        let result = run(&mut self.call("ADD", "flannel", pod), &self.flannel())?;
        let result: Value = serde_json::from_slice(&result).context("flannel's result")?;
        run(&mut self.call("ADD", "portmap", pod), &self.portmap(pod, ports, Some(&result)))?;
        Ok(())
    }

    /// Detaches a pod; a runtime of this version of CNI has no result to bring back.
    pub(super) fn del(&self, pod: &Pod, ports: Ports) -> anyhow::Result<()> {
        run(&mut self.call("DEL", "portmap", pod), &self.portmap(pod, ports, None))?;
        run(&mut self.call("DEL", "flannel", pod), &self.flannel())?;
        Ok(())
    }

    /// A plugin that only says which versions it speaks: what starting a program costs.
    pub(super) fn version(&self, pod: &Pod) -> anyhow::Result<()> {
        run(&mut self.call("VERSION", "flannel", pod), &json!({})).map(drop)
    }

    /// What the kube-flannel manifest configures, but for the names that keep the contenders apart.
    pub(super) fn flannel(&self) -> Value {
        json!({
            "name": self.network, "cniVersion": "0.3.1", "type": "flannel",
            "subnetFile": format!("/run/{}.env", self.network),
            "delegate": {"hairpinMode": true, "isDefaultGateway": true, "bridge": self.network},
        })
    }

    /// The same for portmap.
    pub(super) fn portmap(&self, pod: &Pod, ports: Ports, previous: Option<&Value>) -> Value {
        let mut config = json!({
            "name": self.network, "cniVersion": "0.3.1", "type": "portmap", "capabilities": {"portMappings": true},
        });
        if let Some((backend, count)) = ports.wanted() {
            let mapping = |place: u16| json!({"hostPort": pod.port + place, "containerPort": 80 + place, "protocol": "tcp", "hostIP": ""});
            let mappings: Vec<_> = (0..count).map(mapping).collect();
            config["runtimeConfig"] = json!({"portMappings": mappings});
            config["backend"] = backend.into();
        }
        if let Some(previous) = previous {
            config["prevResult"] = previous.clone();
        }
        config
    }

    /// A plugin, ready to be run.
    pub(super) fn call(&self, command: &str, plugin: &str, pod: &Pod) -> Command {
        let mut process = Command::new(self.folder.join(plugin));
        process.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_PATH", &self.folder);
        process.env("CNI_COMMAND", command).env("CNI_CONTAINERID", &pod.id).env("CNI_IFNAME", "eth0");
        process.env("CNI_NETNS", format!("/run/netns/{}", pod.id));
        process.env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", pod.id));
        process
    }

    /// The plugin that `call` gives, run by another program: `words` in front.
    pub(super) fn call_under(
        &self,
        words: &[&str],
        command: &str,
        plugin: &str,
        pod: &Pod,
    ) -> anyhow::Result<Command> {
        let call = self.call(command, plugin, pod);
        let (first, rest) = words.split_first().context("a program")?;
        let mut process = Command::new(first);
        process.args(rest).arg(call.get_program()).env_clear();
        process.envs(call.get_envs().filter_map(|(key, value)| Some((key, value?))));
        Ok(process)
    }
}

/// Does something for many pods at once.
pub(super) fn at_once(work: impl Fn(&Pod) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let pods = (0..CROWD).map(Pod::new);
        let threads: Vec<_> = pods.map(|pod| scope.spawn(move || work(&pod))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().try_for_each(join)
    })
}

/// Runs a plugin to its end; a refusal is an error with what it said.
pub(super) fn run(process: &mut Command, config: &Value) -> anyhow::Result<Vec<u8>> {
    let shown = process.get_program().to_string_lossy().into_owned();
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn().with_context(|| format!("cannot run {shown}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        // One that does not read says why in its answer.
        let _ = pipe.write_all(config.to_string().as_bytes());
    }
    let output = child.wait_with_output()?;
    let told =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    ensure!(output.status.success(), "{shown}: {told}");
    Ok(output.stdout)
}
