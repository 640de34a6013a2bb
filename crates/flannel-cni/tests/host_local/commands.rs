//! ADD, DEL, CHECK, STATUS and GC, in every version where it matters.

use std::fs;

use flannel_cni::plugins::host_local;
use flannel_cni::request::Command;
use flannel_cni::version::Version;
use serde_json::{Value, json};

use crate::node::{NETWORK, Node, files, owned_by};

fn one() -> Value {
    json!({ "ranges": [[{ "subnet": "10.1.2.0/24" }]] })
}

fn newest(node: &Node, ipam: &Value) -> Value {
    node.config(Version::NEWEST, ipam)
}

fn expected(version: Version) -> Value {
    let dns = json!({ "nameservers": ["192.0.2.3"] });
    let routes = [
        json!({ "dst": "0.0.0.0/0" }),
        json!({ "dst": "::/0" }),
        json!({ "dst": "192.168.0.0/16", "gw": "1.1.1.1" }),
        json!({ "dst": "2001:db8:2::/64", "gw": "2001:db8:3::1" }),
    ];
    if version < Version::V0_3_0 {
        return json!({
            "cniVersion": version.as_str(),
            "ip4": { "ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [routes[0], routes[2]] },
            "ip6": { "ip": "2001:db8:1::2/64", "gateway": "2001:db8:1::1", "routes": [routes[1], routes[3]] },
            "dns": dns,
        });
    }
    let mut ips = json!([
        { "address": "10.1.2.2/24", "gateway": "10.1.2.1" },
        { "address": "2001:db8:1::2/64", "gateway": "2001:db8:1::1" },
    ]);
    if version < Version::V1_0_0 {
        ips[0]["version"] = json!("4");
        ips[1]["version"] = json!("6");
    }
    json!({ "cniVersion": version.as_str(), "ips": ips, "routes": routes, "dns": dns })
}

#[test]
fn addresses_are_given_and_freed_in_every_version() {
    for version in Version::ALL {
        let node = Node::new();
        let resolv_conf = node.data.path().join("resolv.conf");
        fs::write(&resolv_conf, "nameserver 192.0.2.3").unwrap();
        let config = node.config(
            version,
            &json!({
                "resolvConf": resolv_conf,
                "ranges": [[{ "subnet": "10.1.2.0/24" }, { "subnet": "10.2.2.0/24" }], [{ "subnet": "2001:db8:1::/64" }]],
                "routes": [
                    { "dst": "0.0.0.0/0" }, { "dst": "::/0" }, { "dst": "192.168.0.0/16", "gw": "1.1.1.1" },
                    { "dst": "2001:db8:2::0/64", "gw": "2001:db8:3::1" },
                ],
            }),
        );
        let request = node.request(Command::Add, "dummy", &config);
        let result = host_local::add(&node.machine, &request).unwrap();
        assert_eq!(result.to_json(version).unwrap(), expected(version));
        let last = [("last_reserved_ip.0", "10.1.2.2"), ("last_reserved_ip.1", "2001:db8:1::2")];
        let owner = "dummy\r\neth0";
        let taken = [("10.1.2.2", owner), ("2001:db8:1::2", owner), last[0], last[1]];
        assert_eq!(node.files(), files(taken));
        node.del("dummy", &config).unwrap();
        assert_eq!(node.files(), files(last));
    }
}

#[test]
fn an_interface_of_a_container_is_an_owner_of_its_own() {
    let node = Node::new();
    let config = newest(&node, &one());
    let mut second = node.request(Command::Add, "dummy", &config);
    second.ifname = "eth1".into();
    assert_eq!(node.add("dummy", &config), Ok(vec!["10.1.2.2/24".into()]));
    assert_eq!(node.add_request(&second), Ok(vec!["10.1.2.3/24".into()]));
    node.del("dummy", &config).unwrap();
    assert_eq!(node.reservations(), [("10.1.2.3".into(), "dummy\r\neth1".into())]);
    host_local::del(&node.machine, &second).unwrap();
    assert_eq!(node.reservations(), []);
}

#[test]
fn a_network_keeps_its_reservations_apart_from_others() {
    let node = Node::new();
    let (first, mut second) = (newest(&node, &one()), newest(&node, &one()));
    second["name"] = json!("mynet1");
    assert_eq!(node.add("dummy", &first), Ok(vec!["10.1.2.2/24".into()]));
    assert_eq!(node.add("dummy", &second), Ok(vec!["10.1.2.2/24".into()]));
    node.del("dummy", &first).unwrap();
    assert_eq!(node.reservations(), []);
    assert_eq!(fs::read(node.data.path().join("mynet1/10.1.2.2")).unwrap(), b"dummy\r\neth0");
}

#[test]
fn a_container_gets_no_second_address_until_it_gave_the_first_back() {
    for version in Version::ALL {
        let node = Node::new();
        let config = node.config(version, &one());
        let duplicate = "failed to allocate for range 0: 10.1.2.2 has been allocated to dummy, duplicate \
                         allocation is not allowed";
        assert_eq!(node.add("dummy", &config), Ok(vec!["10.1.2.2/24".into()]));
        assert_eq!(node.add("dummy", &config), Err(duplicate.into()));
        assert_eq!(node.add("dummy1", &config), Ok(vec!["10.1.2.3/24".into()]));
        assert_eq!(node.add("dummy", &config), Err(duplicate.into()));
        node.del("dummy", &config).unwrap();
        assert_eq!(node.add("dummy", &config), Ok(vec!["10.1.2.4/24".into()]));
        assert_eq!(
            node.reservations(),
            [("10.1.2.3".into(), owned_by("dummy1")), ("10.1.2.4".into(), owned_by("dummy"))]
        );
    }
}

#[test]
fn a_second_add_with_a_wish_is_refused_too() {
    let node = Node::new();
    let config = newest(&node, &one());
    node.add("dummy", &config).unwrap();
    let mut request = node.request(Command::Add, "dummy", &config);
    for (wish, words) in [
        ("10.1.2.9", "10.1.2.2 has been allocated to dummy, duplicate allocation is not allowed"),
        ("10.1.2.2", "requested IP address 10.1.2.2 is not available in range set 10.1.2.1-10.1.2.254"),
        ("10.1.2.1", "requested ip 10.1.2.1 is subnet's gateway"),
    ] {
        request.args = format!("IP={wish}");
        let refused = node.add_request(&request).unwrap_err().msg;
        assert_eq!(refused, format!("failed to allocate for range 0: {words}"));
    }
    assert_eq!(node.reservations(), [("10.1.2.2".into(), owned_by("dummy"))]);
}

#[test]
fn a_refused_set_takes_nothing_of_the_others_and_frees_nothing_that_was_there() {
    let node = Node::new();
    let second = json!({ "ranges": [[{ "subnet": "10.1.3.0/24" }]] });
    node.add("dummy", &newest(&node, &second)).unwrap();
    let both = json!({ "ranges": [[{ "subnet": "10.1.2.0/24" }], [{ "subnet": "10.1.3.0/24" }]] });
    let words = "failed to allocate for range 1: 10.1.3.2 has been allocated to dummy, duplicate allocation \
                 is not allowed";
    assert_eq!(node.add("dummy", &newest(&node, &both)), Err(words.into()));
    assert_eq!(node.reservations(), [("10.1.3.2".into(), owned_by("dummy"))]);
}

#[test]
fn an_entry_with_the_id_alone_belongs_to_the_id() {
    for version in Version::ALL {
        let node = Node::new();
        let config = node.config(version, &one());
        node.add("dummy", &config).unwrap();
        // As the upstream test does it: into the file that is there.
        node.write("10.1.2.2", "dummy");
        node.add("dummy", &config).unwrap_err();
        node.del("dummy", &config).unwrap();
        assert_eq!(node.reservations(), []);
    }
}

#[test]
fn an_entry_with_the_id_alone_stays_where_another_names_the_interface() {
    let node = Node::new();
    let config = newest(&node, &one());
    node.write("10.1.2.7", "dummy");
    node.write("10.1.2.8", &owned_by("dummy"));
    node.del("dummy", &config).unwrap();
    assert_eq!(node.reservations(), [("10.1.2.7".into(), "dummy".into())]);
    node.del("dummy", &config).unwrap();
    assert_eq!(node.reservations(), []);
}

#[test]
fn del_frees_every_address_of_the_container_whatever_the_ranges_are_now() {
    let node = Node::new();
    for (name, owner) in [("10.9.9.9", "dummy"), ("fd00::9", "dummy"), ("10.1.2.9", "other")] {
        node.write(name, &owned_by(owner));
    }
    node.del("dummy", &newest(&node, &one())).unwrap();
    assert_eq!(node.reservations(), [("10.1.2.9".into(), owned_by("other"))]);
}

#[test]
fn del_frees_and_then_tells_that_the_ranges_became_wrong() {
    let node = Node::new();
    node.add("a", &newest(&node, &one())).unwrap();
    let wrong = newest(&node, &json!({ "ranges": [[{ "subnet": "10.1.2.7/24" }]] }));
    let told = node.del("a", &wrong).unwrap_err().msg;
    assert!(told.starts_with("invalid range set 0: Network has host bits set."), "{told}");
    assert_eq!(node.reservations(), []);
}

#[test]
fn del_of_an_unknown_container_is_done_and_makes_nothing() {
    for version in Version::ALL {
        let node = Node::new();
        let config = node.config(version, &one());
        node.del("dummy", &config).unwrap();
        assert!(!node.folder().exists());
        node.add("other", &config).unwrap();
        node.del("dummy", &config).unwrap();
        assert_eq!(node.reservations(), [("10.1.2.2".into(), owned_by("other"))]);
    }
}

#[test]
fn space_around_ids_and_contents_does_not_count() {
    for version in Version::ALL {
        let node = Node::new();
        let config = node.config(version, &one());
        node.add("   dummy\n ", &config).unwrap();
        assert_eq!(node.reservations(), [("10.1.2.2".into(), owned_by("dummy"))]);
        node.del("   dummy\n ", &config).unwrap();
        assert_eq!(node.reservations(), []);
        node.write("10.1.2.9", " dummy\r\neth0\n");
        node.add("dummy", &config).unwrap_err();
        node.del("dummy", &config).unwrap();
        assert_eq!(node.reservations(), []);
    }
}

#[test]
fn wishes_are_met_from_every_set() {
    for version in Version::ALL {
        let node = Node::new();
        let ranges = json!([[{ "subnet": "172.16.1.0/24" }, { "subnet": "10.1.2.0/24" }], [{ "subnet": "2001:db8:1::/48" }]]);
        let mut config = node.config(version, &json!({ "ranges": ranges }));
        config["args"] = json!({ "cni": { "ips": ["10.1.2.88", "2001:db8:1::999"] } });
        let addresses = vec!["10.1.2.88/24".into(), "2001:db8:1::999/48".into()];
        assert_eq!(node.add("dummy", &config), Ok(addresses));
        let last = node.files();
        assert_eq!(last["last_reserved_ip.0"], "10.1.2.88");
        assert_eq!(last["last_reserved_ip.1"], "2001:db8:1::999");
    }
}

#[test]
fn a_wish_that_no_set_can_meet_is_told_and_nothing_is_taken() {
    for version in Version::ALL {
        let node = Node::new();
        let ranges = json!([[{ "subnet": "10.1.2.0/24" }], [{ "subnet": "10.1.3.0/24" }]]);
        let mut config = node.config(version, &json!({ "ranges": ranges }));
        config["args"] = json!({ "cni": { "ips": ["10.1.2.88", "10.1.2.77"] } });
        let words = match version < Version::V0_3_0 {
            true => format!("CNI version {version} does not support more than 1 address per family"),
            false => "failed to allocate all requested IPs: 10.1.2.77".to_owned(),
        };
        assert_eq!(node.add("dummy", &config), Err(words));
        assert_eq!(node.reservations(), []);
    }
}

#[test]
fn check_wants_the_address_that_the_result_named() {
    let node = Node::new();
    let mut config = newest(&node, &one());
    let missing = "host-local: Failed to find address added by container dummy";
    assert_eq!(node.check("dummy", &config).unwrap_err().msg, missing);
    assert!(!node.folder().exists());
    node.add("dummy", &config).unwrap();
    assert_eq!(node.check("dummy", &config), Ok(()));
    for (address, answer) in [
        ("10.1.2.2/24", Ok(())),
        ("10.9.9.9/24", Ok(())), // another plugin's
        ("10.1.2.3/24", Err(format!("{missing}; prevResult says 10.1.2.3, reserved are 10.1.2.2"))),
    ] {
        config["prevResult"] = json!({ "cniVersion": "1.1.0", "ips": [{ "address": address }] });
        assert_eq!(node.check("dummy", &config).map_err(|error| error.to_string()), answer);
    }
    assert_eq!(node.check("other", &config).unwrap_err().msg, missing.replace("dummy", "other"));
}

#[test]
fn check_takes_an_entry_with_the_id_alone() {
    let node = Node::new();
    node.write("10.1.2.7", "dummy");
    assert_eq!(node.check("dummy", &newest(&node, &one())), Ok(()));
}

#[test]
fn status_says_whether_every_set_has_an_address_to_give() {
    let node = Node::new();
    let ipam = json!({ "ranges": [[{ "subnet": "10.1.2.0/30" }], [{ "subnet": "fd00::/64" }]] });
    let config = newest(&node, &ipam);
    assert_eq!(node.status(&config), Ok(()));
    assert!(!node.folder().exists());
    node.add("a", &config).unwrap();
    let full = node.status(&config).unwrap_err();
    assert_eq!(full.code, 50);
    assert_eq!(full.msg, "no IP addresses available in range set: 10.1.2.1-10.1.2.2");
    node.del("a", &config).unwrap();
    assert_eq!(node.status(&config), Ok(()));
    assert_eq!(node.status(&json!({ "cniVersion": "1.1.0", "name": NETWORK })), Ok(()));
}

#[test]
fn gc_frees_what_no_valid_attachment_owns() {
    let node = Node::new();
    let mut config = newest(&node, &one());
    for id in ["a", "b", "c"] {
        node.add(id, &config).unwrap();
    }
    for (name, content) in [
        ("10.1.2.10", "a\r\neth1"), // another interface
        ("10.1.2.11", "a"),         // without interface
        ("10.1.2.12", "gone"),
        ("10.1.2.13", ""), // what a crash leaves
        ("10.9.9.9", "gone\r\neth0"),
        ("readme", "hello"),
    ] {
        node.write(name, content);
    }
    fs::create_dir(node.file("10.1.2.14")).unwrap();
    config["cni.dev/valid-attachments"] =
        json!([{ "containerID": "a", "ifname": "eth0" }, { "containerID": "c", "ifname": "eth0" }]);
    node.gc(&config).unwrap();
    fs::remove_dir(node.file("10.1.2.14")).unwrap();
    let expected = files([
        ("10.1.2.2", "a\r\neth0"),
        ("10.1.2.4", "c\r\neth0"),
        ("10.1.2.11", "a"),
        ("last_reserved_ip.0", "10.1.2.4"),
        ("readme", "hello"),
    ]);
    assert_eq!(node.files(), expected);
}

#[test]
fn gc_with_an_empty_list_frees_all_and_without_a_list_nothing() {
    let node = Node::new();
    let mut config = newest(&node, &one());
    node.add("a", &config).unwrap();
    node.write("10.1.2.9", "");
    node.gc(&config).unwrap();
    assert_eq!(node.reservations().len(), 2);
    config["cni.dev/valid-attachments"] = json!([]);
    node.gc(&config).unwrap();
    assert_eq!(node.reservations(), []);
}

#[test]
fn a_folder_that_cannot_be_had_is_named() {
    let node = Node::new();
    fs::write(node.folder(), "a file").unwrap();
    let words = node.add("a", &newest(&node, &one())).unwrap_err();
    assert_eq!(words, format!("cannot lock {}: Not a directory (os error 20)", node.folder().display()));
}

#[test]
fn a_resolv_conf_that_cannot_be_read_is_named_before_anything_is_taken() {
    let node = Node::new();
    let ipam = json!({ "subnet": "10.1.2.0/24", "resolvConf": "/does/not/exist" });
    let words = node.add("a", &newest(&node, &ipam)).unwrap_err();
    assert_eq!(words, "cannot read resolvConf /does/not/exist: No such file or directory (os error 2)");
    assert!(!node.folder().exists());
}
