//! The store in etcd v3, with Go flannel's keys and values: leases that live for a day and are kept alive.
//!
//! Takes announcements, gives snapshots. `PREFIX/config` is the net-conf and `PREFIX/subnets/10.244.1.0-24` the
//! lease of that subnet. A lease belongs to whoever has the public address in its value.

mod channel;
mod claim;
mod client;
mod error;
#[cfg(fuzzing)]
pub mod fuzz;
mod holding;
mod keeper;
mod keys;
mod messages;
mod table;
mod tenure;
mod txn;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flannel_plan::family::ByFamily;
use flannel_plan::finding::Code;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::IpNet;
use tracing::info;

use crate::rival::Stand;
use crate::timing::{random, until};
use crate::{Fault, LeaseStore, Server, Snapshot, StoreError};
use claim::{Memory, Node};
use client::Client;
use holding::{Intruder, unwritable};
use keeper::Keeper;
use keys::Keys;
use table::Table;
use tenure::Title;
use watch::Watch;

pub(crate) use error::EtcdError;
pub use flannel_plan::secret::Secret;
pub use txn::{Contents, StoredLease};

const TTL: Duration = Duration::from_secs(86_400);
// What a watch lost without a word is found by the next whole read.
const READ_EVERY: Duration = Duration::from_secs(1800);
// An idle daemon should hardly ever wake.
const CHECK_FILES_EVERY: Duration = Duration::from_secs(60);

/// How etcd is reached, and where in it flannel's keys are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`; tried in turn.
    pub endpoints: Vec<String>,
    pub prefix: String,
    /// The authority that signed etcd's certificate; those of the system if none is named.
    pub ca_file: Option<PathBuf>,
    /// The certificate that etcd knows us by.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// Who logs in; nobody if it or the password is empty.
    pub username: String,
    pub password: Secret,
    /// How long before its end a lease is renewed at the latest.
    pub renew_margin: Duration,
}

/// A lease store in etcd.
pub struct Etcd {
    client: Client,
    table: Table,
    node: Node,
    keeper: Keeper,
    /// Whose this node's key is, as far as there is one.
    title: Option<Title>,
    /// Who wrote it last while we held it.
    intruder: Option<Intruder>,
    watch: Option<Watch>,
    ttl: Duration,
    check_files: Instant,
    check_files_every: Duration,
    /// When to read everything again after the watch was cut.
    pause: Option<Instant>,
    /// When to read everything again although nothing happened.
    read_again: Instant,
    /// The version of the table that the last snapshot told; none if it has to be told again.
    told: Option<u64>,
}

impl Etcd {
    /// Prepares the store and asks nobody yet. `previous` are subnets that this node had at some time, which it
    /// gets again if nobody has them. To be used inside a tokio runtime with I/O and time switched on.
    pub fn open(options: EtcdOptions, previous: ByFamily<IpNet>) -> Result<Self, StoreError> {
        Ok(Self {
            client: Client::new(&options)?,
            table: Table::new(Keys::below(&options.prefix)),
            node: Node { previous: previous.map(|_, subnet| subnet.trunc()), ..Node::default() },
            keeper: Keeper::new(options.renew_margin),
            title: None,
            intruder: None,
            watch: None,
            ttl: TTL,
            check_files: Instant::now() + CHECK_FILES_EVERY,
            check_files_every: CHECK_FILES_EVERY,
            pause: None,
            read_again: Instant::now(),
            told: None,
        })
    }

    /// For tests: leases that live shorter.
    #[doc(hidden)]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// For tests: new certificates are noticed sooner.
    #[doc(hidden)]
    pub fn looking_at_files_every(self, every: Duration) -> Self {
        Self { check_files: Instant::now() + every, check_files_every: every, ..self }
    }

    /// Reads everything, as it is at one moment.
    async fn read(&mut self) -> Result<(), EtcdError> {
        let read = txn::read(&mut self.client, &self.table.keys).await?;
        self.take(read);
        Ok(())
    }

    fn take(&mut self, read: table::WholeRead) {
        self.table.take_read(read, self.ttl, |name, entry| self.node.owns(name, entry));
        self.follow_own();
    }

    /// Keeps alive what this node holds now, whoever gave it a life; also what does not fit the config, for as long
    /// as there is nothing better. That another one holds it is news.
    fn follow_own(&mut self) {
        self.node.recall(&self.table);
        let own = self.node.own(&self.table, self.table.net_conf.config().ok());
        let any = || self.table.entries().find(|(name, entry)| self.node.owns(name, entry));
        let lease_id = own.or_else(any).map(|(_, entry)| entry.lease_id);
        let title = lease_id.map(|lease_id| self.node.tenure.title(lease_id));
        self.keeper.follow(lease_id.filter(|_| title != Some(Title::Rivals)).unwrap_or(0));
        if self.title != title {
            self.title = title;
            self.told = None;
        }
    }

    /// Waits for events, or does what is due.
    async fn wait(&mut self) -> Result<(), EtcdError> {
        let Some(watch) = &mut self.watch else {
            if self.pause.is_some() {
                until(self.pause).await;
                self.pause = None;
            }
            self.read().await?;
            self.watch = Some(Watch::open(&mut self.client, &self.table).await?);
            self.read_again = Instant::now() + READ_EVERY + jitter(self.table.len() * 60);
            return Ok(());
        };
        tokio::select! {
            answer = watch.next() => self.take_watched(answer)?,
            () = until(self.keeper.due()) => self.keep_alive().await,
            () = until(Some(self.read_again)) => self.watch = None,
            () = until(self.table.forget_next()) => self.table.forget_old(),
            () = until(self.intruder.as_ref().map(|intruder| intruder.until)) => {
                self.intruder = None;
                self.told = None;
            }
            () = until(Some(self.check_files).filter(|_| self.client.uses_files())) => {
                self.check_files = Instant::now() + self.check_files_every;
                if self.client.follow_files() {
                    self.watch = None;
                }
            }
        }
        Ok(())
    }

    fn take_watched(&mut self, answer: watch::Watched) -> Result<(), EtcdError> {
        match answer {
            watch::Watched::Events(header, events) => {
                self.table.take_events(header, events);
                self.follow_own();
            }
            watch::Watched::Compacted => self.watch = None,
            watch::Watched::Ended(ending) => self.listen_elsewhere(ending)?,
        }
        Ok(())
    }

    /// Goes on at the next endpoint; a watch that ended as soon as it began is an error, so that the caller pauses.
    fn listen_elsewhere(&mut self, ending: watch::Ending) -> Result<(), EtcdError> {
        self.watch = None;
        let (endpoint, reason) = (self.client.endpoint(), ending.why);
        // A login costs etcd a tenth of a second of its processor: not for every cut.
        if ending.is_said {
            self.client.token = None;
        }
        self.client.move_on();
        match (ending.is_young, ending.is_said) {
            (true, true) => Err(EtcdError::Refused { endpoint, act: "tell of changes", reason }),
            (true, false) => Err(EtcdError::Away(vec![(endpoint, reason)])),
            (false, _) => {
                self.pause = Some(Instant::now() + jitter(self.table.len()));
                info!(endpoint, reason, "the watch of etcd ended; reading everything again");
                Ok(())
            }
        }
    }

    /// Keeps our lease alive. A failure does not stop us from listening: it is told as a fault, and tried again.
    async fn keep_alive(&mut self) {
        let Some(lease_id) = self.keeper.followed() else { return };
        let was_in_trouble = self.keeper.trouble.is_some();
        match self.keeper.keep_alive(&mut self.client, lease_id).await {
            // To see by a whole read what is left of our key.
            Ok(left) if left.is_zero() => {
                self.node.tenure.note_lost(lease_id);
                self.watch = None;
            }
            Ok(_) => {}
            Err(why) => self.keeper.put_off(why.to_string()),
        }
        if was_in_trouble != self.keeper.trouble.is_some() {
            self.told = None;
        }
    }

    fn snapshot(&self) -> Snapshot {
        let config = self.table.net_conf.config();
        let found = self.node.own(&self.table, config.as_ref().ok().copied());
        let title = found.map(|(_, entry)| self.node.tenure.title(entry.lease_id));
        let rivals = found.filter(|_| title == Some(Title::Rivals));
        let own = found.filter(|_| rivals.is_none());
        let all_own =
            self.table.entries().filter(|(name, entry)| rivals.is_none() && self.node.owns(name, entry));
        let all_own: Vec<_> = all_own.filter_map(|(_, entry)| entry.lease.as_ref()).collect();
        let peers = self.table.leases_without(&all_own);
        let mut faults = self.table.faults();
        match found {
            None => faults.extend(self.loss()),
            Some((name, _)) => faults.extend(self.keeper.trouble.as_ref().map(|why| {
                let reason = format!("could not be kept alive: {why}");
                Fault::new(Code::StoreSilent, self.table.keys.lease(name), reason)
            })),
        }
        let holder = rivals.map(|(name, _)| self.rival(name, Stand::Yields));
        Snapshot {
            origin: self.table.origin(),
            own: own.and_then(|(_, entry)| entry.lease.clone()),
            own_is_damaged: own.is_some_and(|(_, entry)| entry.fault.is_some() || title != Some(Title::Own)),
            rival: holder.or_else(|| self.intruder.as_ref().map(|intruder| intruder.rival.clone())),
            peers,
            faults,
            ..Snapshot::of(config.cloned())
        }
    }
}

impl LeaseStore for Etcd {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        // As it comes back from etcd: what is compared later went the same way.
        let text = announcement.to_etcd().map_err(|cause| unwritable(announcement, cause))?;
        let said = Announcement::from_etcd("", &text).unwrap_or_else(|_| announcement.clone());
        if self.node.said.as_ref() != Some(&said) {
            // What is our own may be another lease than before. After a mere failure there is nothing new to
            // tell: the caller would come back at once, again and again.
            self.node.said = Some(said);
            self.told = None;
        }
        self.claim().await
    }

    fn origin(&self) -> Option<Arc<str>> {
        self.table.origin()
    }

    fn server(&self) -> Server {
        self.client.server()
    }

    /// The key that still says the same as this node's lease when it ran last is its own, whatever address the node has
    /// by now.
    fn remembering(mut self, before: &Snapshot) -> Self {
        let memory = |own: &Arc<Lease>| Memory { origin: before.origin.clone(), own: Arc::clone(own) };
        self.node.remembered = before.own.as_ref().map(memory);
        self
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        loop {
            if self.watch.is_some() && self.told != Some(self.table.version) {
                self.told = Some(self.table.version);
                return Ok(self.snapshot());
            }
            // After an error the same table is news again: it says that etcd can be read.
            if let Err(why) = self.wait().await {
                self.watch = None;
                self.told = None;
                return Err(why.into());
            }
        }
    }
}

/// When etcd cuts its watches, all nodes come back at once and read everything: the more they are, the more
/// they should spread.
fn jitter(nodes: usize) -> Duration {
    Duration::from_millis(random() % u64::try_from(nodes).unwrap_or(u64::MAX).saturating_add(1))
}
