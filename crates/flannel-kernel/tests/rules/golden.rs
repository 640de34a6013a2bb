//! What we make lists exactly as what Go flannel made, except for the two rules in which its nftables mode is wrong.

use std::fs;
use std::path::{Path, PathBuf};

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::spec::{PodNet, Spec};
use flannel_plan::rules::{SourcePorts, System};
use flannel_plan::subnet_env::SubnetEnv;

use crate::sandbox::sh;
use crate::{in_a_node, programs, settle, spec};

fn captured(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../flannel-plan/tests/golden/flanneld").join(case).join("w1")
}

/// What the operator wished for there.
fn wish_of(node: &Path, system: System) -> Spec {
    let env = SubnetEnv::parse(&fs::read_to_string(node.join("subnet.env")).unwrap()).unwrap();
    let pods = |family: Family| {
        let cluster = env.networks.get(family)?.first().copied()?;
        Some(PodNet { cluster, node: env.subnets.get(family)?.trunc() })
    };
    let networks = ByFamily { v4: pods(Family::V4), v6: pods(Family::V6) };
    let masquerade =
        if env.ip_masq { networks.map(|_, _| SourcePorts::Randomised) } else { ByFamily::default() };
    Spec { networks, masquerade, untracked: ByFamily::default(), ..spec(system) }
}

/// The lines of a captured `iptables-save`, tables sorted, as each flavour has its own order.
fn tables(text: &str) -> Vec<String> {
    let clean = |line: &str| match line.strip_prefix(':') {
        Some(chain) => format!(":{}", chain.split(' ').take(2).collect::<Vec<_>>().join(" ")),
        None => line.to_owned(),
    };
    let text: Vec<String> = text.lines().filter(|line| !line.starts_with('#')).map(clean).collect();
    let mut tables: Vec<String> =
        text.join("\n").split("COMMIT").map(|table| table.trim().to_owned()).collect();
    tables.retain(|table| !table.is_empty());
    tables.sort();
    tables
}

#[test]
fn iptables_lists_what_go_made_in_both_flavours_and_families() {
    for (case, system) in ["vxlan-dual", "vxlan-ipmasq", "host-gw", "v6only"]
        .iter()
        .flat_map(|case| [System::IptablesNft, System::IptablesLegacy].map(|system| (case, system)))
    {
        in_a_node(|| {
            let node = captured(case);
            settle(&mut Rules::open(), &wish_of(&node, system));
            for (program, file) in programs(system).iter().zip(["iptables.txt", "ip6tables.txt"]) {
                let theirs = fs::read_to_string(node.join(file)).unwrap_or_default();
                assert_eq!(tables(&sh(&format!("{program}-save"))), tables(&theirs), "{case} {system}");
            }
        });
    }
}

/// What Go should have written: the mark under its mask, and rule 4 as in iptables mode.
fn mended(listing: &str) -> String {
    let mend = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["meta", "mark", "0x00004000", "return"] => {
                line.replace("mark 0x00004000", "mark & 0x00004000 == 0x00004000")
            }
            [_, "saddr", "!=", pods, _, "daddr", cluster, "return"] => {
                line.replace(pods, "PODS").replace(cluster, pods).replace("PODS", cluster)
            }
            _ => line.to_owned(),
        }
    };
    listing.lines().map(mend).collect::<Vec<_>>().join("\n")
}

/// Go makes a table for a family that is not used, too.
fn without_empty_tables(listing: &str) -> String {
    let tables: Vec<&str> = listing.split_inclusive("\n}").collect();
    let used = tables.iter().filter(|table| table.contains("chain"));
    used.map(|table| table.trim()).collect::<Vec<_>>().join("\n")
}

#[test]
fn nft_lists_what_go_made_with_its_two_faults_mended() {
    for case in ["vxlan-dual-nft", "vxlan-ipmasq-nft"] {
        in_a_node(|| {
            let node = captured(case);
            settle(&mut Rules::open(), &wish_of(&node, System::Nftables));
            let theirs = mended(&fs::read_to_string(node.join("nft.txt")).unwrap());
            let ours = sh("nft list ruleset");
            assert_eq!(without_empty_tables(&ours), without_empty_tables(&theirs), "{case}");
        });
    }
}

#[test]
fn what_go_made_in_nftables_is_mended_in_one_transaction_and_read_back() {
    in_a_node(|| {
        let node = captured("vxlan-dual-nft");
        sh(&format!("nft -f {}", node.join("nft.txt").display()));
        let mut rules = Rules::open();
        assert_eq!(settle(&mut rules, &wish_of(&node, System::Nftables)), 2);
        let theirs = mended(&fs::read_to_string(node.join("nft.txt")).unwrap());
        assert_eq!(without_empty_tables(&sh("nft list ruleset")), without_empty_tables(&theirs));
    });
}

#[test]
fn what_go_made_in_iptables_is_adopted_without_a_change() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            let node = captured("vxlan-dual");
            for (program, file) in programs(system).iter().zip(["iptables.txt", "ip6tables.txt"]) {
                let text = fs::read_to_string(node.join(file)).unwrap();
                let own: Vec<&str> =
                    text.lines().filter(|line| !line.starts_with(':') || line.contains("FLANNEL")).collect();
                fs::write("/run/go", own.join("\n") + "\n").unwrap();
                sh(&format!("{program}-restore -n < /run/go"));
            }
            assert_eq!(settle(&mut Rules::open(), &wish_of(&node, system)), 0, "{system}");
        });
    }
}

#[test]
fn the_chains_that_keep_tunnel_packets_untracked_read_as_meant() {
    in_a_node(|| {
        let mut spec = spec(System::Nftables);
        (spec.forward, spec.masquerade) = (false, ByFamily::default());
        spec.untracked.v6 = None;
        settle(&mut Rules::open(), &spec);
        let expected = r#"table ip flannel-ipv4 {
	comment "rules for flannel-ipv4"
	chain notrack-in {
		comment "chain to keep arriving tunnel packets of flannel untracked"
		type filter hook prerouting priority raw; policy accept;
		udp dport 8472 fib daddr type local @th,64,64 & 0x8000000ffffffff == 0x800000000000100 notrack
	}

	chain notrack-out {
		comment "chain to keep sent tunnel packets of flannel untracked"
		type filter hook output priority raw; policy accept;
		udp dport 8472 @th,64,64 & 0x8000000ffffffff == 0x800000000000100 notrack
	}
}
"#;
        assert_eq!(sh("nft list ruleset"), expected);
    });
}
