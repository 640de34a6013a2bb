//! What reads and events make of the table, without an etcd.

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const CONFIG: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;

fn header(revision: i64) -> Header {
    Header { cluster_id: 7, revision, raft_term: 2 }
}

fn kv(key: &str, value: &str, revision: i64) -> KeyValue {
    KeyValue {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        create_revision: revision,
        mod_revision: revision,
        lease: 0,
    }
}

fn lease(n: u8, revision: i64) -> KeyValue {
    kv(&format!("/n/subnets/10.244.{n}.0-24"), &format!(r#"{{"PublicIP":"10.0.0.{n}"}}"#), revision)
}

fn read(revision: i64, leases: Vec<KeyValue>) -> WholeRead {
    WholeRead { header: header(revision), config: Some(kv("/n/config", CONFIG, 1)), leases }
}

fn table() -> Table {
    Table::new(Keys::below("/n"))
}

fn take(table: &mut Table, read: WholeRead) {
    table.take_read(read, DAY, |_, _| false);
}

fn owners(table: &Table) -> Vec<&str> {
    table.entries().filter_map(|(_, entry)| entry.lease.as_ref()).map(|lease| lease.owner.as_str()).collect()
}

fn event(kind: i32, kv: KeyValue) -> Vec<Event> {
    vec![Event { kind, kv: Some(kv) }]
}

#[test]
fn a_whole_read_is_proof_of_absence_in_the_same_history() {
    let mut table = table();
    take(&mut table, read(5, vec![lease(1, 3), lease(2, 4)]));
    take(&mut table, read(9, vec![lease(2, 4)]));
    assert_eq!((owners(&table), table.faults()), (vec!["10.0.0.2"], vec![]));
}

#[test]
fn what_another_history_lacks_is_remembered() {
    let histories = [
        ("an older revision", header(3)),
        ("another cluster", Header { cluster_id: 8, ..header(99) }),
        ("an older term", Header { raft_term: 1, ..header(99) }),
    ];
    for (what, header) in histories {
        let mut table = table();
        take(&mut table, read(5, vec![lease(1, 3), lease(2, 4), lease(3, 4)]));
        let version = table.version;
        take(&mut table, WholeRead { header, ..read(0, vec![lease(2, 4)]) });
        assert_eq!(owners(&table), ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "{what}");
        assert_eq!((table.version, table.faults().len()), (version + 1, 1), "{what}");
        assert!(table.forget_next().is_some(), "{what}");
        // A second look at the same history proves nothing new.
        take(&mut table, WholeRead { header, ..read(0, vec![lease(2, 4)]) });
        assert_eq!(owners(&table), ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "{what}");
        // A node that comes back is no longer remembered, but there.
        table.take_events(None, event(0, lease(1, 100)));
        take(&mut table, WholeRead { header, ..read(0, vec![lease(2, 4)]) });
        assert_eq!(owners(&table), ["10.0.0.2", "10.0.0.3"], "{what}");
    }
}

#[test]
fn an_own_lease_that_another_history_lacks_is_gone() {
    let mut table = table();
    take(&mut table, read(5, vec![lease(1, 3), lease(2, 4)]));
    table.take_read(read(3, vec![]), DAY, |name, _| name == "10.244.1.0-24");
    assert_eq!(owners(&table), ["10.0.0.2"]);
}

#[test]
fn what_is_remembered_ends_with_its_time() {
    let mut table = table();
    take(&mut table, read(5, vec![lease(1, 3)]));
    table.take_read(read(3, vec![]), Duration::ZERO, |_, _| false);
    assert_eq!(owners(&table), ["10.0.0.1"]);
    table.forget_old();
    assert_eq!((owners(&table), table.faults(), table.forget_next()), (vec![], vec![], None));
}

#[test]
fn events_that_a_whole_read_already_had_are_passed_over() {
    let mut table = table();
    take(&mut table, read(5, vec![lease(1, 3)]));
    let version = table.version;
    table.take_events(Some(header(6)), event(1, KeyValue { mod_revision: 4, ..lease(1, 0) }));
    assert_eq!((owners(&table), table.version), (vec!["10.0.0.1"], version));
    table.take_events(Some(header(6)), event(1, KeyValue { mod_revision: 6, ..lease(1, 0) }));
    assert_eq!((owners(&table), table.version), (vec![], version + 1));
}

#[test]
fn a_key_that_was_made_anew_as_garbage_says_nothing_of_its_former_holder() {
    let mut table = table();
    take(&mut table, read(5, vec![lease(1, 3)]));
    take(&mut table, read(7, vec![kv("/n/subnets/10.244.1.0-24", "garbage", 6)]));
    assert_eq!((owners(&table), table.faults().len()), (vec![], 1));
}

#[test]
fn bytes_that_are_no_text_are_a_fault() {
    let mut table = table();
    let bytes = KeyValue { value: vec![0xff, 0xfe].into(), ..lease(1, 3) };
    let config = KeyValue { value: vec![0xff].into(), ..kv("/n/config", "", 1) };
    take(&mut table, WholeRead { config: Some(config), ..read(5, vec![bytes]) });
    let reasons: Vec<_> = table.faults().into_iter().map(|fault| fault.reason).collect();
    assert_eq!(reasons, ["cannot be read: its value is no text"]);
    assert_eq!(table.net_conf.config().unwrap_err().reason, "is no text");
}
