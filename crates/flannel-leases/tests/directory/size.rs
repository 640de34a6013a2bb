//! Five thousand leases: how long and how much. Printed, not judged: the machine may be busy.

use std::fs;
use std::time::Instant;

use crate::stage::{Stage, announcement, next, publish};

const LEASES: u32 = 5000;
const CONFIG: &str = r#"{"Network":"10.0.0.0/8","Backend":{"Type":"vxlan"}}"#;

/// Bytes of the heap and all else that is private to this process.
fn private_memory() -> u64 {
    let pages: Vec<u64> = fs::read_to_string("/proc/self/statm")
        .unwrap()
        .split(' ')
        .filter_map(|field| field.trim().parse().ok())
        .collect();
    (pages[1] - pages[2]) * 4096
}

#[tokio::test]
async fn five_thousand_leases_are_read_once_and_then_followed_by_their_stamps() {
    let stage = Stage::new(CONFIG);
    for n in 0..LEASES {
        let (high, low) = (n / 256, n % 256);
        stage.put(
            &format!("10.{}.{low}.0-24", high + 1),
            &format!(
                r#"{{"PublicIP":"172.16.{high}.{low}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"02:00:00:00:{high:02x}:{low:02x}"}},"Owner":"node-{n}","Since":{n}}}"#
            ),
        );
    }
    let mut node = stage.node("one");
    let before = private_memory();
    let start = Instant::now();
    let first = next(&mut node).await.unwrap();
    let read = start.elapsed();
    let memory = private_memory().saturating_sub(before);
    assert_eq!((first.peers.len(), first.faults.len()), (5000, 0));

    let mut peer = stage.node("node-77");
    let start = Instant::now();
    publish(&mut peer, &announcement(7)).await;
    let claimed = start.elapsed();
    let start = Instant::now();
    let second = next(&mut node).await.unwrap();
    let followed = start.elapsed();
    let changed: Vec<_> = first.peers.iter().zip(&second.peers).filter(|(a, b)| a != b).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].1.announcement, announcement(7));
    println!(
        "{LEASES} leases: first snapshot {read:?}, {} KiB; one change published by a new process in \
         {claimed:?}, seen {followed:?} after",
        memory / 1024
    );
}
