//! One machine of a lab: a process with namespaces of its own, whose death is a power failure.
//!
//! Takes a name and a role, gives a place to run commands in. Its /run is in memory and dies with it; what it
//! writes to /etc, /opt and /var/lib goes to its disk, a folder of the lab, and is there after a reboot.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{self, LabProcess, MARK};
use crate::program::{self, make_folder};
use crate::{LabError, Result};

/// The folders of a node's disk that are plain folders outside, so that a test can look into them.
const DISK: [&str; 5] = ["/etc/cni", "/opt/cni", "/var/lib/cni", "/var/lib/flannel", "/etc/kube-flannel"];
/// Where mount points may be missing on the host: the node sees the host's files, and writes to its own disk.
const LAYERED: [&str; 3] = ["/etc", "/opt", "/var/lib"];
/// Where a node sees the lease store of the lab.
pub(crate) const STORE: &str = "/var/lib/flannel-store";

/// Where a kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// PID 1: mounts, forwards, says so, and sleeps. It ignores the death of its children, so that the kernel buries
/// them. `mount -n` keeps no notes in the host's /run. rp_filter is set because IPv4 settings are inherited from
/// the host. A router asks for neighbours with its link-local address, which duplicate address detection would
/// keep back for a second.
const BOOT: &str = r#"
set -e
echo "$1" > /proc/sys/kernel/hostname
if [ -n "$2" ]; then mount -n -a -T "$2"; fi
cd /proc/sys/net
echo 1 > ipv4/ip_forward
echo 0 > ipv4/conf/all/rp_filter
echo 0 > ipv4/conf/default/rp_filter
case $3 in
node) echo 1 > ipv6/conf/all/forwarding ;;
router) echo 1 > ipv6/conf/all/forwarding; echo 0 > ipv6/conf/default/accept_dad ;;
switch) echo 1 > ipv6/conf/default/disable_ipv6 ;;
esac
cd /
echo ready
exec env --ignore-signal=CHLD sleep infinity >/dev/null 2>&1
"#;

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs flanneld and pods; has a disk.
    Node,
    /// Runs a lease store's programs on the host's files: what they keep is in the lab's folder.
    Server,
    Router,
    Switch,
}

/// A node, server, router or switch of a lab.
#[derive(Debug)]
pub struct Machine {
    lab: String,
    name: String,
    role: Role,
    folder: PathBuf,
    /// PID 1 as seen from here; 0 while it is off.
    pid: AtomicU32,
    /// The process that holds PID 1, if this program started it.
    holder: Mutex<Option<Child>>,
}

impl Machine {
    pub(crate) fn new(lab: &str, name: &str, role: Role, folder: &Path) -> Self {
        Self {
            lab: lab.to_owned(),
            name: name.to_owned(),
            role,
            folder: folder.to_owned(),
            pid: AtomicU32::new(0),
            holder: Mutex::new(None),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its PID 1 as seen from here, unless it is powered off.
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    /// Looks for its PID 1 among the processes of the lab.
    pub(crate) fn find_pid(&self, processes: &[LabProcess]) {
        let is_first = |found: &&LabProcess| found.machine == self.name && found.inner_pid == Some(1);
        self.pid.store(processes.iter().find(is_first).map_or(0, |found| found.pid), Ordering::SeqCst);
    }

    pub(crate) fn require_pid(&self) -> Result<u32> {
        self.pid().ok_or_else(|| LabError::PoweredOff(self.name.clone()))
    }

    /// A path as the machine sees it, as a path for us; only while it is on.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/{}", self.pid().unwrap_or(0), inside.trim_start_matches('/')))
    }

    /// A command that will run inside the machine: in its network, its files and its processes. On one
    /// that is off it fails when run.
    pub fn command<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.nsenter();
        command.args(["--net", "--", program]);
        command.args(arguments);
        command
    }

    /// `nsenter` into all but the network, which is the machine's own or a pod's.
    pub(crate) fn nsenter(&self) -> Command {
        let mut command = program::command("nsenter");
        command.args(["-t", &self.pid().unwrap_or(0).to_string(), "-m", "-u", "-i", "-p"]);
        command.env(MARK, self.mark());
        command
    }

    /// Runs a command inside the machine to its end and gives what it wrote.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        self.require_pid()?;
        program::run(&mut self.command(program, arguments))
    }

    /// Runs a closure on a thread of its own that is in the machine's network (files stay the host's).
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/proc/{}/ns/net", self.require_pid()?);
        let network = File::open(path).map_err(self.enter_error())?;
        let entered = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        entered.map_err(|errno: rustix::io::Errno| self.enter_error()(errno.into()))
    }

    /// The network of the machine cannot be used.
    pub(crate) fn enter_error(&self) -> impl Fn(io::Error) -> LabError {
        let what = format!("enter the network of {}", self.name);
        move |source| LabError::System { what: what.clone(), source: source.into() }
    }

    /// Runs a program of the host in the machine's network to its end: words are separated by spaces.
    pub(crate) fn run_in_network(&self, program: &str, words: &str) -> Result<String> {
        self.inside(|| program::run(program::command(program).args(words.split_whitespace())))?
    }

    /// Gives `ip` a list of things to do in the machine's network, in one process.
    pub(crate) fn ip_batch(&self, lines: &str) -> Result<()> {
        self.ip_lines(&["-batch", "-"], lines).map(drop)
    }

    pub(crate) fn ip_lines(&self, flags: &[&str], lines: &str) -> Result<String> {
        self.inside(|| program::run_with_input(program::command("ip").args(flags), lines))?
    }

    fn mark(&self) -> String {
        format!("{}/{}", self.lab, self.name)
    }

    /// The lab it belongs to.
    pub fn lab(&self) -> &str {
        &self.lab
    }

    /// Its own folder in the lab's: disk, layers and logs.
    pub(crate) fn own_folder(&self) -> PathBuf {
        self.folder.join("nodes").join(&self.name)
    }

    /// Starts the namespaces; [`Machine::finish_boot`] waits for them.
    pub(crate) fn begin_boot(&self) -> Result<()> {
        let (role, table) = match self.role {
            Role::Node => ("node", self.lay_disk()?),
            Role::Server => ("server", make_folder(self.own_folder()).map(|()| String::new())?),
            Role::Router => ("router", String::new()),
            Role::Switch => ("switch", String::new()),
        };
        let mut command = program::command("unshare");
        command.args(["-m", "-u", "-i", "-n", "-p", "--fork", "--mount-proc", "--kill-child", "--"]);
        command.args(["sh", "-c", BOOT, "sh", &self.name, &table, role]);
        command.env(MARK, self.mark()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C is for the tool, which then cleans up in order.
        command.process_group(0).current_dir("/");
        let child = command.spawn().map_err(|why| self.boot_error(&why.to_string()))?;
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// Waits until the start script is through.
    pub(crate) fn finish_boot(&self) -> Result<()> {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = holder.as_mut() else { return Err(self.boot_error("bug: it was not started")) };
        let mut line = String::new();
        if let Some(pipe) = child.stdout.take() {
            // A dead script leaves the line empty, and its reason on the other pipe.
            let _ = BufReader::new(pipe).read_line(&mut line);
        }
        let pipe = child.stderr.take();
        if line == "ready\n" {
            return Ok(());
        }
        let mut why = String::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_string(&mut why);
        }
        Err(self.boot_error(if why.is_empty() { "its start script ended early" } else { why.trim() }))
    }

    fn boot_error(&self, why: &str) -> LabError {
        // A container's own disk is an overlay, on which the kernel stacks no second one.
        let hint = if why.contains("overlay") {
            "; set FLANNEL_LAB_DIR to a folder on a disk or a tmpfs"
        } else {
            ""
        };
        LabError::failed(format!("cannot boot {}", self.name), format!("{why}{hint}"))
    }

    /// Makes the disk's folders and the table of mounts; what is there from before a power failure stays.
    fn lay_disk(&self) -> Result<String> {
        let own = self.own_folder();
        let (disk, layers) = (own.join("disk"), own.join("layers"));
        let mut table = String::new();
        for top in LAYERED {
            let (upper, work) = (layers.join(format!("upper{top}")), layers.join(format!("work{top}")));
            make_folder(&upper)?;
            make_folder(&work)?;
            let (upper, work) = (upper.display(), work.display());
            table += &format!("overlay {top} overlay lowerdir={top},upperdir={upper},workdir={work} 0 0\n");
        }
        for folder in DISK {
            let source = disk.join(folder.trim_start_matches('/'));
            make_folder(&source)?;
            make_folder(layers.join(format!("upper{folder}")))?;
            table += &format!("{} {folder} none bind 0 0\n", source.display());
        }
        make_folder(layers.join(format!("upper{STORE}")))?;
        table += &format!("{} {STORE} none bind 0 0\n", self.folder.join("store").display());
        table += &format!("{} {BOOT_ID} none bind 0 0\n", self.draw_boot_id()?.display());
        // Last, because it hides the lab's folder. A name of its own, or `mount -a` takes the host's for it.
        table += "flannel-lab /run tmpfs mode=755 0 0\n";
        let path = own.join("mounts");
        program::write(&path, &table)?;
        Ok(path.display().to_string())
    }

    /// A new number for each boot, as a real kernel draws one: reservations of an earlier boot are known by it.
    fn draw_boot_id(&self) -> Result<PathBuf> {
        let path = self.own_folder().join("boot_id");
        program::write(&path, &program::read("/proc/sys/kernel/random/uuid")?)?;
        Ok(path)
    }

    /// A path on a node's disk (`/etc/cni`, `/var/lib/cni`, `/opt/cni`, `/var/lib/flannel`, `/etc/kube-flannel`), also
    /// while it is off.
    pub fn disk_path(&self, inside: &str) -> PathBuf {
        self.own_folder().join("disk").join(inside.trim_start_matches('/'))
    }

    /// Kills all that runs in it, at once, as a power failure does.
    pub(crate) fn cut_power(&self) -> Result<()> {
        process::kill_all(&self.lab, Some(&self.name))?;
        self.bury();
        self.find_pid(&[]);
        Ok(())
    }

    /// Reaps the holder, which would stay a zombie for as long as this program lives.
    pub(crate) fn bury(&self) {
        if let Some(mut child) = self.holder.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.wait();
        }
    }

    /// Where the machine keeps the number of a program, as it sees it: in memory, as a real system does, or for one
    /// without a memory of its own in its folder.
    pub(crate) fn pid_file(&self, service: &str) -> String {
        match self.role {
            Role::Server => self.own_folder().join(format!("{service}.pid")).display().to_string(),
            _ => format!("/run/{service}.pid"),
        }
    }

    /// What a program of this machine writes goes here.
    pub(crate) fn log_path(&self, service: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{}.{service}.log", self.name))
    }

    pub(crate) fn open_log(&self, service: &str) -> Result<File> {
        let path = self.log_path(service);
        fs::OpenOptions::new().create(true).append(true).open(&path).map_err(LabError::file("open", path))
    }
}
