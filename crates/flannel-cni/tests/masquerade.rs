//! Masquerade and the check of hardware addresses: the rules of Go's plugins, made, found again and removed by
//! either.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod own_run;
#[path = "portmap/stage.rs"]
#[allow(dead_code, reason = "a part of it is for portmap")]
mod stage;

use flannel_cni::request::{AttachmentId, Environment, Request};
use flannel_cni::{macspoof, masquerade};
use flannel_plan::mac::Mac;
use ipnet::IpNet;
use serde_json::{Value, json};
use stage::*;

fn request_on(network: &str, container: &str, ifname: &str) -> Request {
    let environment = Environment {
        command: "ADD".to_owned(),
        container_id: container.to_owned(),
        ifname: ifname.to_owned(),
        ..Environment::default()
    };
    Request::read(&environment, json!({"cniVersion": "1.1.0", "name": network}).to_string().as_bytes())
        .unwrap()
}

fn request(container: &str) -> Request {
    request_on("mynet", container, "eth0")
}

fn valid() -> AttachmentId {
    AttachmentId { container_id: "valid".to_owned(), ifname: "eth0".to_owned() }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn left(case: &Value, what: &str) -> Vec<String> {
    let lines = case["left"][what].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    lines.filter(|line| what != "iptables" || line.starts_with([':', '-'])).collect()
}

const EMPTY: [&str; 4] = [":PREROUTING ACCEPT ", ":INPUT ACCEPT ", ":OUTPUT ACCEPT ", ":POSTROUTING ACCEPT "];

#[test]
fn iptables_gets_the_rules_that_go_makes_and_loses_them_all() {
    for legacy in [false, true] {
        for known in [&["10.22.0.2/16"][..], &[]] {
            on_a_host(|| {
                if legacy {
                    with_legacy_iptables();
                }
                let request = request("c0ffee01");
                masquerade::set_up(&request, &nets(&["10.22.0.2/16"]), Some("iptables")).unwrap();
                let expected = left(&golden("bridge-ipmasq-iptables"), "iptables");
                assert_eq!(sorted(nat("iptables-save")), sorted(expected.clone()));
                masquerade::set_up(&request, &nets(&["10.22.0.2/16"]), Some("iptables")).unwrap();
                assert_eq!(sorted(nat("iptables-save")), sorted(expected));
                masquerade::tear_down(&request, &nets(known)).unwrap();
                assert_eq!(nat("iptables-save"), EMPTY);
                masquerade::tear_down(&request, &nets(known)).unwrap();
            });
        }
    }
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn both_families_get_the_rules_that_go_makes() {
    on_a_host(|| {
        let addresses = nets(&["10.22.0.2/24", "fd00:22::2/64"]);
        let request = request("c0ffee01");
        masquerade::set_up(&request, &addresses, Some("iptables")).unwrap();
        let case = golden("bridge-dual-ipmasq-iptables");
        assert_eq!(nat("iptables-save"), left(&case, "iptables"));
        let v6 = |line: String| {
            let line = line.replace("10.22.0.2/32", "fd00:22::2/128").replace("10.22.0.0/24", "fd00:22::/64");
            line.replace("224.0.0.0/4", "ff00::/8")
        };
        assert_eq!(nat("ip6tables-save"), left(&case, "iptables").into_iter().map(v6).collect::<Vec<_>>());
        masquerade::tear_down(&request, &addresses).unwrap();
        assert_eq!(
            (nat("iptables-save"), nat("ip6tables-save")),
            (EMPTY.map(str::to_owned).into(), EMPTY.map(str::to_owned).into())
        );
    });
}

#[test]
fn nftables_gets_the_rules_that_go_makes_and_loses_those_of_the_container() {
    on_a_host(|| {
        let (first, second) = (request("c0ffee01"), request("c0ffee02"));
        masquerade::set_up(&first, &nets(&["10.22.0.2/16"]), Some("nftables")).unwrap();
        let expected = left(&golden("bridge-ipmasq-nftables"), "nft");
        assert_eq!(nft().lines().collect::<Vec<_>>(), expected);
        masquerade::set_up(&first, &nets(&["10.22.0.2/16"]), Some("nftables")).unwrap();
        assert_eq!(nft().lines().collect::<Vec<_>>(), expected);

        masquerade::set_up(&second, &nets(&["10.22.0.3/16", "fd00::3/64"]), Some("nftables")).unwrap();
        assert_eq!(nft().matches("id: c0ffee02").count(), 2);
        masquerade::tear_down(&second, &[]).unwrap();
        assert_eq!(nft().lines().collect::<Vec<_>>(), expected);
        masquerade::tear_down(&first, &[]).unwrap();
        assert!(!nft().contains("c0ffee"));
    });
}

#[test]
fn no_backend_means_iptables_where_it_works_and_an_unknown_one_is_refused() {
    on_a_host(|| {
        masquerade::set_up(&request("c0ffee01"), &nets(&["10.22.0.2/16"]), None).unwrap();
        assert!(nat("iptables-save").len() > EMPTY.len());
        let error = masquerade::set_up(&request("c0ffee02"), &[], Some("magic")).unwrap_err();
        assert_eq!((error.code, &*error.msg), (999, "unknown ipmasq backend \"magic\""));
    });
}

#[test]
fn networks_that_are_not_masqueraded_come_first_whatever_the_number_of_addresses() {
    on_a_host(|| {
        let addresses = nets(&["10.22.0.2/24", "10.23.0.2/24"]);
        masquerade::set_up(&request("c0ffee01"), &addresses, Some("iptables")).unwrap();
        let targets: Vec<_> = nat("iptables-save")
            .into_iter()
            .filter(|line| line.starts_with("-A CNI-"))
            .map(|line| line.split(' ').next_back().unwrap().to_owned())
            .collect();
        assert_eq!(targets, ["ACCEPT", "ACCEPT", "MASQUERADE"]);
        masquerade::tear_down(&request("c0ffee01"), &addresses).unwrap();
        assert_eq!(nat("iptables-save"), EMPTY);
    });
}

#[test]
fn the_second_interface_in_a_network_keeps_its_rules_when_the_first_goes() {
    for backend in ["iptables", "nftables"] {
        on_a_host(|| {
            let (first, second) =
                (request_on("mynet", "c0ffee01", "eth0"), request_on("mynet", "c0ffee01", "net1"));
            masquerade::set_up(&first, &nets(&["10.22.0.2/16"]), Some(backend)).unwrap();
            masquerade::set_up(&second, &nets(&["10.22.0.3/16"]), Some(backend)).unwrap();
            masquerade::tear_down(&first, &nets(&["10.22.0.2/16"])).unwrap();
            assert!(!nft().contains("10.22.0.2") && nft().contains("10.22.0.3"), "{}", nft());
            assert_eq!(nft().contains("counter masquerade"), backend == "iptables", "{}", nft());
            masquerade::tear_down(&second, &nets(&["10.22.0.3/16"])).unwrap();
            assert!(!nft().contains("10.22.0.3") && !nft().contains("CNI-"), "{}", nft());
        });
    }
}

#[test]
fn rules_are_found_also_when_the_network_has_another_name_now() {
    for backend in ["iptables", "nftables"] {
        on_a_host(|| {
            let old = request_on("old", "c0ffee01", "eth0");
            masquerade::set_up(&old, &nets(&["10.22.0.2/16"]), Some(backend)).unwrap();
            masquerade::tear_down(&request_on("new", "c0ffee01", "eth0"), &[]).unwrap();
            assert!(!nft().contains("10.22.0.2") && !nft().contains("CNI-"), "{}", nft());
        });
    }
}

#[test]
fn a_chain_that_nothing_leads_to_is_removed_by_its_name() {
    for program in ["iptables", "iptables-legacy"] {
        on_a_host(|| {
            sh(&format!("{program} -t nat -N CNI-7acf3bcf10978b059887025b"));
            masquerade::tear_down(&request("c0ffee01"), &[]).unwrap();
            assert_eq!(nat(&format!("{program}-save")), EMPTY);
        });
    }
}

#[test]
fn garbage_is_what_belongs_to_the_network_and_to_no_valid_attachment() {
    for backend in ["iptables", "nftables"] {
        on_a_host(|| {
            for (network, container, address) in [
                ("mynet", "gone", "10.22.0.2/16"),
                ("mynet", "valid", "10.22.0.3/16"),
                ("other", "gone", "10.22.0.4/16"),
            ] {
                let request = request_on(network, container, "eth0");
                masquerade::set_up(&request, &nets(&[address]), Some(backend)).unwrap();
            }
            masquerade::gc(&request("none"), &[valid()]).unwrap();
            let rules = nft();
            let are_left = ["10.22.0.2 ", "10.22.0.3 ", "10.22.0.4 "].map(|address| rules.contains(address));
            assert_eq!(are_left, [false, true, true], "{backend} {rules}");
        });
    }
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

const SPOOF_CHECK: &str = "table bridge nat {
	chain PREROUTING {
		type filter hook prerouting priority dstnat; policy accept;
		iifname \"veth0\" jump cni-br-iface-c0ffee01-eth0 comment \"macspoofchk-c0ffee01-eth0\"
	}

	chain cni-br-iface-c0ffee01-eth0 {
		jump cni-br-iface-c0ffee01-eth0-mac comment \"macspoofchk-c0ffee01-eth0\"
	}

	chain cni-br-iface-c0ffee01-eth0-mac {
		ether saddr 02:00:00:00:00:01 return comment \"macspoofchk-c0ffee01-eth0\"
		drop comment \"macspoofchk-c0ffee01-eth0\"
	}
}
";

const NO_SPOOF_CHECK: &str = "table bridge nat {
	chain PREROUTING {
		type filter hook prerouting priority dstnat; policy accept;
	}
}
";

#[test]
fn a_spoof_check_is_made_once_and_goes_with_its_chains() {
    on_a_host(|| {
        let request = request("c0ffee01");
        macspoof::tear_down(&request).unwrap();
        macspoof::set_up(&request, "veth0", mac(1)).unwrap();
        assert_eq!(nft(), SPOOF_CHECK);
        macspoof::set_up(&request, "veth0", mac(1)).unwrap();
        assert_eq!(nft(), SPOOF_CHECK);
        macspoof::tear_down(&request).unwrap();
        assert_eq!(nft(), NO_SPOOF_CHECK);
        macspoof::tear_down(&request).unwrap();
    });
}

#[test]
fn spoof_checks_of_this_network_are_collected_and_others_stay() {
    on_a_host(|| {
        macspoof::set_up(&request_on("other", "elsewhere", "eth0"), "veth2", mac(2)).unwrap();
        macspoof::set_up(&request("gone"), "veth3", mac(3)).unwrap();
        macspoof::set_up(&request("valid"), "veth4", mac(4)).unwrap();
        macspoof::gc(&request("none"), &[valid()]).unwrap();
        let rules = nft();
        let are_left = ["veth2", "veth3", "veth4"].map(|port| rules.contains(port));
        assert_eq!(are_left, [true, false, true], "{rules}");
        assert!(!rules.contains("gone"), "{rules}");
    });
}

#[test]
fn spoof_checks_that_share_a_chain_by_the_names_of_their_interfaces_are_collected_together() {
    on_a_host(|| {
        macspoof::set_up(&request_on("mynet", "gone", "eth0"), "veth1", mac(1)).unwrap();
        macspoof::set_up(&request_on("mynet", "gone", "eth0-mac"), "veth2", mac(2)).unwrap();
        macspoof::gc(&request("none"), &[valid()]).unwrap();
        assert_eq!(nft(), NO_SPOOF_CHECK);
    });
}

/// A bridge of Go's with masquerade and the check of hardware addresses.
fn go_bridge(backend: &str) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "mynet",
        "type": "bridge",
        "bridge": "mynet0",
        "isGateway": true,
        "ipMasq": true,
        "ipMasqBackend": backend,
        "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/16"}], [{"subnet": "fd00:22::/64"}]],
                 "dataDir": "/run/networks"},
    })
}

/// The bridges of Go that this machine has, each with the backends that it knows.
fn go_bridges() -> Vec<(Go, &'static str)> {
    let backends = |go: Go| match go {
        Go::Debian => vec![(go, "iptables")],
        Go::Newest => vec![(go, "iptables"), (go, "nftables")],
    };
    Go::present("bridge").into_iter().flat_map(backends).collect()
}

fn traces() -> Vec<String> {
    let all = nft();
    let names = ["c0ffee01", "10.22.0.2", "fd00:22::2", "CNI-"];
    all.lines().filter(|line| names.iter().any(|name| line.contains(name))).map(str::to_owned).collect()
}

#[test]
fn what_go_made_we_remove_with_and_without_addresses() {
    for (go, backend) in go_bridges() {
        for known in [&["10.22.0.2/16", "fd00:22::2/64"][..], &[]] {
            on_a_host(|| {
                sh("ip netns add pod1");
                go.call("bridge", "ADD", &go_bridge(backend)).unwrap();
                assert!(!traces().is_empty());
                masquerade::tear_down(&request("c0ffee01"), &nets(known)).unwrap();
                macspoof::tear_down(&request("c0ffee01")).unwrap();
                assert_eq!(traces(), Vec::<String>::new(), "{go:?} {backend}");
            });
        }
    }
}

#[test]
fn what_we_made_go_removes() {
    for (go, backend) in go_bridges() {
        on_a_host(|| {
            sh("ip netns add pod1");
            let mut config = go_bridge(backend);
            config["macspoofchk"] = false.into();
            config["ipMasq"] = false.into();
            let result = go.call("bridge", "ADD", &config).unwrap();
            let port = result["interfaces"][1]["name"].as_str().unwrap();
            let mac = result["interfaces"][2]["mac"].as_str().unwrap().parse().unwrap();
            let addresses = nets(&["10.22.0.2/16", "fd00:22::2/64"]);
            masquerade::set_up(&request("c0ffee01"), &addresses, Some(backend)).unwrap();
            macspoof::set_up(&request("c0ffee01"), port, mac).unwrap();
            assert!(!traces().is_empty());
            go.call("bridge", "DEL", &go_bridge(backend)).unwrap();
            assert_eq!(traces(), Vec::<String>::new(), "{go:?} {backend}");
        });
    }
}
