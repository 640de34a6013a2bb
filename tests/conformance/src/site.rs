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

/// What it does first where container runtimes are to run: they write to more folders, and want cgroups.
const SETTLE_NODE: &str = "\
mount -t tmpfs tmpfs /dev/shm && mount --rbind /sys/fs/cgroup /mnt && mount -t sysfs sysfs /sys && \
mount --move /mnt /sys/fs/cgroup && mount -t tmpfs -o mode=1777 tmpfs /tmp && mkdir -p /tmp/etc /tmp/work && \
mount -t overlay overlay -o lowerdir=/etc,upperdir=/tmp/etc,workdir=/tmp/work /etc && \
mkdir -p /etc/cni/net.d /etc/containers && ";

/// Where programs are: a plain user's own list may lack half of it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A host of its own.
#[derive(Debug)]
pub struct Site {
    first: Child,
    /// The process that holds the namespaces.
    process: u32,
    namespaces: &'static [&'static str],
}

impl Site {
    /// A new host with nothing but `lo`.
    pub fn new() -> Self {
        let first = start(&["--mount", "--net"], SETTLE);
        Self { process: first.id(), first, namespaces: &["--mount", "--net"] }
    }

    /// A new host on which container runtimes can run: with processes of its own, and `/etc` may be written.
    pub fn node() -> Self {
        let mut options = vec!["--mount", "--net", "--pid", "--uts", "--ipc"];
        let namespaces = &["--mount", "--net", "--pid", "--uts", "--ipc"];
        options.extend(["--fork", "--mount-proc"]);
        let first = start(&options, &format!("{SETTLE_NODE}{SETTLE}"));
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        let children = fs::read_to_string(children).unwrap();
        Self { process: children.trim().parse().unwrap(), first, namespaces }
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
        self.process
    }

    /// A name that no other host of these tests has, for what they share: cgroups.
    pub fn name(&self) -> String {
        format!("flannel-conformance-{}", self.process)
    }

    /// A program to be run on the host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.process.to_string(), "--wd=/"])
            .args(self.namespaces)
            .arg("--")
            .arg(program)
            .env("PATH", PATH);
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
        run_inside(&Namespace::OfProcess(self.process), work).unwrap()
    }

    /// Runs work on a thread in a pod's network namespace.
    pub fn inside_pod<T: Send>(&self, pod: &str, work: impl FnOnce() -> T + Send) -> T {
        self.inside_path(&Path::new("/run/netns").join(pod), work)
    }

    /// Runs work on a thread in the network namespace of a path of the host.
    pub fn inside_path<T: Send>(&self, path: &Path, work: impl FnOnce() -> T + Send) -> T {
        run_inside(&Namespace::AtPath(self.path(path)), work).unwrap()
    }

    /// Where a path of the host is found from outside.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let inner = path.as_ref().strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.process.to_string()).join("root").join(inner)
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

/// Starts the first process of a host and waits until it has settled.
fn start(options: &[&str], script: &str) -> Child {
    let mut command = Command::new("unshare");
    command.args(options).args(["--propagation", "private", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = command.spawn().expect("unshare of util-linux starts");
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "settled\n", "a site needs root, iproute2 and util-linux");
    first
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
        let cgroups = format!("*/{}*", self.name());
        if self.namespaces.contains(&"--pid") {
            // Runtimes leave empty cgroups, which are the machine's; a cgroup is empty soon after its last process.
            let find =
                ["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &cgroups, "-exec", "rmdir", "{}", ";"];
            let _ = Command::new("find").args(find).stderr(Stdio::null()).status();
        }
    }
}
