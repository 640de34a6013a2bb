//! The last word of the store, kept on disk: a node that starts while the store is away goes on with it.
//!
//! Takes accepted snapshots, gives the last one back at the next start. What is remembered may be old, so it can
//! only add and correct, never remove.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use flannel_files::{MOST_BY_PROGRAM, Survives, folder_of};
use flannel_leases::{Server, Snapshot};
use flannel_plan::finding::{Code, Finding, texts};
use flannel_plan::lease::Lease;
use flannel_plan::peers::Newcomer;
use flannel_plan::snapshot_file::{FORMAT, Kept, Recalled};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::throttled_file::ThrottledFile;

/// Survives a reboot; may be missing in a container, where the folder of the subnet file has to do.
pub const LASTING: &str = "/var/lib/flannel";
/// Thousands of peers make a large file, and leases change one by one.
const PAUSE: Duration = Duration::from_secs(10);
const MOVED: &str = "what the store says does not outlast a reboot: it is kept elsewhere";
const UNKEPT: &str = "what the store says cannot be kept: a start without the store will wait for it";
/// So many leases that cannot be read are named; the rest is counted.
const MOST_NAMED: usize = 5;

/// The file.
#[derive(Debug)]
pub struct Remembered {
    file: ThrottledFile,
    /// Where it goes if it cannot be written in the place that lasts.
    refuge: Option<PathBuf>,
    /// Where it should be and why it is in its refuge, if it is.
    moved: Option<Finding>,
    /// Which daemon of this host it belongs to, and which store it speaks of.
    of: Belongs,
    /// What was accepted last.
    accepted: Option<Arc<Snapshot>>,
    /// What is remembered of an earlier run, until the first plan of this one.
    earlier: Option<Snapshot>,
    /// Who of all leases was not followed by the last plan.
    newcomers: Vec<Newcomer>,
}

/// What a file must be of to be believed: another store, or another daemon's, says nothing about this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belongs {
    /// The subnet file, which tells the daemons of a host apart.
    pub subnet_file: String,
    pub node: String,
    pub store: String,
    /// Its server: every cluster has a node of some name.
    pub server: Server,
}

impl Belongs {
    fn may_be(&self, other: &Self) -> bool {
        let names = |of: &Self| [of.subnet_file.clone(), of.node.clone(), of.store.clone()];
        names(self) == names(other) && self.server.may_be(&other.server)
    }
}

impl Remembered {
    /// Finds the place for it.
    pub fn new(of: Belongs, lasting: &Path) -> Self {
        let name = file_name(&of.subnet_file);
        let beside = folder_of(Path::new(&of.subnet_file)).join(&name);
        let (path, refuge) =
            if lasting.is_dir() { (lasting.join(name), Some(beside)) } else { (beside, None) };
        let file = ThrottledFile::new(path, Survives::PowerCut, PAUSE);
        Self { file, refuge, moved: None, of, accepted: None, earlier: None, newcomers: Vec::new() }
    }

    /// What is remembered from before; nothing if that cannot be read or is another's.
    pub fn recall(&mut self) -> Option<Snapshot> {
        let places = [self.refuge.as_deref(), Some(self.file.path())];
        let (_, path) =
            places.into_iter().flatten().filter_map(|path| Some((modified(path)?, path))).max()?;
        let told = read(path).inspect_err(|error| {
            warn!(file = %path.display(), %error, code = %Code::MemoryLost, "what the store said last cannot be read");
        });
        let told = told.ok().filter(|told| told.format == FORMAT && self.of.may_be(&told.of))?;
        name_left_out(path, &told.peers.left_out);
        self.newcomers = told.newcomers;
        self.earlier = Some(Snapshot {
            origin: told.origin,
            version: told.version,
            is_stale: true,
            own: Some(told.own),
            public: told.public,
            peers: told.peers.leases,
            ..Snapshot::of(Ok(told.config))
        });
        self.earlier.clone()
    }

    /// The leases that were known before this start, and those of them that were not followed; none if they were of
    /// another cluster.
    pub fn followed(&self, now: &Snapshot) -> (&[Arc<Lease>], &[Newcomer]) {
        let is_same = |earlier: &&Snapshot| now.origin.is_none() || now.origin == earlier.origin;
        match self.earlier.as_ref().filter(is_same) {
            Some(earlier) => (&earlier.peers, &self.newcomers),
            None => (&[], &[]),
        }
    }

    /// Notes a snapshot that a plan was made of and that came from the store itself, and who was not followed.
    pub fn accept(&mut self, snapshot: &Arc<Snapshot>, newcomers: &[Newcomer]) {
        let is_same = |accepted: &Arc<Snapshot>| is_same(accepted, snapshot) && self.newcomers == newcomers;
        if !self.accepted.as_ref().is_some_and(is_same) {
            self.file.touch();
            self.file.hurry();
        }
        (self.earlier, self.newcomers) = (None, newcomers.to_vec());
        // Always the newest: an old one would keep its whole memory alive.
        self.accepted = Some(Arc::clone(snapshot));
    }

    /// Why what the store says is not kept as it should be, while that is so.
    pub fn lost(&self) -> Option<Finding> {
        let unkept = |why| Finding::new(Code::MemoryLost, self.file.path().display(), UNKEPT).because(why);
        self.file.trouble().map(unkept).or_else(|| self.moved.clone())
    }

    /// When it is to be written, if there is something new.
    pub fn due(&self) -> Option<Instant> {
        self.file.due()
    }

    /// Writes what is new, if it is time.
    pub fn write_if_due(&mut self) {
        let content = || {
            let snapshot = self.accepted.as_ref()?;
            // While the store has no net-conf or no lease for this node, the last time that it had is worth more.
            let (config, own) = (snapshot.config.as_ref().ok()?, snapshot.own.as_deref()?);
            let (origin, version) = (snapshot.origin.as_deref(), snapshot.version.as_deref());
            let (of, public, peers, newcomers) =
                (&self.of, &snapshot.public, &*snapshot.peers, &*self.newcomers);
            Some(Kept { format: FORMAT, of, origin, version, config, own, public, peers, newcomers })
        };
        let Err(error) = self.file.write_if_due(content) else { return };
        let file = self.file.path().display();
        match self.refuge.take_if(|_| is_read_only(&error)) {
            Some(refuge) => {
                let instead = refuge.display();
                warn!(%file, %error, %instead, code = %Code::MemoryLost, "{MOVED}");
                self.moved = Some(Finding::new(Code::MemoryLost, file, MOVED).because(error));
                self.file.move_to(refuge);
            }
            None => {
                warn!(%file, %error, code = %Code::MemoryLost, "{UNKEPT}");
            }
        }
    }
}

/// Whether a place will not be written later, either.
fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

fn name_left_out(file: &Path, left_out: &[Finding]) {
    if !left_out.is_empty() {
        let (file, named) = (file.display(), left_out.len().min(MOST_NAMED));
        let names = texts(&left_out[..named]).join("; ");
        warn!(%file, left_out = left_out.len(), code = %Code::LeaseUnreadable, "leases are left out of what the store said last: {names}");
    }
}

fn is_same(a: &Snapshot, b: &Snapshot) -> bool {
    let lists = |snapshot: &Snapshot| {
        (snapshot.origin.clone(), snapshot.config.clone().ok(), snapshot.own.clone(), snapshot.public)
    };
    let same_peers = |(a, b): (&Arc<Lease>, &Arc<Lease>)| Arc::ptr_eq(a, b) || a == b;
    a.peers.len() == b.peers.len() && a.peers.iter().zip(&b.peers).all(same_peers) && lists(a) == lists(b)
}

fn read(path: &Path) -> io::Result<Recalled<Belongs>> {
    Ok(serde_json::from_slice(&flannel_files::read(path, MOST_BY_PROGRAM)?)?)
}

/// One name for each subnet file of a host: `/run/flannel/subnet.env` gives `run-flannel-subnet.env.snapshot.json`.
fn file_name(subnet_file: &str) -> PathBuf {
    format!("{}.snapshot.json", subnet_file.trim_start_matches('/').replace('/', "-")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belongs(node: &str, server: &str) -> Belongs {
        let server = serde_json::from_str(server).unwrap();
        Belongs { subnet_file: "subnet.env".into(), node: node.into(), store: "kubernetes".into(), server }
    }

    #[test]
    fn what_another_cluster_said_of_a_node_of_the_same_name_is_not_believed() {
        let (old, new) = (
            r#"{"addresses":["https://10.96.0.1:443"],"authorities":["aa"]}"#,
            r#"{"addresses":["https://10.96.0.1:443"],"authorities":["bb"]}"#,
        );
        assert!(belongs("worker1", old).may_be(&belongs("worker1", old)));
        assert!(!belongs("worker1", old).may_be(&belongs("worker1", new)));
        assert!(!belongs("worker1", old).may_be(&belongs("worker2", old)));
    }

    #[test]
    fn a_memory_that_does_not_outlast_a_reboot_is_told_while_it_is_kept_elsewhere() {
        let folder = std::env::temp_dir().join(format!("flanneld-remembered-{}", std::process::id()));
        let subnet_file = folder.join("subnet.env").to_string_lossy().into_owned();
        let of = Belongs { subnet_file, ..belongs("worker1", r#"{"addresses":[],"authorities":[]}"#) };
        // Nobody can make a file there.
        let mut remembered = Remembered::new(of, Path::new("/sys"));
        let inputs = include_str!("../../flannel-plan/tests/cases/first-start/inputs.json");
        let inputs: flannel_plan::inputs::Inputs = serde_json::from_str(inputs).unwrap();
        let own = Some(Arc::new(inputs.own));
        remembered.accept(&Arc::new(Snapshot { own, ..Snapshot::of(Ok(inputs.config)) }), &[]);
        remembered.write_if_due();
        let lost = remembered.lost().unwrap();
        assert!(lost.object.starts_with("/sys/") && lost.text.starts_with(MOVED), "{lost:?}");
        remembered.write_if_due();
        assert_eq!((remembered.lost(), remembered.due()), (Some(lost), None));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn each_daemon_of_a_host_remembers_for_itself() {
        assert_eq!(
            file_name("/run/flannel/subnet.env"),
            PathBuf::from("run-flannel-subnet.env.snapshot.json")
        );
        assert_eq!(file_name("blue.env"), PathBuf::from("blue.env.snapshot.json"));
    }
}
