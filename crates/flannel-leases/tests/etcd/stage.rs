//! What every test needs: nodes on a cluster, and patience with a limit.

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flannel_leases::etcd::{Etcd, EtcdOptions};
use flannel_leases::{LeaseStore, Snapshot, StoreError};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, BackendData, Lease};
use ipnet::IpNet;
use tokio::sync::oneshot;

use crate::server::Cluster;

pub const V4: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
pub const V6: &str =
    r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
pub const DUAL: &str = r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#;
// As long as the daemon's first pause.
const PAUSE: Duration = Duration::from_millis(200);
/// What the first node of a stage gets.
pub const OWN: &str = "10.244.250.0/24";
pub const PREFIX: &str = "/coreos.com/network";

/// A cluster that has a net-conf.
pub struct Stage {
    pub cluster: Cluster,
}

impl Stage {
    pub fn new(config: &str) -> Self {
        Self::on(Cluster::of(1), config)
    }

    pub fn on(cluster: Cluster, config: &str) -> Self {
        let stage = Self { cluster };
        stage.configure(config);
        stage
    }

    pub fn configure(&self, config: &str) {
        self.cluster.ctl(&["put", &format!("{PREFIX}/config"), config]);
    }

    pub fn options(&self) -> EtcdOptions {
        EtcdOptions {
            endpoints: self.cluster.endpoints(),
            prefix: PREFIX.to_owned(),
            renew_margin: Duration::from_secs(3600),
            ..EtcdOptions::default()
        }
    }

    /// A node that takes the subnet of [`OWN`], out of the way of those that tests put there by hand.
    pub fn node(&self) -> Etcd {
        open(self.options())
    }

    pub fn node_with(&self, previous: ByFamily<IpNet>) -> Etcd {
        Etcd::open(self.options(), previous).unwrap()
    }

    /// Puts a lease there by hand, for ever.
    pub fn put(&self, name: &str, value: &str) {
        self.cluster.ctl(&["put", &key(name), value]);
    }

    pub fn delete(&self, name: &str) {
        self.cluster.ctl(&["del", &key(name)]);
    }

    /// The names of all leases, in their order.
    pub fn names(&self) -> Vec<String> {
        let below = key("");
        let keys = self.cluster.ctl(&["get", "--prefix", "--keys-only", &below]);
        keys.lines().filter_map(|line| line.strip_prefix(&below)).map(str::to_owned).collect()
    }

    pub fn value(&self, name: &str) -> String {
        self.cluster.ctl(&["get", "--print-value-only", &key(name)]).trim_end().to_owned()
    }

    /// The etcd lease that a key lives by, in the form that etcdctl wants; nothing if it lives for ever.
    pub fn life(&self, name: &str) -> Option<String> {
        let answer = self.cluster.ctl(&["get", "--write-out", "json", &key(name)]);
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let lease = answer["kvs"][0]["lease"].as_i64()?;
        Some(format!("{lease:x}"))
    }

    /// The seconds that an etcd lease has left, and was granted.
    pub fn seconds(&self, life: &str) -> (i64, i64) {
        let answer = self.cluster.ctl(&["lease", "timetolive", "--write-out", "json", life]);
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        (answer["ttl"].as_i64().unwrap(), answer["granted-ttl"].as_i64().unwrap())
    }

    /// Grows by one with every change.
    pub fn revision(&self) -> i64 {
        let answer = self.cluster.ctl(&["get", "--write-out", "json", "nothing"]);
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["header"]["revision"].as_i64().unwrap()
    }

    /// How many etcd leases there are.
    pub fn leases(&self) -> usize {
        self.cluster.ctl(&["lease", "list"]).lines().count() - 1
    }
}

/// A node that takes the subnet of [`OWN`] if it is free.
pub fn open(options: EtcdOptions) -> Etcd {
    Etcd::open(options, v4(OWN)).unwrap()
}

/// The whole key of a lease.
pub fn key(name: &str) -> String {
    format!("{PREFIX}/subnets/{name}")
}

/// What node number `n` says of itself.
pub fn announcement(n: u8) -> Announcement {
    let data = |tail: u8| {
        BackendData::from_json(&format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:{tail:02x}:{n:02x}"}}"#))
    };
    Announcement {
        public: ByFamily { v4: Some(IpAddr::from([10, 0, 0, n])), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: data(4).unwrap(), v6: None },
    }
}

/// The same with both families.
pub fn dual_announcement(n: u8) -> Announcement {
    let v4 = announcement(n);
    Announcement {
        public: ByFamily { v6: Some(format!("fd00:30::{n:x}").parse().unwrap()), ..v4.public },
        detail: ByFamily { v6: v4.detail.v4.clone(), ..v4.detail },
        ..v4
    }
}

/// The same with IPv6 alone.
pub fn v6_announcement(n: u8) -> Announcement {
    let dual = dual_announcement(n);
    Announcement {
        public: ByFamily { v4: None, ..dual.public },
        detail: ByFamily { v4: None, ..dual.detail },
        ..dual
    }
}

pub fn v4(subnet: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(subnet.parse().unwrap()), v6: None }
}

pub fn both(v4: &str, v6: &str) -> ByFamily<IpNet> {
    ByFamily { v4: Some(v4.parse().unwrap()), v6: Some(v6.parse().unwrap()) }
}

/// Runs something that must not take long.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), what).await.expect("it should not take 40 s")
}

pub async fn next(store: &mut Etcd) -> Snapshot {
    soon(store.next()).await.unwrap()
}

pub async fn publish(store: &mut Etcd, announcement: &Announcement) -> Lease {
    soon(store.publish(announcement)).await.unwrap()
}

/// Reads on until a snapshot is as wanted; errors are passed over, as the daemon does.
pub async fn until(store: &mut Etcd, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let began = Instant::now();
    let mut last = None;
    let mut errors: Vec<StoreError> = Vec::new();
    loop {
        let left = Duration::from_secs(60).saturating_sub(began.elapsed());
        match tokio::time::timeout(left, store.next()).await {
            Ok(Ok(snapshot)) if wanted(&snapshot) => return snapshot,
            Ok(Ok(snapshot)) => last = Some(snapshot),
            Ok(Err(why)) => {
                errors.push(why);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(_) => panic!("no snapshot in which {what}; the last: {last:#?}; errors: {errors:#?}"),
        }
    }
}

/// A node that runs as the daemon runs it: listens, and publishes whenever it has no lease or another one.
pub struct Daemon {
    heard: Receiver<Result<Snapshot, String>>,
    /// Every snapshot so far, the oldest first.
    pub told: Vec<Snapshot>,
    pub errors: Vec<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub fn start(mut store: Etcd, said: Announcement) -> Self {
        let (tell, heard) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let work = async move {
            loop {
                match store.next().await {
                    Ok(snapshot) => {
                        let own = snapshot.own.as_ref();
                        let is_published = own.is_some_and(|own| own.announcement == said);
                        let is_damaged = snapshot.own_is_damaged;
                        let _ = tell.send(Ok(snapshot));
                        if (!is_published || is_damaged)
                            && let Err(why) = store.publish(&said).await
                        {
                            let _ = tell.send(Err(why.to_string()));
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    Err(why) => {
                        let _ = tell.send(Err(why.to_string()));
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! { () = work => {}, _ = stopped => {} }
            });
        });
        Self { heard, told: Vec::new(), errors: Vec::new(), stop: Some(stop), thread: Some(thread) }
    }

    /// Waits for a snapshot that is as wanted, the last one that was told included.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        if let Some(last) = self.told.last().filter(|last| wanted(last)) {
            return last.clone();
        }
        self.until_next(what, wanted)
    }

    /// Waits for a snapshot that is yet to come.
    pub fn until_next(&mut self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            match self.heard.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(Ok(snapshot)) => {
                    self.told.push(snapshot.clone());
                    if wanted(&snapshot) {
                        return snapshot;
                    }
                }
                Ok(Err(why)) => self.errors.push(why),
                Err(_) => panic!("not {what}; last: {:#?}; errors: {:#?}", self.told.last(), self.errors),
            }
        }
    }

    /// Waits for an error.
    pub fn until_error(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            match self.heard.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(Ok(snapshot)) => self.told.push(snapshot),
                Ok(Err(why)) if wanted(&why) => return why,
                Ok(Err(why)) => self.errors.push(why),
                Err(_) => panic!("no such error; last: {:#?}; errors: {:#?}", self.told.last(), self.errors),
            }
        }
    }

    /// Whether every snapshot since that number had this peer.
    pub fn always_had(&self, since: usize, owner: &str) -> bool {
        self.told.iter().skip(since).all(|told| told.peers.iter().any(|peer| peer.owner == owner))
    }

    /// The own lease, once there is one.
    pub fn lease(&mut self) -> Lease {
        let snapshot = self.until("a lease is held", |snapshot| snapshot.own.is_some());
        Lease::clone(&snapshot.own.unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs something to its end without a runtime around it.
pub fn run<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

/// Waits for a condition outside of the store.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < limit, "not {what}");
    }
}

/// Runs a test of this program in a program of its own.
pub fn alone(test: &str, environment: &[(&str, &str)]) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let tried =
        program.args(["--exact", test, "--ignored"]).envs(environment.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.status.success() && said.contains("1 passed"), "{said}");
}
