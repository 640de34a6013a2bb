//! A namespace that plays the host, and calls of portmap in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flannel_cni::plugins::Plugin;
use flannel_cni::program::answer;
use flannel_cni::request::Environment;
use flannel_kernel::netns::{Namespace, run_inside};
use serde_json::{Value, json};

use crate::own_run::hide_run;

/// What the plugin said when it failed: the code and the message.
pub type NetlinkError = (u64, String);

/// Runs a test on a host of its own, with a `/run` of its own, where legacy iptables has its lock.
pub fn on_a_host(test: impl FnOnce() + Send) {
    run_inside(&Namespace::Fresh, || {
        hide_run();
        sh("ip link set lo up");
        test();
    })
    .unwrap();
}

/// Runs commands of the shell on the host and gives what they print; they must not fail.
pub fn sh(script: &str) -> String {
    let out = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// What `nft` lists.
pub fn nft() -> String {
    sh("nft -s list ruleset")
}

/// The chains and rules of the table nat, without counters and remarks.
pub fn nat(program: &str) -> Vec<String> {
    let saved = sh(&format!("{program} -t nat"));
    saved.lines().filter(|line| line.starts_with([':', '-'])).map(without_counters).collect()
}

fn without_counters(line: &str) -> String {
    let end = if line.starts_with(':') { line.find('[').unwrap() } else { line.len() };
    line[..end].to_owned()
}

/// A call of a plugin.
pub struct Call<'a> {
    pub plugin: Plugin,
    pub command: &'a str,
    pub container: &'a str,
    pub ifname: &'a str,
    pub config: Value,
}

impl Call<'_> {
    pub fn run(&self) -> Result<Value, NetlinkError> {
        let environment = Environment {
            command: self.command.into(),
            container_id: self.container.into(),
            netns: "/run/netns/pod1".into(),
            ifname: self.ifname.into(),
            path: "/nowhere".into(),
            ..Environment::default()
        };
        let reply = answer(self.plugin, &environment, self.config.to_string().as_bytes());
        let said = serde_json::from_str(&reply.stdout).unwrap_or(Value::Null);
        if reply.status == 0 {
            return Ok(said);
        }
        Err((said["code"].as_u64().unwrap(), said["msg"].as_str().unwrap().to_owned()))
    }
}

/// portmap for the container `c0ffee01` and its `eth0`.
pub fn portmap(command: &str, config: &Value) -> Result<Value, NetlinkError> {
    portmap_for("c0ffee01", "eth0", command, config)
}

/// portmap for a container and its interface.
pub fn portmap_for(
    container: &str,
    ifname: &str,
    command: &str,
    config: &Value,
) -> Result<Value, NetlinkError> {
    Call { plugin: Plugin::Portmap, command, container, ifname, config: config.clone() }.run()
}

/// A configuration for a container of these addresses; the keys of `more` are added or replaced.
pub fn config(addresses: &[&str], mappings: Value, more: Value) -> Value {
    let ips: Vec<_> = addresses.iter().map(|address| json!({"interface": 1, "address": address})).collect();
    let mut config = json!({
        "cniVersion": "1.1.0",
        "name": "mynet",
        "type": "portmap",
        "runtimeConfig": {"portMappings": mappings},
        "prevResult": {
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/run/netns/pod1"}],
            "ips": ips,
        },
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// What Go's plugins were asked, what they answered and what they left.
pub fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// Puts the legacy programs in the place of the others, for this thread and those that it starts.
pub fn with_legacy_iptables() {
    sh("cp -a /etc/alternatives /run/alternatives
        for program in iptables ip6tables; do
            for suffix in '' -save -restore; do
                ln -sf /usr/sbin/$program-legacy$suffix /run/alternatives/$program$suffix
            done
        done
        mount --bind /run/alternatives /etc/alternatives");
    assert!(sh("iptables --version").contains("legacy"));
}

/// A folder of Go's plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Of Debian: 1.1.1, which knows no nftables.
    Debian,
    /// As `make peers` builds them: 1.9.1.
    Newest,
}

impl Go {
    fn folder(self) -> PathBuf {
        match self {
            Self::Debian => "/usr/lib/cni".into(),
            Self::Newest => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin"),
        }
    }

    /// Those that this machine has; for the others a line says that they are missing.
    pub fn present(plugin: &str) -> Vec<Self> {
        let is_present = |go: &Self| {
            let is_there = go.folder().join(plugin).exists();
            if !is_there {
                eprintln!("not run: there is no {} of {go:?}", go.folder().join(plugin).display());
            }
            is_there
        };
        [Self::Debian, Self::Newest].into_iter().filter(is_present).collect()
    }

    /// Whether CHECK works with two addresses: that of 1.1.1 looks for the rules of one in the table of the other.
    pub fn can_check(self) -> bool {
        self == Self::Newest
    }

    /// Calls a plugin of Go for the container `c0ffee01` and its `eth0` in the namespace `pod1`.
    pub fn call(self, plugin: &str, command: &str, config: &Value) -> Result<Value, String> {
        let mut child = Command::new(self.folder().join(plugin))
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", "c0ffee01")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/run/netns/pod1")
            .env("CNI_PATH", self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        if output.status.success() { Ok(said.parse().unwrap_or(Value::Null)) } else { Err(said) }
    }
}
