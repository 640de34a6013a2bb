//! A node for one test: the test runs itself again, alone, in namespaces of its own, where it is the first process.
//!
//! So a test calls, kills and looks without going through anything else, never touches the host, and when it ends,
//! all that it left behind goes with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::scan::{QUESTIONS, Scan, run};

/// Set for the test that runs on the node.
const INSIDE: &str = "LEAK_TESTS_ON_NODE";

/// Where flannel keeps its records.
pub const RECORDS: &str = "/var/lib/cni/flannel";
/// Where host-local keeps the reservations of the network.
pub const RESERVATIONS: &str = "/var/lib/cni/networks/cbr0";

const PLUGINS: &str = "/var/lib/plugins";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SUBNET_ENV: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\n\
                          FLANNEL_IPMASQ=false\n";
/// What flanneld writes on a node with both families.
pub const DUAL_STACK: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n\
                              FLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\n\
                              FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";
/// The kernel takes a network away in the background, after others.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the test that calls this on a node of its own.
pub fn on_a_node<W: FnOnce(&mut Node)>(work: W) {
    if std::env::var_os(INSIDE).is_some() {
        return work(&mut Node::boot());
    }
    let test = name_of::<W>();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child"]);
    command.arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").current_dir("/");
    let output = command.output().expect("unshare of util-linux starts");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "on a node of its own (root needed?):\n{text}"
    );
    // Shown with --nocapture: what a test counted.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
}

/// The name by which the harness knows the test that a closure is in.
fn name_of<W>() -> &'static str {
    let name = std::any::type_name::<W>();
    let (_, name) = name.split_once("::").unwrap();
    name.split("::{{closure}}").next().unwrap()
}

/// The node that this process is the first of.
#[derive(Debug)]
pub struct Node {
    boots: u32,
}

impl Node {
    fn boot() -> Self {
        let program = program();
        let bytes = fs::read(&program).unwrap_or_else(|error| {
            panic!("{program:?}: {error}; build it with `cargo build -p flannel-cni`")
        });
        for folder in ["/run", "/var/lib"] {
            mount("leak-tests", folder, "tmpfs", MountFlags::empty(), None).unwrap();
        }
        fs::create_dir_all(PLUGINS).unwrap();
        // Without a table, `ip route` would tell of one family only.
        fs::write(QUESTIONS, "addr show\nroute show table all\n").unwrap();
        let copy = "/var/lib/flannel-cni";
        fs::write(copy, bytes).unwrap();
        run("chmod", &["755", copy]);
        run(copy, &["install", PLUGINS]);
        run("ip", &["link", "set", "lo", "up"]);
        let mut node = Self { boots: 0 };
        node.begin_boot();
        node
    }

    /// What is new at every boot.
    fn begin_boot(&mut self) {
        self.boots += 1;
        let id = format!("/run/boot-{}", self.boots);
        fs::write(&id, format!("00000000-0000-4000-8000-{:012}\n", self.boots)).unwrap();
        mount_bind(&id, BOOT_ID).unwrap();
        fs::create_dir_all("/run/flannel").unwrap();
        fs::create_dir_all("/run/netns").unwrap();
        self.set_subnet_env(SUBNET_ENV);
    }

    /// A power failure: what the kernel and /run hold is lost, the disk is not, and the boot has another name.
    pub fn reboot(&mut self) {
        self.names_of_netns().iter().for_each(|name| self.remove_netns(name));
        self.wait_for_cables(0);
        run("nft", &["flush", "ruleset"]);
        let bridges = run("ip", &["-br", "link", "show", "type", "bridge"]);
        for name in bridges.lines().filter_map(|line| line.split_whitespace().next()) {
            run("ip", &["link", "del", name]);
        }
        unmount(BOOT_ID, UnmountFlags::DETACH).unwrap();
        // `ip netns` has mounts of its own below.
        unmount("/run", UnmountFlags::DETACH).unwrap();
        mount("leak-tests", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        self.begin_boot();
    }

    /// The path of a plugin.
    pub fn plugin(&self, name: &str) -> PathBuf {
        Path::new(PLUGINS).join(name)
    }

    /// Writes what flanneld would write.
    pub fn set_subnet_env(&self, text: &str) {
        fs::write("/run/flannel/subnet.env", text).unwrap();
    }

    /// Makes the network namespaces of pods.
    pub fn make_netns<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let lines: String = names.into_iter().map(|name| format!("netns add {name}\n")).collect();
        fs::write("/run/batch", lines).unwrap();
        run("ip", &["-batch", "/run/batch"]);
        fs::remove_file("/run/batch").unwrap();
    }

    /// Takes a network namespace away, as a runtime does that cleans up before it calls DEL.
    pub fn remove_netns(&self, name: &str) {
        run("ip", &["netns", "del", name]);
    }

    /// The names of all network namespaces.
    pub fn names_of_netns(&self) -> Vec<String> {
        let entries = fs::read_dir("/run/netns").unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Looks at everything.
    pub fn scan(&self) -> Scan {
        Scan::of(&self.names_of_netns())
    }

    /// Waits until a scan finds what it found before; tells what is too much and what is lacking.
    #[track_caller]
    pub fn expect(&self, before: &Scan, after: &str) {
        let difference = self.difference(before, LIMIT);
        assert!(difference.is_empty(), "the node is not as it was before {after}: {difference:#?}");
    }

    /// What a scan finds that it did not find before, and the reverse, if that does not pass within a limit.
    pub fn difference(&self, before: &Scan, limit: Duration) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let difference = self.scan().difference(before);
            if difference.is_empty() || begun.elapsed() > limit {
                return difference;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until there are so many cables on the host: the kernel takes those of a lost namespace away by and by.
    #[track_caller]
    pub fn wait_for_cables(&self, number: usize) {
        self.wait(&format!("{number} cables to be left"), || {
            let cables = run("ip", &["-o", "link", "show", "type", "veth"]);
            if cables.lines().count() == number { Ok(()) } else { Err(cables) }
        });
    }

    /// Looks until a look finds nothing to complain of.
    #[track_caller]
    pub fn wait(&self, what: &str, mut look: impl FnMut() -> Result<(), String>) {
        let begun = Instant::now();
        while let Err(why) = look() {
            assert!(begun.elapsed() < LIMIT, "waited {LIMIT:?} for {what}:\n{why}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// The program under test: two folders above the test's own, or `$FLANNEL_CNI`.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().and_then(Path::parent).unwrap().join("flannel-cni");
    std::env::var_os("FLANNEL_CNI").map_or(beside, PathBuf::from)
}
