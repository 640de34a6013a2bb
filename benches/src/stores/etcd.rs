//! Peers as leases in etcd, in Go's form.

use flannel_lab::{Lab, Node, Relay, Store};

use super::cluster::{self, backend_data, public, subnet};
use super::race::Place;

/// Where the cable to etcd is.
const PORT: u16 = 2390;

/// A node on etcd.
pub struct Etcd {
    relay: Relay,
    lab: Lab,
    /// The etcd lease that all peers live by.
    life: i64,
}

impl Etcd {
    /// Brings it up with so many peers.
    pub fn up(peers: u32) -> anyhow::Result<Self> {
        let lab = cluster::lab(Store::etcd(1))?;
        let server = lab.servers().first().ok_or_else(|| anyhow::anyhow!("the lab has no server"))?;
        let relay = Relay::start(server, PORT, 2379)?;
        let life = lab.etcd()?.grant(86_400)?;
        let place = Self { relay, lab, life };
        (0..peers).try_for_each(|peer| place.put(peer, 0))?;
        Ok(place)
    }

    /// Version 0 is what a peer says at first.
    fn put(&self, peer: u32, version: u32) -> anyhow::Result<()> {
        let key = format!("{}/subnets/{}-24", flannel_lab::Etcd::PREFIX, subnet(peer));
        let value = format!(
            r#"{{"PublicIP":"{}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{}}}"#,
            public(peer),
            backend_data(peer, version)
        );
        Ok(self.lab.etcd()?.put_with_lease(&key, &value, self.life)?)
    }
}

impl Place for Etcd {
    fn node(&self) -> anyhow::Result<&Node> {
        cluster::node(&self.lab)
    }

    fn relay(&self) -> &Relay {
        &self.relay
    }

    fn arguments(&self) -> Vec<String> {
        let endpoint = format!("http://10.0.0.11:{PORT}");
        ["--etcd-endpoints", &endpoint, "-v", "0"].map(str::to_owned).to_vec()
    }

    fn change(&mut self, peer: u32, version: u32) -> anyhow::Result<()> {
        self.put(peer, version)
    }

    fn sign_of_life(&mut self, peer: u32, _: u32) -> anyhow::Result<()> {
        self.put(4000 + peer, 0)
    }

    fn sign(&self) -> &'static str {
        "a lease written again as it was, as Go renews it"
    }
}
