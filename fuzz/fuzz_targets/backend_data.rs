//! Backend data of other nodes, as any of the stores hands it in: whatever is accepted can be written into a file as
//! a part of a lease and is read again to the byte, by us and by anybody who reads JSON.
#![no_main]

use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, BackendData, Lease};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(Some(data)) = BackendData::from_json(text) else { return };
    let value: Value = serde_json::from_str(text).expect("what is accepted is JSON");
    assert_eq!(serde_json::from_str::<Value>(data.as_str()).expect("and stays JSON"), value);
    let announcement = Announcement {
        public: ByFamily { v4: Some([10, 0, 0, 2].into()), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: Some(data.clone()), v6: Some(data) },
    };
    let etcd = announcement.to_etcd().expect("it can be written for etcd");
    assert_eq!(Announcement::from_etcd("10.244.1.0-24", &etcd).expect("and read"), announcement);
    let subnets = ByFamily { v4: "10.244.1.0/24".parse().ok(), v6: None };
    let lease = Lease { owner: "worker1".to_owned(), subnets, announcement, since: 1 };
    let file = serde_json::to_vec(&lease).expect("it can be written into a file");
    assert_eq!(serde_json::from_slice::<Lease>(&file).expect("and read"), lease);
    serde_json::from_slice::<Value>(&file).expect("by anybody");
});
