//! The embedded store: a directory of JSON files, one for each lease, for single hosts, labs and tests.
//!
//! `DIR/config.json` is the net-conf and `DIR/leases/10.244.1.0-24.json` the lease of that subnet. Leases have
//! no time to live: an owner keeps its subnet until it is released. Takes announcements, gives snapshots.
//! The directory must be on a local file system: changes that other machines make are not noticed.

mod claim;
mod lease_file;
mod lock;
mod notice;
mod reading;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, io};

use flannel_files::MOST_BY_HAND;
use flannel_plan::allocate::fits_config;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;
use tokio::sync::oneshot;

use crate::{LeaseStore, Snapshot, StoreError};
use claim::Claim;
use lock::{Lock, LockQueue, Target, lock_file};
use notice::{Notices, Suspects};
use reading::Reading;

const CONFIG: &str = "config.json";
const LEASES: &str = "leases";
// A thousand nodes that start together are done in less.
const PATIENCE: Duration = Duration::from_secs(30);

fn leases_of(dir: &Path) -> PathBuf {
    dir.join(LEASES)
}

/// A lease store in a directory.
pub struct Directory {
    dir: PathBuf,
    owner: String,
    previous: ByFamily<IpNet>,
    queue: LockQueue,
    notices: Option<Notices>,
    suspects: Suspects,
    reading: Reading,
    /// The version of the reading that the last snapshot told.
    told: u64,
}

impl Directory {
    /// Opens the store for one owner. `previous` are subnets that it had at some time, which it gets again if
    /// nobody has them. To be used inside a tokio runtime with I/O and time switched on.
    pub fn open(
        dir: impl Into<PathBuf>,
        owner: impl Into<String>,
        previous: ByFamily<IpNet>,
    ) -> Result<Self, StoreError> {
        let (dir, owner) = (dir.into(), owner.into());
        if owner.is_empty() {
            return Err(StoreError::NoOwner);
        }
        fs::read_dir(&dir).map_err(|cause| StoreError::NoStore { dir: dir.clone(), cause })?;
        Ok(Self {
            dir,
            owner,
            previous: previous.map(|_, subnet| subnet.trunc()),
            queue: LockQueue::default(),
            notices: None,
            suspects: Suspects::default(),
            reading: Reading::default(),
            told: 0,
        })
    }

    /// Everything in a store: with no owner to tell it from, every lease is a peer's.
    pub fn list(dir: &Path) -> Result<Snapshot, StoreError> {
        let mut reading = Reading::default();
        reading.refresh(dir, &Suspects::default())?;
        Ok(snapshot(&reading, dir, ""))
    }

    /// Gives the subnets of an owner back, and says which they were. Blocks until the store is free.
    pub fn release(dir: &Path, owner: &str) -> Result<Arc<Lease>, StoreError> {
        let (store, whose) = (dir.to_owned(), owner.to_owned());
        locked(dir, move |lock| release(lock, &store, &whose))
    }

    /// The net-conf as it is written in a store; none if it is not there.
    pub fn config_text(dir: &Path) -> Result<Option<String>, StoreError> {
        let path = dir.join(CONFIG);
        read_file(&path, MOST_BY_HAND).map_err(StoreError::disk("read", path))
    }

    /// Writes a net-conf and leases. What is there already and says the same is left; if anything says something
    /// else, that is an error, and nothing is written. Blocks until the store is free.
    pub fn fill(dir: &Path, config: Option<&str>, leases: &[Lease]) -> Result<(), StoreError> {
        let (store, config, leases) = (dir.to_owned(), config.map(str::to_owned), leases.to_vec());
        locked(dir, move |lock| fill(lock, &store, config.as_deref(), &leases))
    }

    /// Has the files read and a snapshot given although there may be no notice: if another one has changed our lease
    /// back since it was published, they say what they said when they were read last.
    fn read_again(&mut self) {
        self.told = 0;
        self.suspects.touched = true;
    }

    /// Reads the files once, with a watch on them from before.
    fn read(&mut self) -> Result<(), StoreError> {
        if self.suspects.lost {
            self.notices = None;
        }
        let notices = match self.notices.take() {
            Some(notices) => notices,
            None => Notices::begin(&self.dir)?,
        };
        self.notices.insert(notices).follow_leases()?;
        self.reading.refresh(&self.dir, &self.suspects)?;
        self.suspects = Suspects::default();
        Ok(())
    }
}

impl LeaseStore for Directory {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        let claim = Claim {
            dir: self.dir.clone(),
            owner: self.owner.clone(),
            announcement: announcement.clone(),
            previous: self.previous,
            reading: self.reading.clone(),
        };
        let (answer, answered) = oneshot::channel();
        let job = move |lock: Result<Lock, StoreError>| {
            // An announcement that its node has given up must not be the last one written.
            if !answer.is_closed() {
                let _ = answer.send(lock.and_then(|lock| claim.settle(&lock)));
            }
        };
        self.queue.join(&self.dir, Box::new(job))?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(settled)) => settled.inspect(|_| self.read_again()),
            Ok(Err(_)) => Err(StoreError::NoAnswer(self.dir.clone())),
            Err(_) => Err(out_of_patience(&self.queue, &self.dir)),
        }
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        loop {
            if let Some(notices) = self.notices.as_mut().filter(|_| self.reading.version != 0)
                && let Err(wrong) = notices.wait(&mut self.suspects).await
            {
                // Whatever is wrong with the watch, the next try begins with a new one.
                (self.notices, self.suspects.all, self.told) = (None, true, 0);
                return Err(wrong);
            }
            // After an error the same reading is news again: it says that the store can be read.
            self.read().inspect_err(|_| self.told = 0)?;
            if self.told != self.reading.version {
                self.told = self.reading.version;
                return Ok(snapshot(&self.reading, &self.dir, &self.owner));
            }
        }
    }
}

fn snapshot(reading: &Reading, dir: &Path, owner: &str) -> Snapshot {
    let config = reading.net_conf.config().cloned();
    let (own, mut peers): (Vec<_>, Vec<_>) =
        reading.leases().cloned().partition(|lease| lease.owner == owner);
    peers.sort_by_key(|lease| lease.subnets);
    // Without a config nobody can say that a lease does not fit.
    let fitting = own
        .into_iter()
        .filter(|own| config.as_ref().map_or(true, |config| fits_config(config, &own.subnets)));
    let own = fitting.min_by_key(|own| own.since);
    let own_is_damaged = own.as_ref().is_some_and(|own| reading.is_unreadable(&lease_file::name(own)));
    Snapshot { own, own_is_damaged, peers, faults: reading.faults(dir), ..Snapshot::of(config) }
}

fn release(lock: &Lock, dir: &Path, owner: &str) -> Result<Arc<Lease>, StoreError> {
    let mut reading = Reading::default();
    reading.refresh(dir, &Suspects::default())?;
    let mut own: Vec<_> = reading.leases().filter(|lease| lease.owner == owner).cloned().collect();
    own.sort_by_key(|lease| lease.since);
    for lease in &own {
        lock.remove(&lease_file::name(lease))?;
    }
    own.into_iter().next().ok_or_else(|| StoreError::NotHeld { owner: owner.to_owned(), dir: dir.to_owned() })
}

/// Does something with a store as soon as nobody else does.
fn locked<T: Send + 'static>(
    dir: &Path,
    work: impl FnOnce(&Lock) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let (answer, answered) = mpsc::channel();
    let queue = LockQueue::default();
    let job = move |lock: Result<Lock, StoreError>| {
        let _ = answer.send(lock.and_then(|lock| work(&lock)));
    };
    queue.join(dir, Box::new(job))?;
    answered.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(out_of_patience(&queue, dir)))
}

fn out_of_patience(queue: &LockQueue, dir: &Path) -> StoreError {
    if queue.is_waiting() {
        StoreError::Locked { lock: lock_file(dir), waited: PATIENCE }
    } else {
        StoreError::Slow { dir: dir.to_owned(), waited: PATIENCE }
    }
}

fn fill(lock: &Lock, dir: &Path, config: Option<&str>, leases: &[Lease]) -> Result<(), StoreError> {
    let mut missing = Vec::new();
    for lease in leases {
        let (name, text) = (lease_file::name(lease), lease_file::text(lease)?);
        if is_missing(&leases_of(dir).join(&name), &text)? {
            missing.push((name, text));
        }
    }
    if let Some(config) = config {
        let path = dir.join(CONFIG);
        if is_missing(&path, config)? {
            fs::write(&path, config).map_err(StoreError::disk("write", path))?;
        }
    }
    missing.iter().try_for_each(|(name, text)| lock.write(name, text, Target::New))
}

/// Whether a file has to be written; one that says something else is somebody's.
fn is_missing(path: &Path, text: &str) -> Result<bool, StoreError> {
    match read_file(path, MOST_BY_HAND).map_err(StoreError::disk("read", path))? {
        None => Ok(true),
        Some(known) if known.trim() == text.trim() => Ok(false),
        Some(_) => Err(StoreError::Occupied(path.to_owned())),
    }
}

/// The content of a file; nothing if it is not there.
fn read_file(path: &Path, most: usize) -> io::Result<Option<String>> {
    match flannel_files::read_text(path, most) {
        Err(wrong) if wrong.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some),
    }
}
