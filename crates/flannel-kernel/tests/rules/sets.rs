//! Sets of networks: as `nft` lists them, of any size, changed at once.

use flannel_kernel::firewall::nft::{Nft, Table, Transaction};
use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::Family;
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{RuleSet, System, TableId};
use ipnet::IpNet;

use crate::sandbox::sh;
use crate::{in_a_node, in_every_system, net, settle, spec};

#[test]
fn pods_keep_their_address_to_a_set_of_networks() {
    in_a_node(|| {
        let mut spec = spec(System::Nftables);
        spec.forward = false;
        spec.untracked = Default::default();
        spec.networks.v6 = None;
        spec.non_masquerade_cidrs =
            ["10.0.0.0/8", "172.16.0.0/12", "10.1.0.0/16", "192.168.0.0/16"].map(net).into();
        settle(&mut Rules::open(), &spec);
        let listed = sh("nft list table ip flannel-ipv4");
        let expected = "	set keep-source {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/8, 172.16.0.0/12,
			     192.168.0.0/16 }
	}
";
        assert!(listed.contains(expected), "{listed}");
        assert!(listed.contains("ip saddr 10.244.0.0/16 ip daddr @keep-source return\n"), "{listed}");
    });
}

#[test]
fn a_thousand_networks_come_change_and_go_in_one_transaction_each() {
    in_every_system(|system| {
        let mut rules = Rules::open();
        let mut spec = spec(system);
        // Networks with gaps between them, so that they stay as many.
        let v4 = (0..1000_u32).map(|n| format!("11.{}.{}.0/25", n / 256, n % 256));
        let v6 = (0..1000).map(|n| format!("2001:db8:{n:x}::/49"));
        spec.non_masquerade_cidrs = v4.chain(v6).map(|text| net(&text)).collect();
        settle(&mut rules, &spec);
        spec.non_masquerade_cidrs.truncate(3);
        assert!(settle(&mut rules, &spec) > 0);
        sh(match system {
            System::Nftables => "nft flush set ip flannel-ipv4 keep-source",
            System::IptablesNft => "iptables-nft -t nat -D FLANNEL-POSTRTG 5",
            System::IptablesLegacy => "iptables-legacy -t nat -D FLANNEL-POSTRTG 5",
        });
        assert_eq!(settle(&mut rules, &spec), 1, "{system}");
        spec.non_masquerade_cidrs.clear();
        settle(&mut rules, &spec);
        assert!(!sh("nft list ruleset").contains("keep-source"));
    });
}

#[test]
fn pods_may_keep_their_address_everywhere() {
    in_every_system(|system| {
        let mut rules = Rules::open();
        let mut spec = spec(system);
        spec.non_masquerade_cidrs = ["0.0.0.0/0", "::/0"].map(net).into();
        settle(&mut rules, &spec);
        assert_eq!(settle(&mut rules, &spec), 0, "{system}");
    });
}

fn id(family: Family) -> TableId {
    TableId { system: System::Nftables, family, name: "t".into() }
}

#[test]
fn sets_of_nft_are_read_back_whatever_is_in_them() {
    in_a_node(|| {
        sh("nft add table ip t
            nft 'add set ip t s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 11.0.0.0/8, 192.0.2.7, 192.0.2.9-192.0.2.12, 240.0.0.0/4 } }'
            nft 'add set ip t single { type ipv4_addr; elements = { 10.0.0.1 } }'
            nft add table ip6 t
            nft 'add set ip6 t s { type ipv6_addr; flags interval; elements = { fd00::/8, 2001:db8::1 } }'");
        let mut nft = Nft::open().unwrap();
        let mut read = |family| -> Vec<(String, Vec<String>)> {
            let table = nft.table(id(family), &[]).unwrap().unwrap();
            let words = |set: &Vec<IpNet>| set.iter().map(IpNet::to_string).collect();
            table.sets.iter().map(|set| (set.name.to_string(), words(&set.networks))).collect()
        };
        let texts = |name: &str, nets: &[&str]| {
            vec![(name.to_owned(), nets.iter().map(|net| (*net).to_owned()).collect())]
        };
        let v4 = [
            "10.0.0.0/8",
            "11.0.0.0/8",
            "192.0.2.7/32",
            "192.0.2.9/32",
            "192.0.2.10/31",
            "192.0.2.12/32",
            "240.0.0.0/4",
        ];
        assert_eq!(read(Family::V4), texts("s", &v4));
        assert_eq!(read(Family::V6), texts("s", &["2001:db8::1/128", "fd00::/8"]));
    });
}

#[test]
fn a_set_that_holds_every_address_is_one() {
    in_a_node(|| {
        sh("nft add table ip t");
        let table = Table::of(Family::V4, "t");
        let mut nft = Nft::open().unwrap();
        for networks in [vec![net("0.0.0.0/0")], vec![net("0.0.0.0/1"), net("255.255.255.255/32")], vec![]] {
            let mut transaction = Transaction::default();
            let set = RuleSet { name: "s".into(), networks: networks.clone() };
            transaction.push(table, Edit::PutSet(set));
            nft.commit(&transaction).unwrap();
            assert_eq!(nft.table(id(Family::V4), &[]).unwrap().unwrap().sets[0].networks, networks);
        }
    });
}
