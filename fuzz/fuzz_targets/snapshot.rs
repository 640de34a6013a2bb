//! The file in which a daemon keeps what the store said last, after whatever a disk or a person did to it: it is read
//! or refused, lease by lease, and what is read and written again reads the same.
#![no_main]

use flannel_plan::snapshot_file::{FORMAT, Kept, Recalled};
use libfuzzer_sys::fuzz_target;

type Of = std::collections::BTreeMap<String, String>;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recalled) = serde_json::from_slice::<Recalled<Of>>(bytes) else { return };
    let Recalled { of, origin, version, config, own, public, peers, newcomers, .. } = &recalled;
    let (origin, version, peers) = (origin.as_deref(), version.as_deref(), &*peers.leases);
    let kept = Kept { format: FORMAT, of, origin, version, config, own, public, peers, newcomers };
    let again = serde_json::to_vec(&kept).expect("what was read can be written");
    let again: Recalled<Of> = serde_json::from_slice(&again).expect("and read");
    assert!(again.peers.left_out.is_empty());
    assert_eq!((again.config, again.own, again.public), (recalled.config, recalled.own, recalled.public));
    assert_eq!(again.version, recalled.version);
    assert_eq!(
        (again.of, again.origin, again.peers.leases, again.newcomers),
        (recalled.of, recalled.origin, recalled.peers.leases, recalled.newcomers)
    );
});
