//! One namespace that plays the host, one for each pod, and a folder with the plugins and the addresses in use.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use flannel_cni::plugins::Plugin;
use flannel_cni::program::answer;
use flannel_cni::request::Environment;
use flannel_cni::version::Version;
use flannel_kernel::netns::{Namespace, run_inside, visit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::own_run::hide_run;

/// What the plugin said when it failed: the code and the message.
pub type NetlinkError = (u64, String);

/// The host of one test.
pub struct Stage {
    folder: TempDir,
    /// A pod lives until it is killed, or until the end of the test.
    alive: Mutex<Vec<Arc<File>>>,
}

/// A pod of one test.
pub struct Pod {
    pub id: String,
    pub ifname: String,
    pub args: String,
    pub netns: String,
    namespace: Arc<File>,
}

/// Runs a test on a host of its own.
pub fn on_a_host(test: impl FnOnce(&Stage) + Send) {
    run_inside(&Namespace::Fresh, || {
        hide_run();
        sh("ip link set lo up");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let stage = Stage { folder, alive: Mutex::default() };
        // The delegate is this very program: then it is called as a function, as in the real one.
        let own = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(own, stage.path("bin/host-local")).unwrap();
        test(&stage);
    })
    .unwrap();
}

/// Versions that tell interfaces.
pub fn versions_with_interfaces() -> impl Iterator<Item = &'static str> {
    Version::ALL.into_iter().filter(|version| *version >= Version::V0_3_0).map(Version::as_str)
}

impl Stage {
    /// A path below the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A pod with an empty namespace.
    pub fn pod(&self, id: &str) -> Pod {
        let own = || Arc::new(File::open("/proc/thread-self/ns/net").unwrap());
        let namespace = run_inside(&Namespace::Fresh, own).unwrap();
        self.alive.lock().unwrap().push(namespace.clone());
        let netns = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        Pod { id: id.to_owned(), ifname: "eth0".to_owned(), args: String::new(), netns, namespace }
    }

    /// A pod dies, and its namespace with it; its runtime knows the path of the namespace still, or another.
    pub fn kill(&self, pod: Pod, netns: &str) -> Pod {
        self.alive.lock().unwrap().retain(|alive| !Arc::ptr_eq(alive, &pod.namespace));
        let namespace = Arc::new(File::open("/dev/null").unwrap());
        Pod { netns: netns.to_owned(), namespace, ..pod }
    }

    /// A network with one subnet and a default route; the keys of `more` are added or replaced.
    pub fn network(&self, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0",
            "name": "mynet",
            "type": "bridge",
            "isDefaultGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.22.0.0/16", "dataDir": self.path("networks")},
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    /// IPAM with a set of one range for each subnet.
    pub fn ipam(&self, subnets: &[&str]) -> Value {
        let ranges: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
        json!({"type": "host-local", "dataDir": self.path("networks"), "ranges": ranges})
    }

    /// Puts a program in place that plays IPAM: a shell script, which finds what it is asked in `$CNI_COMMAND`.
    pub fn play_ipam(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\ncat >/dev/null\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The addresses in use, as the files of host-local tell them.
    pub fn leased(&self) -> Vec<String> {
        let Ok(folder) = fs::read_dir(self.path("networks/mynet")) else { return Vec::new() };
        let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> =
            names.filter(|name| name.contains(['.', ':']) && !name.contains('_')).collect();
        names.sort();
        names
    }

    fn call(&self, command: &str, pod: Option<&Pod>, config: &Value) -> Result<Value, NetlinkError> {
        let environment = Environment {
            command: command.into(),
            container_id: pod.map_or_else(String::new, |pod| pod.id.clone()),
            netns: pod.map_or_else(String::new, |pod| pod.netns.clone()).into(),
            ifname: pod.map_or_else(String::new, |pod| pod.ifname.clone()),
            args: pod.map_or_else(String::new, |pod| pod.args.clone()),
            path: self.path("bin").into(),
            netns_override: String::new(),
        };
        let reply = answer(Plugin::Bridge, &environment, config.to_string().as_bytes());
        let said = serde_json::from_str(&reply.stdout).unwrap_or(Value::Null);
        if reply.status == 0 {
            return Ok(said);
        }
        Err((said["code"].as_u64().unwrap(), said["msg"].as_str().unwrap().to_owned()))
    }

    pub fn add(&self, pod: &Pod, config: &Value) -> Result<Value, NetlinkError> {
        self.call("ADD", Some(pod), config)
    }

    pub fn del(&self, pod: &Pod, config: &Value) -> Result<Value, NetlinkError> {
        self.call("DEL", Some(pod), config)
    }

    pub fn check(&self, pod: &Pod, config: &Value) -> Result<Value, NetlinkError> {
        self.call("CHECK", Some(pod), config)
    }

    pub fn gc(&self, config: &Value) -> Result<Value, NetlinkError> {
        self.call("GC", None, config)
    }

    pub fn status(&self, config: &Value) -> Result<Value, NetlinkError> {
        self.call("STATUS", None, config)
    }
}

impl Pod {
    /// Does something inside the pod.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        visit(&self.namespace, work).unwrap()
    }

    /// The lines that a command prints inside the pod.
    pub fn lines(&self, script: &str) -> Vec<String> {
        self.inside(|| lines(script))
    }
}

/// The same configuration with the result of an ADD in it.
pub fn with_result(config: &Value, result: &Value) -> Value {
    let mut config = config.clone();
    config["prevResult"] = result.clone();
    config
}

/// An error for which the specification has no code.
pub fn internal<T>(message: &str) -> Result<T, NetlinkError> {
    Err((999, message.to_owned()))
}

/// Runs commands of the shell on the host and gives what they print; they must not fail.
pub fn sh(script: &str) -> String {
    let out = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The lines that a command prints on the host, with single spaces between the words.
pub fn lines(script: &str) -> Vec<String> {
    sh(script).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The names of the host's devices but `lo`, the random ones as `veth`.
pub fn devices() -> Vec<String> {
    let names = lines("ip -o link show | cut -d: -f2 | cut -d@ -f1");
    let mut names: Vec<_> = names.into_iter().filter(|name| name != "lo").collect();
    for name in names.iter_mut().filter(|name| name.starts_with("veth")) {
        assert_eq!(name.len(), 12, "{name}");
        name.truncate(4);
    }
    names.sort();
    names
}

/// The addresses of a device but the link-local one, sorted: the kernel's order is its own business.
pub fn addresses(device: &str) -> Vec<String> {
    lines(&format!("ip -o addr show dev {device} scope global | awk '{{print $4}}' | sort"))
}
