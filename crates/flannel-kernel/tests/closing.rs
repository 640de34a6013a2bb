//! How sockets to nftables end: after a deletion the kernel closes them, and none stays behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use std::sync::Mutex;

use flannel_kernel::firewall::nft::*;
use flannel_plan::rules::edit::Edit;
use sandbox::*;

const TABLE: Table = Table { family: TableFamily::Ip, name: "closing" };
/// NETLINK_NETFILTER, as `/proc/net/netlink` writes it.
const NETFILTER: &str = "12";
/// One test at a time: a program that another starts holds a copy of every socket between its fork and its exec.
static ALONE: Mutex<()> = Mutex::new(());

/// How many sockets to netfilter there are in this namespace, the kernel's own among them.
fn sockets() -> usize {
    let list = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    list.lines().filter(|line| line.split_whitespace().nth(1) == Some(NETFILTER)).count()
}

fn commit(nft: &mut Nft, edit: Edit) {
    let mut transaction = Transaction::default();
    transaction.push(TABLE, edit);
    nft.commit(&transaction).unwrap();
}

#[test]
fn a_socket_that_deleted_something_still_works_and_is_gone_soon_after_it_is_dropped() {
    let _alone = ALONE.lock();
    in_a_namespace(|| {
        let before = sockets();
        let mut nft = Nft::open().unwrap();
        for _ in 0..3 {
            commit(&mut nft, Edit::AddTable(None));
            commit(&mut nft, Edit::DeleteTable);
        }
        assert_eq!((sockets(), sh("nft list ruleset").as_str()), (before + 1, ""));
        drop(nft);
        until("the socket is closed", || sockets() == before);
    });
}

#[test]
fn a_socket_that_deleted_nothing_is_gone_when_it_is_dropped() {
    let _alone = ALONE.lock();
    in_a_namespace(|| {
        let before = sockets();
        let mut nft = Nft::open().unwrap();
        commit(&mut nft, Edit::AddTable(None));
        drop(nft);
        assert_eq!(sockets(), before);
    });
}
