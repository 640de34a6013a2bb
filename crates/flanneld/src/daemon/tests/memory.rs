//! A lease store in memory, and what it may say.

use std::sync::{Arc, Mutex};

use flannel_leases::{Fault, LeaseStore, Readiness, Snapshot, StoreError};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::finding::Code;
use flannel_plan::lease::{Announcement, Lease};
use tokio::sync::Notify;

/// How a store is told of a node that is ready.
pub const READY_IN_STORE: Readiness = Readiness::Ready;
/// What a store says that refuses.
pub const REFUSAL: &str =
    "a lease needs an owner, but this node has no name: set NODE_NAME or the host's name";

/// A lease store in memory: what it says, whether it can be reached, and what it was told.
#[derive(Clone, Default)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Inner {
    snapshot: Option<Snapshot>,
    away: Option<fn() -> StoreError>,
    refuses: Option<fn() -> StoreError>,
    readiness: Vec<Readiness>,
    published: usize,
}

impl Memory {
    /// A store with a net-conf and these leases.
    pub fn of(config: &str, own: Option<Lease>, peers: &[Lease]) -> Self {
        let memory = Self::default();
        memory.change(|inner| inner.snapshot = Some(snapshot(config, own, peers)));
        memory
    }

    /// Changes what the store says, as somebody else would.
    pub fn say(&self, change: impl FnOnce(&mut Snapshot)) {
        self.change(|inner| inner.snapshot.as_mut().map(change).unwrap());
    }

    /// Goes away, for a reason, or comes back.
    pub fn be_away(&self, why: Option<fn() -> StoreError>) {
        self.change(|inner| inner.away = why);
    }

    /// Takes no announcement, for a reason, or takes them again.
    pub fn refuse(&self, why: Option<fn() -> StoreError>) {
        self.inner.lock().unwrap().refuses = why;
    }

    /// What it says of this node.
    pub fn own(&self) -> Option<Arc<Lease>> {
        self.inner.lock().unwrap().snapshot.as_ref().and_then(|snapshot| snapshot.own.clone())
    }

    /// How often it took an announcement.
    pub fn published(&self) -> usize {
        self.inner.lock().unwrap().published
    }

    /// How this node told it to be last.
    pub fn heard(&self) -> Option<Readiness> {
        self.inner.lock().unwrap().readiness.last().cloned()
    }

    /// All that it says.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.lock().unwrap().snapshot.clone().unwrap()
    }

    /// Hands out all that is there, as to somebody who asks for the first time.
    pub fn begin_anew(&self) {
        self.changed.notify_one();
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap());
        self.changed.notify_one();
    }
}

impl LeaseStore for Memory {
    async fn publish(&mut self, announcement: &Announcement) -> Result<Lease, StoreError> {
        if let Some(why) = self.inner.lock().unwrap().refuses {
            return Err(why());
        }
        let lease = Lease { announcement: announcement.clone(), ..own_lease() };
        self.change(|inner| {
            inner.published += 1;
            if let Some(snapshot) = &mut inner.snapshot {
                snapshot.own = Some(Arc::new(lease.clone()));
            }
        });
        Ok(lease)
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        let is_away = self.inner.lock().unwrap().away.is_some();
        if !is_away {
            self.changed.notified().await;
        }
        let inner = self.inner.lock().unwrap();
        inner.away.map_or_else(|| Ok(inner.snapshot.clone().unwrap()), |why| Err(why()))
    }

    fn tell(&mut self, readiness: &Readiness) {
        self.inner.lock().unwrap().readiness.push(readiness.clone());
    }
}

fn snapshot(config: &str, own: Option<Lease>, peers: &[Lease]) -> Snapshot {
    Snapshot {
        origin: Some("cluster 1".into()),
        version: None,
        is_stale: false,
        config: net_conf(config),
        own: own.map(Arc::new),
        own_is_damaged: false,
        rival: None,
        announced: ByFamily::default(),
        public: ByFamily::default(),
        peers: peers.iter().cloned().map(Arc::new).collect(),
        faults: Vec::new(),
    }
}

pub fn refusal() -> StoreError {
    StoreError::NoOwner
}

/// A net-conf as a store reads it.
pub fn net_conf(text: &str) -> Result<NetworkConfig, Fault> {
    let fault = |why: &dyn ToString| Fault::new(Code::NetConfUnusable, "net-conf.json", why.to_string());
    NetworkConfig::parse(text).map_err(|why| fault(&why))
}

/// The lease of a node: its subnet and its MAC have its number.
pub fn lease(owner: &str, number: u8, public: &str) -> Lease {
    let detail = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{number:02x}"}}"#);
    let lease = format!(
        r#"{{"owner":"{owner}","subnets":{{"v4":"10.244.{number}.0/24"}},"public":{{"v4":"{public}"}},
            "backend":"vxlan","detail":{{"v4":{detail}}},"since":{number}}}"#
    );
    serde_json::from_str(&lease).unwrap()
}

pub fn own_lease() -> Lease {
    lease("worker1", 1, "10.0.0.21")
}

pub fn peer(number: u8) -> Lease {
    lease(&format!("worker{number}"), number, &format!("10.0.0.2{number}"))
}
