//! The plugins of kube-flannel's network, Go's or ours, called for pods one after the other as a runtime does.

use std::io::{Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
            // On disk, as Go's are: programs are mapped more slowly from a file system in memory.
            let folder = std::env::current_dir()?.join("target/bench").join(library);
            node::sh(&place.to_string_lossy(), &["install", &folder.to_string_lossy()])?;
            let name = if ours.is_empty() { OURS } else { "ours with glibc" };
            ours.push(Self::new(name, folder, number)?);
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

    /// Attaches a pod, as a runtime does: the result of one plugin is the input of the next. Gives the time that the
    /// plugins took.
    pub(super) fn add(&self, pod: &Pod, ports: Ports) -> anyhow::Result<Duration> {
        let (result, flannel) = run(&mut self.call("ADD", "flannel", pod), &self.flannel())?;
        let result: Value = serde_json::from_slice(&result).context("flannel's result")?;
        let config = self.portmap(pod, ports, Some(&result));
        let (_, portmap) = run(&mut self.call("ADD", "portmap", pod), &config)?;
        Ok(flannel + portmap)
    }

    /// Detaches a pod; a runtime of this version of CNI has no result to bring back.
    pub(super) fn del(&self, pod: &Pod, ports: Ports) -> anyhow::Result<Duration> {
        let (_, portmap) = run(&mut self.call("DEL", "portmap", pod), &self.portmap(pod, ports, None))?;
        let (_, flannel) = run(&mut self.call("DEL", "flannel", pod), &self.flannel())?;
        Ok(portmap + flannel)
    }

    /// A plugin that only says which versions it speaks: what starting a program costs.
    pub(super) fn version(&self, pod: &Pod) -> anyhow::Result<Duration> {
        run(&mut self.call("VERSION", "flannel", pod), &json!({})).map(|(_, time)| time)
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

/// Runs a plugin to its end, and gives its answer and the time from its start to its end; a refusal is an error with
/// what it said. Input and answer are less than a pipe holds, so nobody waits for the bench.
pub(super) fn run(process: &mut Command, config: &Value) -> anyhow::Result<(Vec<u8>, Duration)> {
    let shown = process.get_program().to_string_lossy().into_owned();
    let (input, mut sender) = pipe()?;
    sender.write_all(config.to_string().as_bytes())?;
    drop(sender);
    let ((mut answer, stdout), (mut complaint, stderr)) = (pipe()?, pipe()?);
    process.stdin(input).stdout(stdout).stderr(stderr);
    let begun = Instant::now();
    let mut child = process.spawn().with_context(|| format!("cannot run {shown}"))?;
    let status = child.wait()?;
    let time = begun.elapsed();
    // Its ends of the pipes are closed here, too, else there would be no end to read.
    process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut output, mut told) = (Vec::new(), Vec::new());
    answer.read_to_end(&mut output)?;
    complaint.read_to_end(&mut told)?;
    let words = [&output, &told].map(|text| String::from_utf8_lossy(text)).concat();
    ensure!(status.success(), "{shown}: {words}");
    Ok((output, time))
}
