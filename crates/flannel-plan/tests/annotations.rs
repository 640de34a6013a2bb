//! Node annotations: those that Go flannel wrote are read and would be written to the byte.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use flannel_plan::annotations::{
    AnnotationPrefix, from_annotations, node_addresses, overwritten_addresses, to_annotations,
};
use flannel_plan::family::ByFamily;
use flannel_plan::lease::{Announcement, BackendData};

type Annotations = BTreeMap<String, String>;

fn annotations(pairs: &[(&str, &str)]) -> Annotations {
    let prefix = AnnotationPrefix::default();
    pairs.iter().map(|(suffix, value)| (prefix.key(suffix), (*value).to_owned())).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn data(text: &str) -> Option<BackendData> {
    BackendData::from_json(text).unwrap()
}

fn announcement(backend: &str) -> Announcement {
    Announcement { backend: backend.to_owned(), ..Announcement::default() }
}

fn written(announcement: &Announcement) -> Annotations {
    to_annotations(announcement, &AnnotationPrefix::default(), &ByFamily::default())
}

fn read(annotations: &Annotations) -> Option<Announcement> {
    from_annotations(annotations, &AnnotationPrefix::default()).unwrap()
}

const MAC: &str = r#"{"VNI":1,"VtepMAC":"9a:c3:42:46:45:35"}"#;

#[test]
fn prefixes_are_completed_as_go_completes_them() {
    let cases = [
        ("flannel.alpha.coreos.com", "flannel.alpha.coreos.com/backend-type"),
        ("flannel.alpha.coreos.com/", "flannel.alpha.coreos.com/backend-type"),
        ("flannel.alpha.coreos.com/prefix", "flannel.alpha.coreos.com/prefix-backend-type"),
        ("flannel.alpha.coreos.com/prefix-", "flannel.alpha.coreos.com/prefix-backend-type"),
        ("org.com", "org.com/backend-type"),
        ("org9.com", "org9.com/backend-type"),
        ("org.com/9", "org.com/9-backend-type"),
        ("a-b_c.org/x_y-z", "a-b_c.org/x_y-z-backend-type"),
        ("org.com/--", "org.com/--backend-type"),
    ];
    for (prefix, expected) in cases {
        assert_eq!(prefix.parse::<AnnotationPrefix>().unwrap().key("backend-type"), expected);
    }
    assert_eq!("flannel.alpha.coreos.com".parse(), Ok(AnnotationPrefix::default()));
}

#[test]
fn prefixes_that_kubernetes_would_not_keep_are_refused() {
    for prefix in [
        "",
        "/",
        "org",
        "org/",
        "org/prefix",
        "org.COM",
        "ORG.com",
        "org.com/PREFIX",
        "org.com/a/b",
        "org.com//",
        "org..com",
        ".org.com",
        "org.com.",
        "org.com/-",
        "org.com/a b",
        "org.com/a.b",
        "örg.com",
    ] {
        let error = prefix.parse::<AnnotationPrefix>().unwrap_err();
        assert!(error.to_string().contains(&format!("{prefix:?}")), "{error}");
    }
}

#[test]
fn nodes_that_go_flannel_annotated_come_back_to_the_byte() {
    let mut count = 0;
    for case in ["vxlan", "vxlan-directrouting", "host-gw"] {
        for node in ["w1", "w2", "w3"] {
            let path = format!("tests/golden/kubernetes/{case}/node-{node}.json");
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path)).unwrap();
            let node: serde_json::Value = serde_json::from_str(&text).unwrap();
            let all: Annotations = serde_json::from_value(node["annotations"].clone()).unwrap();
            let announcement = read(&all).expect(&path);
            let (ours, others): (Annotations, Annotations) =
                all.into_iter().partition(|(key, _)| key.starts_with("flannel.alpha.coreos.com/"));
            assert_eq!(written(&announcement), ours, "{path}");
            assert_eq!(others.into_keys().collect::<Vec<_>>(), ["node.alpha.kubernetes.io/ttl"]);
            count += 1;
        }
    }
    assert_eq!(count, 9);
}

#[test]
fn each_backend_writes_the_families_that_go_writes() {
    let (v4, v6) = (Some(ip("10.0.0.1")), Some(ip("fd00:1::1")));
    let dual =
        |backend: &str, detail| Announcement { public: ByFamily { v4, v6 }, detail, ..announcement(backend) };
    let both = ByFamily { v4: data(MAC), v6: data(MAC) };
    let all = [
        ("backend-data", MAC),
        ("backend-v6-data", MAC),
        ("kube-subnet-manager", "true"),
        ("public-ip", "10.0.0.1"),
        ("public-ipv6", "fd00:1::1"),
    ];
    let with = |pairs: &[(&str, &str)], backend| {
        annotations(&[pairs, &[("backend-type", backend), ("kube-subnet-manager", "true")]].concat())
    };
    assert_eq!(written(&dual("vxlan", both)), with(&all, "vxlan"));

    let v6_only = Announcement {
        public: ByFamily { v4: None, v6 },
        detail: ByFamily { v4: None, v6: data(MAC) },
        ..announcement("vxlan")
    };
    let expected = with(&[("backend-v6-data", MAC), ("public-ipv6", "fd00:1::1")], "vxlan");
    assert_eq!(written(&v6_only), expected);

    let null = [("backend-data", "null"), ("public-ip", "10.0.0.1")];
    let null_v6 = [("backend-v6-data", "null"), ("public-ipv6", "fd00:1::1")];
    assert_eq!(written(&dual("host-gw", ByFamily::default())), with(&[null, null_v6].concat(), "host-gw"));
    assert_eq!(written(&dual("", ByFamily::default())), with(&null, ""), "alloc and udp know no IPv6");

    let v6_only = Announcement { public: ByFamily { v4: None, v6 }, ..announcement("host-gw") };
    let unset = [("backend-data", "null"), ("public-ip", "0.0.0.0")];
    assert_eq!(written(&v6_only), with(&[unset, null_v6].concat(), "host-gw"));
    assert_eq!(read(&written(&v6_only)), Some(v6_only), "0.0.0.0 is no address");
}

#[test]
fn an_overwritten_address_is_published_instead_of_the_own() {
    let node = annotations(&[("public-ip-overwrite", "203.0.113.7"), ("public-ipv6-overwrite", "")]);
    let prefix = AnnotationPrefix::default();
    let overwrite = overwritten_addresses(&node, &prefix).unwrap();
    assert_eq!(overwrite, ByFamily { v4: Some(ip("203.0.113.7")), v6: None });

    let own = Announcement {
        public: ByFamily { v4: Some(ip("10.0.0.1")), v6: None },
        detail: ByFamily { v4: data(MAC), v6: None },
        ..announcement("vxlan")
    };
    let expected = annotations(&[
        ("backend-data", MAC),
        ("backend-type", "vxlan"),
        ("kube-subnet-manager", "true"),
        ("public-ip", "203.0.113.7"),
    ]);
    assert_eq!(to_annotations(&own, &prefix, &overwrite), expected);
}

#[test]
fn the_node_may_carry_its_public_addresses() {
    let node = annotations(&[("node-public-ip", "203.0.113.7"), ("node-public-ipv6", "2001:db8::7")]);
    let addresses = ByFamily { v4: Some(ip("203.0.113.7")), v6: Some(ip("2001:db8::7")) };
    assert_eq!(node_addresses(&node, &AnnotationPrefix::default()).unwrap(), addresses);
}

#[test]
fn a_node_without_flannel_says_nothing() {
    assert_eq!(read(&Annotations::new()), None);
    assert_eq!(read(&annotations(&[("kube-subnet-manager", "false"), ("public-ip", "nonsense")])), None);
}

#[test]
fn nodes_of_old_versions_and_of_windows_are_read() {
    let v4 = |backend_data| Announcement {
        public: ByFamily { v4: Some(ip("10.0.0.1")), v6: None },
        detail: ByFamily { v4: data(backend_data), v6: None },
        ..announcement("vxlan")
    };
    for backend_data in
        [r#"{"VtepMAC":"9a:c3:42:46:45:35"}"#, r#"{"VNI":4096,"VtepMAC":"0e:2a:0a:00:00:01"}"#]
    {
        let node = annotations(&[
            ("backend-data", backend_data),
            ("backend-type", "vxlan"),
            ("kube-subnet-manager", "true"),
            ("public-ip", "10.0.0.1"),
        ]);
        assert_eq!(read(&node), Some(v4(backend_data)));
    }
    let empty =
        annotations(&[("backend-data", ""), ("backend-v6-data", "null"), ("kube-subnet-manager", "true")]);
    assert_eq!(read(&empty), Some(announcement("")));
}

#[test]
fn an_annotation_that_cannot_be_read_is_named() {
    let error = |pair| {
        let node = annotations(&[pair, ("kube-subnet-manager", "true")]);
        from_annotations(&node, &AnnotationPrefix::default()).unwrap_err().to_string()
    };
    assert_eq!(
        error(("public-ip", "10.0.0")),
        "annotation flannel.alpha.coreos.com/public-ip is \"10.0.0\", expected an IPv4 address"
    );
    assert_eq!(
        error(("public-ipv6", "10.0.0.1")),
        "annotation flannel.alpha.coreos.com/public-ipv6 is \"10.0.0.1\", expected an IPv6 address"
    );
    assert_eq!(
        error(("backend-data", "{")),
        "annotation flannel.alpha.coreos.com/backend-data is \"{\", expected what a backend says of itself in \
         JSON: backend data is no JSON that can be kept: EOF while parsing an object at line 1 column 1"
    );
}
