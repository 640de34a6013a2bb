//! Backend data that could not be written and read again is refused at the border, and one bad lease in a file is
//! left out alone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::sync::Arc;

use flannel_plan::annotations::{AnnotationPrefix, from_annotations};
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::lease::{Announcement, Lease};
use flannel_plan::lease_list::LeaseList;
use flannel_plan::report::NodeReport;

/// Texts that are JSON, or nearly, and that no program should be asked to keep.
fn poison() -> Vec<(&'static str, String)> {
    vec![
        ("nested 200 deep", format!("{}{}", "[".repeat(200), "]".repeat(200))),
        ("nested 17 deep", format!("{}1{}", r#"{"a":"#.repeat(17), "}".repeat(17))),
        ("a number that is none", r#"{"VNI":1e999}"#.to_owned()),
        ("half a character", r#"{"a":"\ud800"}"#.to_owned()),
        ("half a character as a name", r#"{"\udfff":1}"#.to_owned()),
        ("more than 4 KiB", format!(r#"{{"a":"{}"}}"#, "x".repeat(4096))),
    ]
}

/// Odd, but JSON that every program can keep.
fn harmless() -> Vec<String> {
    vec![
        format!("{}{}", "[".repeat(16), "]".repeat(16)),
        format!(r#"{{"a":"{}"}}"#, "x".repeat(4000)),
        r#"{"a":1,"a":2}"#.to_owned(),
        r#"{"a":1.00,"b":"\u003c\ud83d\ude00","c":"[[[[[[[[[[[[[[[[[[[["}"#.to_owned(),
    ]
}

fn etcd_value(data: &str) -> String {
    format!(r#"{{"PublicIP":"10.0.0.22","PublicIPv6":null,"BackendType":"vxlan","BackendData":{data}}}"#)
}

#[test]
fn backend_data_that_cannot_be_kept_is_refused_and_named() {
    let prefix = AnnotationPrefix::default();
    for (what, data) in poison() {
        let refused = Announcement::from_etcd("10.244.1.0-24", &etcd_value(&data)).unwrap_err().to_string();
        assert!(refused.starts_with("lease of 10.244.1.0-24: "), "{what}: {refused}");
        assert!(refused.len() < 400, "{what}: {refused}");
        let annotations = BTreeMap::from([
            (prefix.key("kube-subnet-manager"), "true".to_owned()),
            (prefix.key("backend-data"), data),
        ]);
        let refused = from_annotations(&annotations, &prefix).unwrap_err().to_string();
        assert!(refused.contains("flannel.alpha.coreos.com/backend-data"), "{what}: {refused}");
        assert!(refused.len() < 400, "{what}: {refused}");
    }
}

#[test]
fn whatever_backend_data_is_accepted_comes_back_from_a_file_to_the_byte() {
    for data in harmless() {
        let announcement = Announcement::from_etcd("10.244.1.0-24", &etcd_value(&data)).unwrap();
        assert_eq!(announcement.to_etcd().unwrap(), etcd_value(&data));
        let subnets = ByFamily { v4: "10.244.1.0/24".parse().ok(), v6: None };
        let lease = Lease { owner: "worker1".to_owned(), subnets, announcement, since: 7 };
        let text = serde_json::to_string(&lease).unwrap();
        assert_eq!(serde_json::from_str::<Lease>(&text).unwrap(), lease, "{text}");
    }
}

fn good(owner: &str) -> Lease {
    let announcement = Announcement::from_etcd("10.244.1.0-24", &etcd_value("{}")).unwrap();
    let subnets = ByFamily { v4: "10.244.1.0/24".parse().ok(), v6: None };
    Lease { owner: owner.to_owned(), subnets, announcement, since: 7 }
}

fn is_unreadable(finding: &Finding, object: &str) -> bool {
    (finding.code, finding.object.as_str()) == (Code::LeaseUnreadable, object)
}

#[test]
fn of_a_list_of_leases_the_bad_ones_alone_are_left_out_and_named() {
    let (good, text) = (good("good"), serde_json::to_string(&good("good")).unwrap());
    let bad: Vec<String> =
        poison().iter().map(|(_, data)| text.replace("\"good\"", "\"bad\"").replace("{}", data)).collect();
    let list = format!("[{text},{},17,{text}]", bad.join(","));
    let read: LeaseList = serde_json::from_str(&list).unwrap();
    assert_eq!(read.leases, [Arc::new(good.clone()), Arc::new(good)]);
    assert_eq!(read.left_out.len(), bad.len() + 1);
    let (last, others) = read.left_out.split_last().unwrap();
    assert!(others.iter().all(|finding| is_unreadable(finding, "lease of bad")), "{others:#?}");
    assert!(is_unreadable(last, "lease 8 of the list"), "{last}");
}

#[test]
fn a_report_with_a_bad_lease_is_read_without_it() {
    let whole = include_str!("../../../fuzz/seeds/state_json/vxlan-dual");
    let (all, left_out) = NodeReport::read(whole.as_bytes()).unwrap();
    assert_eq!(left_out, []);
    for (what, data) in poison() {
        let poisoned = whole.replacen(r#""detail":{}"#, &format!(r#""detail":{{"v4":{data}}}"#), 1);
        let (read, left_out) = NodeReport::read(poisoned.as_bytes()).unwrap();
        let mut expected = all.clone();
        expected.inputs.as_mut().unwrap().to_mut().peers.retain(|peer| peer.owner != "d");
        assert_eq!(read, expected, "{what}");
        let is_told = matches!(&left_out[..], [finding] if is_unreadable(finding, "lease of d"));
        assert!(is_told, "{left_out:?}");
    }
}
