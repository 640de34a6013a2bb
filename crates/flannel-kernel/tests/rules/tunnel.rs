//! Tunnel packets of our own are not tracked; everything else is.

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::rules::System;

use crate::sandbox::sh;
use crate::{SYSTEMS, in_a_node, settle, spec, until};

/// Two hosts with two tunnels between them, v4 and v6 below; counters of what arrives untracked and tracked.
fn wire() {
    sh("ip netns add far
        ip link add nic type veth peer name nic netns far
        ip addr add 192.0.2.1/24 dev nic && ip addr add fd00:1::1/64 dev nic nodad && ip link set nic up
        ip -n far addr add 192.0.2.2/24 dev nic && ip -n far addr add fd00:1::2/64 dev nic nodad && ip -n far link set nic up
        tunnel() { ip $1 link add $2 type vxlan id $3 dstport 8472 local $4 remote $5 && ip $1 link set $2 addrgenmode none && ip $1 addr add $6 dev $2 && ip $1 link set $2 up; }
        tunnel '' ours 1 192.0.2.1 192.0.2.2 10.0.1.1/24 && tunnel '-n far' ours 1 192.0.2.2 192.0.2.1 10.0.1.2/24
        tunnel '' other 2 192.0.2.1 192.0.2.2 10.0.2.1/24 && tunnel '-n far' other 2 192.0.2.2 192.0.2.1 10.0.2.2/24
        tunnel '' ours6 1 fd00:1::1 fd00:1::2 10.0.3.1/24 && tunnel '-n far' ours6 1 fd00:1::2 fd00:1::1 10.0.3.2/24
        nft add table inet witness
        nft add chain inet witness input '{ type filter hook input priority 0; }'
        nft add chain inet witness output '{ type filter hook output priority 0; }'
        for chain in input output; do
            nft add rule inet witness $chain udp dport 8472 ct state untracked counter
            nft add rule inet witness $chain udp dport 8472 ct state != untracked counter
        done");
}

/// How many tunnel packets came untracked and tracked, and how many went so, for some pings.
fn counted(address: &str) -> [u32; 4] {
    let packets = || -> Vec<u32> {
        let listed = sh("nft list table inet witness");
        let count = |line: &str| line.split("packets ").nth(1)?.split(' ').next()?.parse().ok();
        listed.lines().filter_map(count).collect()
    };
    let before = packets();
    sh(&format!("ping -q -c 3 -i 0.01 -W 5 {address}"));
    packets().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn packets_of_our_network_are_untracked_and_those_of_another_are_tracked() {
    for system in SYSTEMS {
        in_a_node(|| {
            wire();
            let mut rules = Rules::open();
            assert_eq!(rules.can_untrack(system, flannel_plan::family::Family::V4), Some(true), "{system}");
            settle(&mut rules, &spec(system));
            for address in ["10.0.1.2", "10.0.3.2"] {
                let ours = counted(address);
                assert!(ours[0] >= 3 && ours[1] == 0 && ours[2] >= 3 && ours[3] == 0, "{system}: {ours:?}");
            }
            let tracked = counted("10.0.2.2");
            assert!(tracked[1] >= 3 && tracked[3] >= 3, "{system}: {tracked:?}");
        });
    }
}

#[test]
fn a_host_says_whether_it_can_do_that_without_a_trace() {
    in_a_node(|| {
        let mut rules = Rules::open();
        for system in [System::Nftables, System::IptablesNft] {
            assert_eq!(rules.can_untrack(system, flannel_plan::family::Family::V6), Some(true));
        }
        assert!(!sh("nft list ruleset").contains("notrack"));
    });
}

#[test]
fn a_lock_that_another_program_holds_for_a_while_says_nothing_about_what_iptables_can() {
    in_a_node(|| {
        let mut holder = std::process::Command::new("flock")
            .args(["/run/xtables.lock", "sh", "-c", "touch /run/held; sleep 1"])
            .spawn()
            .unwrap();
        until("the lock is held", || std::path::Path::new("/run/held").exists());
        let can = Rules::open().can_untrack(System::IptablesLegacy, flannel_plan::family::Family::V4);
        holder.wait().unwrap();
        assert_eq!(can, Some(true));
    });
}
