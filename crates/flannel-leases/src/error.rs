//! What can go wrong with a lease store. Each message names the object, the cause and the way out.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use flannel_plan::allocate::NoFreeSubnet;

use crate::etcd::EtcdError;
use crate::kubernetes::KubernetesError;
use crate::{Fault, Rival};

/// A lease store that did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("lease store {} cannot be used: {cause}: create the directory, or name another one", dir.display())]
    NoStore { dir: PathBuf, cause: io::Error },
    #[error("a lease needs an owner, but this node has no name: set NODE_NAME or the host's name")]
    NoOwner,
    /// No config was ever readable, so there is nothing to claim a part of.
    #[error("no lease can be claimed: {0}")]
    NoConfig(Fault),
    #[error("cannot {act} {}: {cause}{}", path.display(), way_out(cause))]
    Disk { act: &'static str, path: PathBuf, cause: io::Error },
    #[error("cannot watch {} for changes: {cause}{}", path.display(), way_out_of_watching(cause))]
    Watch { path: PathBuf, cause: io::Error },
    /// Leases that were there are gone together with their directory: that is no proof that nodes left.
    #[error("{} has vanished with all leases; those in force are kept: bring it back, or restart flanneld to begin with none", .0.display())]
    Vanished(PathBuf),
    #[error("{} has been locked by another program for {waited:?}: `fuser {0}` names it", lock.display())]
    Locked { lock: PathBuf, waited: Duration },
    #[error("{} has not taken a lease within {waited:?}: look at the disk below it", dir.display())]
    Slow { dir: PathBuf, waited: Duration },
    #[error("{none_free}: {way_out}, or choose a larger network or a longer subnet length")]
    NoSubnetLeft {
        none_free: NoFreeSubnet,
        /// How a lease that nobody needs is given back in this store.
        way_out: String,
    },
    #[error("{owner} holds no lease in {}: `flannelctl lease list` shows who holds one", dir.display())]
    NotHeld { owner: String, dir: PathBuf },
    /// A store that is to be filled holds something else.
    #[error("{} is there and says something else; nothing was written: choose an empty directory, or remove it", .0.display())]
    Occupied(PathBuf),
    #[error("the lease of {owner} cannot be written as JSON: {cause}: a bug, please report it")]
    Unwritable { owner: String, cause: serde_json::Error },
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// Somebody else is this node, and lives.
    #[error("{0}")]
    Rival(Box<Rival>),
    /// The thread that claims a lease ended without an answer.
    #[error("the claim of a lease in {} ended without an answer: a bug, please report it", .0.display())]
    NoAnswer(PathBuf),
}

impl StoreError {
    /// For `map_err`: a file could not be read or changed.
    pub(crate) fn disk(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Disk { act, path, cause }
    }

    /// What the sentence ends with, behind a colon, where that depends on the cause.
    pub(crate) fn way_out(&self) -> &'static str {
        match self {
            Self::Disk { cause, .. } => way_out(cause),
            Self::Watch { cause, .. } => way_out_of_watching(cause),
            Self::Etcd(error) => error.way_out(),
            Self::Kubernetes(error) => error.way_out(),
            _ => "",
        }
    }
}

fn way_out(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free some space there; nothing was changed"
        }
        io::ErrorKind::ReadOnlyFilesystem => ": mount it writable",
        io::ErrorKind::PermissionDenied => ": run as root, or let this user write there",
        io::ErrorKind::AlreadyExists => ": somebody put it there without taking the lock; try again",
        _ => "",
    }
}

// The same error numbers mean something else here: a limit of the kernel, not the disk.
fn way_out_of_watching(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull => ": raise sysctl fs.inotify.max_user_watches",
        _ if cause.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            ": raise sysctl fs.inotify.max_user_instances"
        }
        _ => way_out(cause),
    }
}
