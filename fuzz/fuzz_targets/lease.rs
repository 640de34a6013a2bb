//! Leases as etcd has them: the first line is the key, the rest the value, both written by other nodes. What is
//! read and written again reads the same.
#![no_main]

use flannel_plan::backend::{self, vxlan};
use flannel_plan::claim::Identity;
use flannel_plan::lease::{Announcement, BackendData, subnet_key, subnets_from_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (key, value) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(subnets) = subnets_from_key(key) {
        let again = subnet_key(&subnets);
        assert_eq!(subnets_from_key(&again).expect("a key of ours"), subnets, "{again}");
    }
    if let Ok(announcement) = Announcement::from_etcd(key, value) {
        let again = announcement.to_etcd().expect("what was read can be written");
        assert_eq!(Announcement::from_etcd(key, &again).expect("and read"), announcement, "{again}");
        backend::identity(&announcement);
    }
    if let Ok(Some(detail)) = BackendData::from_json(value) {
        let again = BackendData::from_json(detail.as_str()).expect("compact JSON is JSON");
        assert_eq!(again.as_ref(), Some(&detail));
        if let Ok(Identity::Mac(mac)) = vxlan::identity(&detail) {
            assert!(mac.is_unicast(), "{mac}");
        }
    }
});
