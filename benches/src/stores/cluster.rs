//! One real node on a store, and the peers that exist only there.

use std::net::Ipv4Addr;

use anyhow::Context;
use flannel_lab::{Flanneld, Lab, LabOptions, Node, Store, Topology, unique_name};

const NET_CONF: &str =
    r#"{"Network":"11.0.0.0/8","SubnetLen":24,"EnableNFTables":true,"Backend":{"Type":"vxlan"}}"#;

/// Brings up a lab with one node and nothing started.
pub fn lab(store: Store) -> anyhow::Result<Lab> {
    Ok(Lab::up(LabOptions {
        name: unique_name("bench-stores"),
        topology: Topology::flat(1)?,
        store,
        net_conf: NET_CONF.to_owned(),
        flanneld: Flanneld::NotStarted,
        pods_per_node: 0,
        ..LabOptions::default()
    })?)
}

/// The node of a lab.
pub fn node(lab: &Lab) -> anyhow::Result<&Node> {
    lab.nodes().first().context("the lab has no node")
}

/// The subnet of a peer, above all that a store gives out by itself.
pub fn subnet(peer: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b80_0000 + (peer << 8))
}

/// The public address of a peer.
pub fn public(peer: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xac10_0000 + peer + 1)
}

/// What a peer says of its tunnel; each version has another MAC.
pub fn backend_data(peer: u32, version: u32) -> String {
    let ([_, _, a, b], [_, _, c, d]) = (version.to_be_bytes(), peer.to_be_bytes());
    format!(r#"{{"VNI":1,"VtepMAC":"02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}"}}"#)
}
