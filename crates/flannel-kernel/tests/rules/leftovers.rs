//! What other modes, other daemons and Go flannel leave behind goes, and only that.

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::ByFamily;
use flannel_plan::rules::System;
use flannel_plan::rules::observed::observed;
use flannel_plan::rules::spec::{PodNet, Spec, Tunnel, desired};

use crate::sandbox::sh;
use crate::{
    SYSTEMS, in_a_node, in_every_system, listing, net, nothing, observe, programs, scope, settle, spec,
};

#[test]
fn every_switch_between_systems_leaves_nothing_of_the_old_one() {
    for old in SYSTEMS {
        for new in SYSTEMS.into_iter().filter(|new| *new != old) {
            in_a_node(|| {
                let mut rules = Rules::open();
                settle(&mut rules, &spec(old));
                settle(&mut rules, &spec(new));
                let left = match old {
                    System::Nftables => vec![sh("nft list tables").replace("flannel", "OLD")],
                    _ => listing(old),
                };
                assert!(
                    left.iter().all(|line| !line.contains("FLANNEL") && !line.contains("OLD")),
                    "{left:?}"
                );
                assert_eq!(settle(&mut Rules::open(), &spec(new)), 0, "{old} to {new}");
            });
        }
    }
}

/// What Go flannel leaves in iptables when it is told to use nftables.
fn half_cleaned(iptables: &str) -> String {
    format!(
        "{iptables} -t nat -N FLANNEL-POSTRTG
         {iptables} -t nat -A POSTROUTING -m comment --comment 'flanneld masq' -j FLANNEL-POSTRTG
         {iptables} -t filter -N FLANNEL-FWD
         {iptables} -t filter -A FORWARD -m comment --comment 'flanneld forward' -j FLANNEL-FWD
         {iptables} -t filter -A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment 'flanneld forward' -j ACCEPT
         {iptables} -t filter -A FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment 'flanneld forward' -j ACCEPT"
    )
}

#[test]
fn what_go_forgets_when_it_cleans_up_is_removed_in_both_flavours() {
    for flavour in [System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            sh(&half_cleaned(programs(flavour)[0]));
            settle(&mut Rules::open(), &spec(System::Nftables));
            let left = listing(flavour);
            assert!(left.iter().all(|line| !line.contains("FLANNEL")), "{left:?}");
        });
    }
}

#[test]
fn leftovers_of_the_flavour_of_nftables_go_without_its_programs() {
    in_a_node(|| {
        sh(&half_cleaned("iptables-nft"));
        sh("mount -t tmpfs none /usr/sbin");
        let mut rules = Rules::open();
        settle(&mut rules, &nothing(System::Nftables));
        sh("umount /usr/sbin");
        let left = listing(System::IptablesNft);
        assert!(left.iter().all(|line| !line.contains("FLANNEL")), "{left:?}");
    });
}

#[test]
fn a_chain_of_ours_that_somebody_else_uses_stays_empty() {
    in_a_node(|| {
        sh(&half_cleaned("iptables-nft"));
        sh("iptables-nft -t filter -N MINE && iptables-nft -t filter -A MINE -j FLANNEL-FWD");
        settle(&mut Rules::open(), &nothing(System::Nftables));
        let filter = sh("iptables-nft-save -t filter");
        let left: Vec<&str> = filter.lines().filter(|line| line.contains("FLANNEL")).collect();
        assert!(left.contains(&"-A MINE -j FLANNEL-FWD") && !filter.contains("10.244.0.0/16"), "{filter}");
    });
}

#[test]
fn looking_for_leftovers_makes_no_tables() {
    in_a_node(|| {
        settle(&mut Rules::open(), &nothing(System::Nftables));
        assert_eq!(sh("nft list tables; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names"), "");
    });
}

fn second(system: System) -> Spec {
    let pods = PodNet { cluster: net("10.99.0.0/16"), node: net("10.99.7.0/24") };
    Spec {
        instance: "/run/flannel/blue.env".into(),
        networks: ByFamily { v4: Some(pods), v6: None },
        untracked: ByFamily { v4: Some(Tunnel { port: 8473, vni: 7 }), v6: None },
        non_masquerade_cidrs: vec![net("203.0.113.0/24")],
        ..spec(system)
    }
}

#[test]
fn two_daemons_share_the_chains_and_either_may_leave() {
    in_every_system(|system| {
        let (first, second) = (spec(system), second(system));
        let (mut one, mut two) = (Rules::open(), Rules::open());
        settle(&mut one, &first);
        settle(&mut two, &second);
        assert_eq!(settle(&mut one, &first), 0, "{system}");
        settle(&mut one, &nothing(system));
        let left = observe(&mut two, system);
        assert_eq!(observed(&scope(&second), &left.tables), desired(&second), "{system}");
        let off = Spec {
            forward: false,
            masquerade: ByFamily::default(),
            untracked: ByFamily::default(),
            ..second
        };
        settle(&mut two, &off);
        assert!(listing(system).iter().all(|line| !line.to_lowercase().contains("flannel")), "{system}");
    });
}
