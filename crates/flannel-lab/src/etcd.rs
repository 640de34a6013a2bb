//! The etcd of a lab: its members on their servers, and its keys over etcd's own JSON gateway, so that no further
//! program is needed to read and write them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::node::Node;
use crate::store::Store;
use crate::topology::NodeSpec;
use crate::{LabError, Result};

/// The name under which a server runs it.
const SERVICE: &str = "etcd";
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// Where a member tells how it is, to its own server only, whatever its clients need to show.
const HEALTH_PORT: u16 = 2381;
/// How long members may take until they have a leader, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The etcd of a running lab.
#[derive(Clone, Debug)]
pub struct Etcd<'a> {
    lab: &'a Lab,
    /// What shows who asks, where etcd wants to know.
    token: Option<String>,
}

/// A key of etcd and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: String,
    /// The lease that it lives by; 0 if it lives for ever.
    pub lease: i64,
    pub create_revision: i64,
    pub mod_revision: i64,
}

impl Lab {
    /// The lab's etcd, if its store has one: Kubernetes has, too.
    pub fn etcd(&self) -> Result<Etcd<'_>> {
        match self.store_kind() {
            Store::Etcd { .. } | Store::Kubernetes { .. } => Ok(Etcd { lab: self, token: None }),
            Store::Directory => Err(self.other_store("etcd")),
        }
    }
}

impl<'a> Etcd<'a> {
    /// Where flannel's keys are, unless flanneld is told another prefix.
    pub const PREFIX: &'static str = "/coreos.com/network";

    /// The same etcd, asked as one of its users; a token dies with the member that gave it.
    pub fn log_in(&self, name: &str, password: &str) -> Result<Self> {
        let answer = self.call("/v3/auth/authenticate", &json!({"name": name, "password": password}))?;
        Ok(Self { lab: self.lab, token: answer["token"].as_str().map(str::to_owned) })
    }

    /// What clients call a member.
    pub(crate) fn endpoint(member: &NodeSpec) -> String {
        format!("http://{}:{CLIENT_PORT}", member.v4())
    }

    /// The servers of its members.
    pub fn members(&self) -> &'a [Node] {
        self.lab.servers()
    }

    /// Starts every member, and waits until each serves.
    pub fn start_all(&self) -> Result<()> {
        self.members().iter().try_for_each(|member| self.start(member))?;
        self.members().iter().try_for_each(|member| self.wait_healthy(member))
    }

    /// Starts a member on what it has on its disk.
    pub fn start(&self, member: &Node) -> Result<()> {
        let (program, more) = self.lab.store_kind().etcd_program()?;
        let words = [program.display().to_string()].into_iter().chain(self.arguments(member));
        let words: Vec<_> = words.chain(more.iter().cloned()).collect();
        member.service(SERVICE).start(&words, |_| {})
    }

    fn arguments(&self, member: &Node) -> Vec<String> {
        let peer = |member: &Node| format!("http://{}:{PEER_PORT}", member.v4());
        let all: Vec<_> = self.members().iter().map(|one| format!("{}={}", one.name(), peer(one))).collect();
        let client = Self::endpoint(member.spec());
        [
            ("--name", member.name().to_owned()),
            ("--data-dir", self.data(member).display().to_string()),
            ("--listen-client-urls", format!("{client},http://127.0.0.1:{CLIENT_PORT}")),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer(member)),
            ("--initial-advertise-peer-urls", peer(member)),
            ("--initial-cluster", all.join(",")),
            ("--initial-cluster-token", self.lab.name().to_owned()),
            ("--listen-metrics-urls", format!("http://127.0.0.1:{HEALTH_PORT}")),
        ]
        .into_iter()
        .map(|(flag, value)| format!("{flag}={value}"))
        .collect()
    }

    /// The folder that a member keeps everything in: copied while it is stopped, it is a backup.
    pub fn data(&self, member: &Node) -> std::path::PathBuf {
        self.lab.store().join(member.name())
    }

    /// Whether a member serves; if not, why.
    fn health(member: &Node) -> std::result::Result<(), String> {
        match member.http_get(HEALTH_PORT, "/health") {
            Ok((200, body)) if body.contains(r#""health":"true""#) => Ok(()),
            Ok((code, body)) => Err(format!("{code} {body}")),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Waits until a member serves.
    pub fn wait_healthy(&self, member: &Node) -> Result<()> {
        let service = member.service(SERVICE);
        self.lab.interrupt.wait_for(&format!("etcd on {}", member.name()), START_LIMIT, || {
            Self::health(member).map_err(|why| format!("{why}\n{}", service.last_words()))
        })
    }

    /// The member that leads, as those who serve say.
    pub fn leader(&self) -> Result<&'a Node> {
        self.lab.interrupt.wait_for("a leader of etcd", START_LIMIT, || {
            let leads = |member: &&Node| {
                let status = self.call_at(member, "/v3/maintenance/status", &json!({})).unwrap_or_default();
                let leader = status["leader"].as_str();
                leader.is_some_and(|leader| leader != "0") && leader == status["header"]["member_id"].as_str()
            };
            self.members().iter().find(leads).ok_or_else(|| "no member says that it leads".to_owned())
        })
    }

    /// Asks the first member that answers: a path of etcd's JSON gateway, and its answer.
    pub fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let mut failure = LabError::Members(0);
        for member in self.members().iter().filter(|member| member.service(SERVICE).lives()) {
            match self.call_at(member, path, body) {
                Ok(answer) => return Ok(answer),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    /// Asks one member, from its own server.
    pub fn call_at(&self, member: &Node, path: &str, body: &Value) -> Result<Value> {
        let (token, body) = (self.token.as_deref(), body.to_string());
        let (code, said) = member.http_post(CLIENT_PORT, path, token, &body)?;
        let answer = serde_json::from_str(&said).ok().filter(|_| code == 200);
        answer.ok_or_else(|| member.no_answer(format!("http://127.0.0.1:{CLIENT_PORT}{path}"), said))
    }

    /// Sets a key that lives for ever.
    pub fn put(&self, key: &str, value: &str) -> Result<()> {
        self.put_with_lease(key, value, 0)
    }

    /// Sets a key that lives for ever, by one member.
    pub fn put_at(&self, member: &Node, key: &str, value: &str) -> Result<()> {
        self.call_at(member, "/v3/kv/put", &key_value(key, value, 0)).map(drop)
    }

    /// Sets a key that lives as long as a lease.
    pub fn put_with_lease(&self, key: &str, value: &str, lease: i64) -> Result<()> {
        self.call("/v3/kv/put", &key_value(key, value, lease)).map(drop)
    }

    /// Deletes a key; gives whether it was there.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let answer = self.call("/v3/kv/deleterange", &json!({"key": STANDARD.encode(key)}))?;
        Ok(answer["deleted"].as_str().is_some_and(|count| count != "0"))
    }

    /// All keys that begin so, in order.
    pub fn entries(&self, prefix: &str) -> Result<Vec<Entry>> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let body = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
        let answer = self.call("/v3/kv/range", &body)?;
        let found = answer["kvs"].as_array().cloned().unwrap_or_default();
        Ok(found.iter().map(entry).collect())
    }

    /// All leases of flannel: the last part of the key, and the rest.
    pub fn leases(&self) -> Result<Vec<Entry>> {
        let folder = format!("{}/subnets/", Self::PREFIX);
        let mut entries = self.entries(&folder)?;
        entries.iter_mut().for_each(|entry| entry.key = entry.key.replacen(&folder, "", 1));
        Ok(entries)
    }

    /// A new lease of so many seconds.
    pub fn grant(&self, seconds: u64) -> Result<i64> {
        Ok(number(&self.call("/v3/lease/grant", &json!({"TTL": seconds.to_string()}))?["ID"]))
    }

    /// Ends a lease, and all keys that live by it.
    pub fn revoke(&self, lease: i64) -> Result<()> {
        self.call("/v3/lease/revoke", &json!({"ID": lease.to_string()})).map(drop)
    }

    /// How many seconds a lease has left.
    pub fn time_to_live(&self, lease: i64) -> Result<i64> {
        Ok(number(&self.call("/v3/lease/timetolive", &json!({"ID": lease.to_string()}))?["TTL"]))
    }

    /// etcd's count of changes.
    pub fn revision(&self) -> Result<i64> {
        let answer = self.call("/v3/kv/range", &json!({"key": STANDARD.encode("\0")}))?;
        Ok(number(&answer["header"]["revision"]))
    }

    /// Forgets all that was before a revision.
    pub fn compact(&self, revision: i64) -> Result<()> {
        self.call("/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).map(drop)
    }
}

/// The gateway writes 64-bit numbers as text.
fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn key_value(key: &str, value: &str, lease: i64) -> Value {
    json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value), "lease": lease.to_string()})
}

fn entry(found: &Value) -> Entry {
    let text = |value: &Value| {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Entry {
        key: text(&found["key"]),
        value: text(&found["value"]),
        lease: number(&found["lease"]),
        create_revision: number(&found["create_revision"]),
        mod_revision: number(&found["mod_revision"]),
    }
}
