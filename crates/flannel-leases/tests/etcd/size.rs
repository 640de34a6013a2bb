//! Many nodes at once, and many leases. Figures are printed: `cargo test ... -- --nocapture`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use flannel_leases::LeaseStore;
use flannel_leases::etcd::StoredLease;
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, Lease};
use ipnet::{IpNet, Ipv4Net};
use tokio::task::JoinSet;

use crate::stage::{DUAL, Stage, V4, announcement, next, soon};

fn numbered(n: u16) -> Announcement {
    let [high, low] = n.to_be_bytes();
    let v6 = format!("fd00:30::{n:x}").parse().unwrap();
    Announcement {
        public: ByFamily { v4: Some(IpAddr::from([10, 1, high, low])), v6: Some(v6) },
        ..announcement(1)
    }
}

async fn crowd(config: &str, count: u16) {
    let stage = Stage::new(config);
    let mut claims = JoinSet::new();
    let began = Instant::now();
    for n in 0..count {
        let mut node = stage.node_with(ByFamily::default());
        claims.spawn(async move {
            let lease = soon(node.publish(&numbered(n))).await.unwrap();
            (lease.subnets, began.elapsed())
        });
    }
    let claimed = claims.join_all().await;
    let slowest = claimed.iter().map(|(_, took)| *took).max().unwrap();
    println!("{count} nodes that claimed at once had their subnets after {slowest:?}");
    let v4: BTreeSet<_> = claimed.iter().filter_map(|(subnets, _)| subnets.v4).collect();
    assert_eq!(v4.len(), usize::from(count));
    let v6: Vec<_> = claimed.iter().filter_map(|(subnets, _)| subnets.v6).collect();
    assert_eq!(v6.iter().collect::<BTreeSet<_>>().len(), v6.len());
    assert_eq!(stage.names().len(), usize::from(count));
}

#[tokio::test]
async fn two_hundred_nodes_that_start_at_once_get_two_hundred_subnets() {
    crowd(V4, 200).await;
}

#[tokio::test]
async fn two_hundred_nodes_with_both_families_never_share_a_subnet_of_either() {
    crowd(DUAL, 200).await;
}

#[tokio::test]
async fn the_last_subnets_of_a_small_network_are_found_by_all() {
    crowd(r#"{"Network":"10.244.0.0/18","SubnetLen":24,"Backend":{"Type":"vxlan"}}"#, 63).await;
}

#[tokio::test]
async fn five_thousand_leases_are_read_by_one_call() {
    let stage = Stage::new(r#"{"Network":"10.128.0.0/9","SubnetLen":24,"Backend":{"Type":"vxlan"}}"#);
    let leases: Vec<_> = (0..5000u16)
        .map(|n| {
            let [high, low] = n.to_be_bytes();
            let subnet = Ipv4Net::new([10, 128 + high, low, 0].into(), 24).unwrap();
            let lease = Lease {
                owner: String::new(),
                subnets: ByFamily { v4: Some(IpNet::V4(subnet)), v6: None },
                announcement: numbered(n),
                since: 0,
            };
            StoredLease { lease, time_to_live: None }
        })
        .collect();
    let mut node = stage.node();
    let began = Instant::now();
    node.write(None, &leases).await.unwrap();
    println!("5,000 leases were written one by one in {:?}", began.elapsed());
    let began = Instant::now();
    let first = next(&mut node).await;
    println!("5,000 leases were read in {:?}", began.elapsed());
    assert_eq!(first.peers.len(), 5000);
    assert!(first.peers.is_sorted_by_key(|peer| peer.subnets));
    let began = Instant::now();
    stage.put("10.244.1.0-24", r#"{"PublicIP":"10.9.9.9"}"#);
    let second = next(&mut node).await;
    println!("one more was followed in {:?}, etcdctl included", began.elapsed());
    assert_eq!(second.peers.len(), 5001);
    let began = Instant::now();
    soon(node.publish(&announcement(7))).await.unwrap();
    println!("a claim among 5,001 took {:?}", began.elapsed());
}
