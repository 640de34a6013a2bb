//! Every conversion between the forms, in both directions.

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn interfaces() -> Vec<Interface> {
    let host = Interface { name: "cni0".into(), mac: "0a:58:0a:f4:01:01".into(), ..Interface::default() };
    let pod = Interface {
        name: "eth0".into(),
        mac: "0a:58:0a:f4:01:05".into(),
        mtu: 1450,
        sandbox: Some("/run/netns/pod1".into()),
        socket_path: "/run/x.sock".into(),
        pci_id: "0000:00:1f.6".into(),
    };
    vec![host, pod]
}

fn ip(interface: i64, own: &str, gateway: &str) -> Ip {
    Ip { interface: Some(interface), address: net(own), gateway: gateway.parse().ok() }
}

fn attachment() -> Attachment {
    let here = Route {
        mtu: 1400,
        advmss: 1360,
        priority: 9,
        table: Some(0),
        scope: Some(0),
        ..Route::new(net("10.244.0.0/16"), None)
    };
    Attachment {
        interfaces: interfaces(),
        ips: vec![
            ip(1, "10.244.1.5/24", "10.244.1.1"),
            ip(1, "fd00::5/64", "fd00::1"),
            ip(0, "10.9.9.9/24", "10.9.9.1"),
        ],
        routes: vec![here, Route::new(net("::/0"), "fd00::1".parse().ok())],
        dns: Dns {
            nameservers: vec!["10.96.0.10".into()],
            domain: "cluster.local".into(),
            search: vec!["svc".into()],
            options: vec!["ndots:5".into()],
        },
    }
}

fn text(attachment: &Attachment, version: Version) -> String {
    attachment.to_json(version).unwrap().to_string()
}

fn read_text(text: &str, version: Version) -> Result<Attachment, String> {
    let value: Value = text.parse().unwrap();
    Attachment::from_previous(value.as_object().unwrap(), version).map_err(|error| error.to_string())
}

const MODERN: &str = r#"{"cniVersion":"1.1.0","dns":{"domain":"cluster.local","nameservers":["10.96.0.10"],"options":["ndots:5"],"search":["svc"]},"interfaces":[{"mac":"0a:58:0a:f4:01:01","name":"cni0"},{"mac":"0a:58:0a:f4:01:05","mtu":1450,"name":"eth0","pciID":"0000:00:1f.6","sandbox":"/run/netns/pod1","socketPath":"/run/x.sock"}],"ips":[{"address":"10.244.1.5/24","gateway":"10.244.1.1","interface":1},{"address":"fd00::5/64","gateway":"fd00::1","interface":1},{"address":"10.9.9.9/24","gateway":"10.9.9.1","interface":0}],"routes":[{"advmss":1360,"dst":"10.244.0.0/16","mtu":1400,"priority":9,"scope":0,"table":0},{"dst":"::/0","gw":"fd00::1"}]}"#;

const LISTS: &str = r#"{"cniVersion":"0.3.1","interfaces":[{"name":"cni0","mac":"0a:58:0a:f4:01:01"},{"name":"eth0","mac":"0a:58:0a:f4:01:05","sandbox":"/run/netns/pod1"}],"ips":[{"version":"4","interface":1,"address":"10.244.1.5/24","gateway":"10.244.1.1"},{"version":"6","interface":1,"address":"fd00::5/64","gateway":"fd00::1"},{"version":"4","interface":0,"address":"10.9.9.9/24","gateway":"10.9.9.1"}],"routes":[{"dst":"10.244.0.0/16","mtu":1400,"advmss":1360,"priority":9,"table":0,"scope":0},{"dst":"::/0","gw":"fd00::1"}],"dns":{"nameservers":["10.96.0.10"],"domain":"cluster.local","search":["svc"],"options":["ndots:5"]}}"#;

const SINGLE: &str = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.244.1.5/24","gateway":"10.244.1.1","routes":[{"dst":"10.244.0.0/16"}]},"ip6":{"ip":"fd00::5/64","gateway":"fd00::1","routes":[{"dst":"::/0","gw":"fd00::1"}]},"dns":{"nameservers":["10.96.0.10"],"domain":"cluster.local","search":["svc"],"options":["ndots:5"]}}"#;

#[test]
fn every_version_writes_its_own_form() {
    let whole = attachment();
    assert_eq!(text(&whole, Version::V1_1_0), MODERN);
    assert_eq!(text(&whole, Version::V1_0_0), MODERN.replace("1.1.0", "1.0.0"));
    assert_eq!(text(&whole, Version::V0_3_1), LISTS);
    assert_eq!(text(&whole, Version::V0_3_0), LISTS.replace("0.3.1", "0.3.0"));
    assert_eq!(text(&whole, Version::V0_4_0), LISTS.replace("0.3.1", "0.4.0"));
    assert_eq!(text(&whole, Version::V0_2_0), SINGLE);
    assert_eq!(text(&whole, Version::V0_1_0), SINGLE.replace("0.2.0", "0.1.0"));
}

#[test]
fn what_is_empty_is_left_out_but_old_versions_always_say_dns() {
    let none = Attachment::default();
    assert_eq!(text(&none, Version::V1_0_0), r#"{"cniVersion":"1.0.0"}"#);
    assert_eq!(text(&none, Version::V0_4_0), r#"{"cniVersion":"0.4.0","dns":{}}"#);
    for version in [Version::V0_1_0, Version::V0_2_0] {
        let refusal = none.to_json(version).unwrap_err();
        assert_eq!((refusal.code, &*refusal.msg), (999, "cannot convert: no valid IP addresses"));
    }
}

#[test]
fn a_route_of_a_family_without_an_address_has_no_place_in_the_oldest_form() {
    let mut v4 = attachment();
    v4.ips.truncate(1);
    let expected = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.244.1.5/24","gateway":"10.244.1.1","routes":[{"dst":"10.244.0.0/16"}]},"#;
    assert!(text(&v4, Version::V0_2_0).starts_with(expected));
    assert!(!text(&v4, Version::V0_2_0).contains("ip6"));
}

#[test]
fn every_form_is_read_back() {
    let whole = attachment();
    assert_eq!(read_text(MODERN, Version::V1_0_0), Ok(whole.clone()));
    let mut lists = whole.clone();
    let pod = &mut lists.interfaces[1];
    (pod.mtu, pod.socket_path, pod.pci_id) = (0, String::new(), String::new());
    assert_eq!(read_text(LISTS, Version::V0_4_0), Ok(lists));
    let mut single = whole;
    single.interfaces.clear();
    single.ips.truncate(2);
    single.ips.iter_mut().for_each(|ip| ip.interface = None);
    single.routes[0] = Route::new(single.routes[0].dst, None);
    assert_eq!(read_text(SINGLE, Version::V0_1_0), Ok(single.clone()));
    let up = r#"{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.244.1.5/24","gateway":"10.244.1.1"},{"version":"6""#;
    assert!(text(&single, Version::V0_4_0).starts_with(up), "no interfaces, and IPv4 before IPv6");
}

#[test]
fn keys_are_read_without_regard_to_case_and_null_is_absent() {
    let odd = r#"{"Interfaces":[{"Name":"eth0","MAC":null}],"IPs":null,"more":1}"#;
    let eth0 = Interface { name: "eth0".into(), ..Interface::default() };
    assert_eq!(
        read_text(odd, Version::V1_0_0),
        Ok(Attachment { interfaces: vec![eth0], ..Attachment::default() })
    );
}

#[test]
fn a_previous_result_must_be_of_the_family_of_the_configuration() {
    let told = |version, result: &str| read_text(result, version).unwrap_err();
    let odd = |known: &str, is: &str| {
        format!("result type supports {known} but unmarshalled CNIVersion is \"{is}\"")
    };
    assert_eq!(told(Version::V1_1_0, LISTS), odd("[1.0.0 1.1.0]", "0.3.1"));
    assert_eq!(told(Version::V0_4_0, MODERN), odd("[0.3.0 0.3.1 0.4.0]", "1.1.0"));
    assert_eq!(told(Version::V0_2_0, MODERN), odd("[ 0.1.0 0.2.0]", "1.1.0"));
    assert_eq!(told(Version::V1_0_0, r#"{"cniVersion":"x"}"#), odd("[1.0.0 1.1.0]", "x"));
}

#[test]
fn the_output_of_a_plugin_is_read_by_its_own_version_or_that_of_the_configuration() {
    let output = |text: &str, version| {
        let value: Value = text.parse().unwrap();
        Attachment::from_output(value.as_object().unwrap(), version).map_err(|error| error.to_string())
    };
    assert_eq!(output(MODERN, Version::V0_2_0), Ok(attachment()));
    let old = r#"{"ip4":{"ip":"10.0.0.1/8"}}"#;
    assert_eq!(output(old, Version::V0_1_0).unwrap().ips.len(), 1);
    assert_eq!(output(old, Version::V1_0_0), Ok(Attachment::default()));
    let odd = output(r#"{"cniVersion":"3.0.0"}"#, Version::V1_0_0);
    assert_eq!(odd, Err("unsupported CNI result version \"3.0.0\"".into()));
}

#[test]
fn what_cannot_be_read_is_named() {
    for (json, told) in [
        (r#"{"ips":[{"address":"10.0.0.1"}]}"#, "invalid CIDR address: 10.0.0.1"),
        (r#"{"ips":[{}]}"#, "address is missing"),
        (r#"{"ips":[1]}"#, "ips must be an array of objects, not of 1"),
        (r#"{"routes":[{"dst":"0.0.0.0/0","gw":"x"}]}"#, "invalid IP address: x"),
        (r#"{"routes":[{"gw":"10.0.0.1"}]}"#, "dst is missing"),
        (r#"{"routes":[{"dst":"0.0.0.0/0","mtu":-1}]}"#, "mtu cannot be -1"),
        (r#"{"routes":[{"dst":"0.0.0.0/0","scope":256}]}"#, "scope cannot be 256"),
    ] {
        assert_eq!(read_text(json, Version::V1_0_0).unwrap_err(), told);
    }
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_an_ipv4_address() {
    let json = r#"{"ips":[{"address":"::ffff:10.0.0.5/120","gateway":"::ffff:10.0.0.1"}]}"#;
    let read = read_text(json, Version::V1_0_0).unwrap();
    let expected = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}]}"#;
    assert_eq!(text(&read, Version::V1_0_0), expected);
}

#[test]
fn every_field_of_a_resolv_conf_is_read_and_comments_are_not() {
    let text = "\n\t nameserver 192.0.2.0\nnameserver 192.0.2.2 # x\ndomain a.example\ndomain example.com\n\
        ;nameserver comment\n  #nameserver comment\nsearch example.net example.org\nsearch example.gov\n\
        options one two three\noptions four\nnameserver\nsortlist 10.0.0.0\n";
    let expected = Dns {
        nameservers: vec!["192.0.2.0".into(), "192.0.2.2".into()],
        domain: "example.com".into(),
        search: vec!["example.net".into(), "example.org".into(), "example.gov".into()],
        options: vec!["one".into(), "two".into(), "three".into(), "four".into()],
    };
    assert_eq!(Dns::from_resolv_conf(text), expected);
    assert_eq!(Dns::from_resolv_conf(""), Dns::default());
}
