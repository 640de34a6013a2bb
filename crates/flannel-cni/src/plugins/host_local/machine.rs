//! What host-local knows of the machine beside the network's folder: which boot this is, and which addresses are in
//! use. A test brings its own.
//!
//! Who uses an address is asked only when a range is exhausted, to tell old reservations without a container from
//! those of a container that lives. Looked at are the addresses in every network namespace that has a process or a
//! name (that is where the other end of a veth is), and the neighbours and the routes to single addresses of the
//! host. When in doubt, in use.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flannel_kernel::netns::{Namespace, NetnsError, run_inside};
use flannel_kernel::stack::Stack;
use flannel_kernel::{Linux, NetlinkError, ObserveError};
use flannel_plan::family::Family;
use flannel_plan::observation::{Observation, Scope};
use rustix::io::Errno;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const RUN: &str = "/run/flannel-cni/host-local";
/// Where runtimes keep the names of namespaces, beside the folder of the container's own.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];
const HERE: &str = "/proc/thread-self/ns/net";

/// The machine that the plugin runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where version 0.1 kept an index of reservations.
    pub run: PathBuf,
    /// The kernel's name for this boot; none if it does not say, then nothing is ever of another boot.
    pub boot: Option<String>,
    /// The addresses that something on this machine uses; the path is the namespace of the container.
    pub in_use: fn(Option<&Path>) -> Result<BTreeSet<IpAddr>, InUseError>,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned());
        Self { run: RUN.into(), boot: boot.filter(|id| !id.is_empty()), in_use: addresses_in_use }
    }
}

/// Why nobody can tell which addresses are in use.
#[derive(Debug, thiserror::Error)]
pub enum InUseError {
    /// The host or a namespace cannot be looked at.
    #[error(transparent)]
    Observation(#[from] ObserveError),
    /// A namespace cannot be entered.
    #[error(transparent)]
    Enter(#[from] NetnsError),
    /// The kernel does not tell its neighbours.
    #[error("cannot list neighbours: {0}")]
    Neighbours(#[from] NetlinkError),
    /// The namespaces cannot be found.
    #[error("cannot find network namespaces: {0}")]
    Find(#[from] io::Error),
}

/// The addresses in use; `netns` is the namespace of a container, beside which those of others are found.
fn addresses_in_use(netns: Option<&Path>) -> Result<BTreeSet<IpAddr>, InUseError> {
    let host = observe()?;
    // Collected, they would be sorted first, by another four kilobytes of program.
    let mut used = BTreeSet::new();
    used.extend(host.addresses.iter().map(|fact| fact.address.addr()));
    let destinations = host.routes.iter().map(|fact| fact.route.destination);
    used.extend(
        destinations.filter(|net| net.prefix_len() == Family::of_net(*net).bits()).map(|net| net.addr()),
    );
    used.extend(Stack::open()?.neighbours()?);
    for namespace in others(netns)? {
        match run_inside(&Namespace::AtPath(namespace), observe) {
            Ok(observation) => used.extend(observation?.addresses.iter().map(|fact| fact.address.addr())),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(used)
}

fn observe() -> Result<Observation, ObserveError> {
    Linux::open()?.observe_without_rules(&Scope::default())
}

/// The process ended, the name was taken away, or it is the name of something else.
fn is_gone(error: &NetnsError) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH, Errno::INVAL];
    matches!(error, NetnsError::Enter { why, .. } if gone.contains(&why.errno))
}

/// A path to every network namespace but this one.
fn others(netns: Option<&Path>) -> io::Result<Vec<PathBuf>> {
    let here = fs::metadata(HERE)?;
    let mut seen = BTreeSet::from([here.ino()]);
    let mut found = Vec::new();
    // Beside /proc/N/ns/net there are only namespaces of other kinds.
    let beside = netns.and_then(Path::parent).filter(|folder| !folder.starts_with("/proc"));
    for folder in beside.into_iter().chain(NAMED.map(Path::new)) {
        let named = entries(folder)?.into_iter().map(|name| folder.join(name));
        found.extend(named.filter(|path| is_new_namespace(path, &here, &mut seen)));
    }
    let processes = entries(Path::new("/proc"))?.into_iter().filter(|name| name.parse::<u32>().is_ok());
    for process in processes {
        let path = PathBuf::from(format!("/proc/{process}/ns/net"));
        match fs::metadata(&path) {
            Ok(metadata) => found.extend(seen.insert(metadata.ino()).then_some(path)),
            // Init is in the machine's own namespace, also where nobody may look at it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && process != "1" => return Err(error),
            Err(_) => {} // it ended
        }
    }
    Ok(found)
}

fn is_new_namespace(path: &Path, here: &Metadata, seen: &mut BTreeSet<u64>) -> bool {
    // The kernel keeps all namespaces on one file system; on another it is the file under a lost mount.
    fs::metadata(path).is_ok_and(|metadata| metadata.dev() == here.dev() && seen.insert(metadata.ino()))
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        folder => folder?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}
