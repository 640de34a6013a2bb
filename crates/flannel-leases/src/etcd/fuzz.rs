//! A way in for the fuzz targets: what etcd answers, read without an etcd.

use std::time::Duration;

use flannel_plan::lease::{Announcement, subnets_from_key};
use prost::Message;

use super::claim::{Lack, Node, next_txn};
use super::keys::Keys;
use super::messages::{TxnResponse, WatchResponse};
use super::table::Table;
use super::txn::whole_read;
use super::watch::{Watched, judged};

/// Takes the bytes of a whole read and of what a watch tells then, and decides what this node would write.
///
/// # Panics
/// If a lease is told twice or out of order, or if what would be written names no subnets.
pub fn table(read: &[u8], told: &[u8], random: u64) {
    let mut table = Table::new(Keys::below("/coreos.com/network"));
    let Ok(answer) = TxnResponse::decode(read) else { return };
    let Ok(read) = whole_read(answer) else { return };
    table.take_read(read, Duration::from_secs(1), |_, _| false);
    if let Ok(answer) = WatchResponse::decode(told)
        && let Watched::Events(header, events) = judged(Ok(Some(answer)), false)
    {
        table.take_events(header, events);
    }
    let leases = table.leases_without(&[]);
    assert!(leases.is_sorted_by_key(|lease| lease.subnets), "{leases:?}");
    assert_eq!(leases.len(), table.entries().filter(|(_, entry)| entry.lease.is_some()).count());
    assert!(table.faults().iter().all(|fault| !fault.to_string().is_empty()));
    let said = Announcement::from_etcd("", r#"{"PublicIP":"10.0.0.1"}"#).ok();
    if let Ok(Lack::Txn(txn)) = next_txn(&table, &Node { said, ..Node::default() }, random) {
        assert!(subnets_from_key(&txn.name).is_ok(), "{txn:?}");
    }
}
