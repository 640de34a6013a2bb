//! A host for one scenario: a network namespace and a mount namespace of its own, with empty `/run` and `/var/lib`.
//!
//! Pods are named network namespaces inside it. Everything goes when it is dropped, and when the tests are killed:
//! its only process reads a pipe whose other end they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use flannel_kernel::netns::{Namespace, run_inside};
use serde_json::Value;

use crate::wait::wait_until;

/// What the first process does: empties what plugins write to, and then stays until its input ends.
const SETTLE: &str = "\
mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs -o mode=755 tmpfs /var/lib && \
mkdir -p /run/lock /run/netns /var/lib/cni && ip link set lo up && \
for s in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 0 > /proc/sys/net/$s; done && \
echo settled && exec cat > /dev/null";

/// A host of its own.
#[derive(Debug)]
pub struct Site {
    first: Child,
}

impl Site {
    /// A new host with nothing but `lo`.
    pub fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-c", SETTLE]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut first = command.spawn().expect("unshare of util-linux starts");
        let mut line = String::new();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "settled\n", "a site needs root, iproute2 and util-linux");
        Self { first }
    }

    /// Makes a pod and gives the path of its namespace.
    pub fn pod(&self, name: &str) -> PathBuf {
        self.sh(&format!("ip netns add {name}"));
        PathBuf::from("/run/netns").join(name)
    }

    /// Removes a pod, as a runtime in a hurry does: its devices go with it, and so do their ends on the host.
    pub fn remove_pod(&self, name: &str) {
        let numbers = |list: Value, key: &str| {
            let links = list.as_array().unwrap().iter().filter_map(|link| link[key].as_u64());
            links.collect::<BTreeSet<_>>()
        };
        let ends = numbers(self.json(&format!("ip -n {name} -j link")), "link_index");
        self.sh(&format!("ip netns del {name}"));
        // The kernel takes its time.
        wait_until("the host's ends are gone", || {
            numbers(self.json("ip -j link"), "ifindex").is_disjoint(&ends)
        });
    }

    /// The number of the process that holds the namespaces.
    pub fn process(&self) -> u32 {
        self.first.id()
    }

    /// A program to be run on the host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let process = self.first.id().to_string();
        command.args(["--target", &process, "--mount", "--net", "--wd=/", "--"]).arg(program);
        command
    }

    /// Runs a line of shell, which must succeed, and gives what it printed.
    pub fn sh(&self, line: &str) -> String {
        let output = self.try_sh(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{line}` failed: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line of shell that may fail.
    pub fn try_sh(&self, line: &str) -> Output {
        self.command("sh").args(["-c", line]).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs work on a thread in the host's network namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        run_inside(&Namespace::OfProcess(self.first.id()), work).unwrap()
    }

    /// Runs work on a thread in a pod's network namespace.
    pub fn inside_pod<T: Send>(&self, pod: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = self.path(Path::new("/run/netns").join(pod));
        run_inside(&Namespace::AtPath(path), work).unwrap()
    }

    /// Where a path of the host is found from outside.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let inner = path.as_ref().strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.first.id().to_string()).join("root").join(inner)
    }

    /// Writes a file of the host, with its folders.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let outer = self.path(path);
        fs::create_dir_all(outer.parent().unwrap()).unwrap();
        fs::write(outer, content).unwrap();
    }

    /// The content of a file of the host, if it is there.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read(self.path(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Every file below a folder of the host, with its content.
    pub fn files(&self, folder: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return found };
        for entry in entries {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                found.extend(self.files(&path));
            } else {
                let content = self.read(&path).unwrap_or_default();
                found.insert(path, content);
            }
        }
        found
    }

    /// A setting below `/proc/sys`, of the host or of a pod.
    pub fn sysctl(&self, pod: Option<&str>, name: &str) -> String {
        let read = || fs::read_to_string(Path::new("/proc/sys").join(name));
        let value = match pod {
            Some(pod) => self.inside_pod(pod, read),
            None => self.inside(read),
        };
        value.unwrap_or_else(|error| panic!("{name}: {error}")).trim().to_owned()
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.first.stdin.take()); // its input ends, and so does it
        let _ = self.first.wait();
    }
}
