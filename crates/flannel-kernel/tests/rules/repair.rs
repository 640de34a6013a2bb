//! What others do to our rules is seen and put right, and theirs stay.

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::rules::spec::desired;
use flannel_plan::rules::tools::Program;
use flannel_plan::rules::{SourcePorts, System, changes};

use crate::sandbox::sh;
use crate::{due, in_a_node, in_every_system, listing, nothing, observe, programs, scope, settle, spec};

/// What somebody may do, in each language: to the chain of masquerade, or to all.
fn harms(system: System) -> Vec<&'static str> {
    match system {
        System::Nftables => vec![
            "nft flush ruleset",
            "nft flush chain ip flannel-ipv4 postrtg",
            "nft delete table ip6 flannel-ipv6",
            "nft insert rule ip flannel-ipv4 postrtg return",
            "nft add rule ip flannel-ipv4 forward ip saddr 10.244.0.0/16 accept",
            "nft delete rule ip flannel-ipv4 postrtg handle $(nft -a list chain ip flannel-ipv4 postrtg | grep masquerade | grep -o 'handle [0-9]*' | head -1 | cut -d' ' -f2)",
            "nft delete chain ip flannel-ipv4 forward",
            "nft delete chain ip flannel-ipv4 forward; nft add chain ip flannel-ipv4 forward",
            "nft chain ip flannel-ipv4 forward '{ policy drop; }'",
            "nft add table ip flannel-ipv4 '{ flags dormant; }'",
        ],
        _ => vec![
            "IPTABLES -t nat -F",
            "IPTABLES -t nat -F FLANNEL-POSTRTG",
            "IPTABLES -t nat -F && IPTABLES -t nat -X",
            "IPTABLES -t filter -F FORWARD",
            "IPTABLES -t nat -I FLANNEL-POSTRTG -j RETURN",
            "IPTABLES -t nat -D FLANNEL-POSTRTG 2",
            "IPTABLES -t nat -D FLANNEL-POSTRTG 1; IPTABLES -t nat -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment 'flanneld masq' -j RETURN",
            "IPTABLES -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment 'flanneld masq' -j MASQUERADE --random-fully",
            "IPTABLES -t nat -A POSTROUTING -m comment --comment 'flanneld masq' -j FLANNEL-POSTRTG",
            "IPTABLES -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment 'flanneld masq' -j MASQUERADE",
            "IPTABLES -t nat -R FLANNEL-POSTRTG 5 -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment 'flanneld masq' -j RETURN",
            "IPTABLES -t raw -F && IPTABLES -t raw -X",
        ],
    }
}

#[test]
fn every_harm_is_seen_and_one_pass_puts_it_right() {
    in_every_system(|system| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(system));
        for harm in harms(system) {
            sh(&harm.replace("IPTABLES", programs(system)[0]));
            assert!(settle(&mut rules, &spec(system)) > 0, "{system}: {harm}");
            assert_eq!(settle(&mut rules, &spec(system)), 0, "{system}: {harm}");
        }
    });
}

#[test]
fn a_restart_finds_nothing_to_do() {
    in_every_system(|system| {
        settle(&mut Rules::open(), &spec(system));
        let before = listing(system);
        assert_eq!(settle(&mut Rules::open(), &spec(system)), 0);
        assert_eq!(listing(system), before);
    });
}

#[test]
fn rules_of_others_stay_in_their_order_behind_ours() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            let iptables = programs(system)[0];
            let mut rules = Rules::open();
            sh(&format!(
                "{iptables} -t nat -A POSTROUTING -s 192.0.2.1 -j ACCEPT
                 {iptables} -t nat -N THEIRS
                 {iptables} -t nat -A POSTROUTING -j THEIRS"
            ));
            settle(&mut rules, &spec(system));
            sh(&format!(
                "{iptables} -t nat -A POSTROUTING -s 192.0.2.2 -p tcp -m multiport --dports 1,2 -j MASQUERADE
                 {iptables} -t nat -I FLANNEL-POSTRTG -s 192.0.2.3 -j ACCEPT
                 {iptables} -t nat -I FLANNEL-POSTRTG 4 -s 192.0.2.4 -j ACCEPT
                 {iptables} -t nat -A FLANNEL-POSTRTG -s 192.0.2.5 -j ACCEPT"
            ));
            assert_eq!(settle(&mut rules, &spec(system)), 1);
            let nat = sh(&format!("{iptables}-save -t nat"));
            let theirs: Vec<&str> =
                nat.lines().filter(|line| line.starts_with("-A") && !line.contains("flanneld")).collect();
            assert_eq!(
                theirs,
                [
                    "-A POSTROUTING -s 192.0.2.1/32 -j ACCEPT",
                    "-A POSTROUTING -j THEIRS",
                    "-A POSTROUTING -s 192.0.2.2/32 -p tcp -m multiport --dports 1,2 -j MASQUERADE",
                    "-A FLANNEL-POSTRTG -s 192.0.2.3/32 -j ACCEPT",
                    "-A FLANNEL-POSTRTG -s 192.0.2.4/32 -j ACCEPT",
                    "-A FLANNEL-POSTRTG -s 192.0.2.5/32 -j ACCEPT",
                ]
            );
            settle(&mut rules, &nothing(system));
            let left = sh(&format!("{iptables}-save -t nat"));
            let left: Vec<&str> = left.lines().filter(|line| line.starts_with("-A")).collect();
            let jump = r#"-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG"#;
            assert_eq!(left, [&theirs[..2], &[jump], &theirs[2..]].concat());
        });
    }
}

#[test]
fn rules_of_others_in_our_table_of_nftables_stay_too() {
    in_a_node(|| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(System::Nftables));
        sh("nft insert rule ip flannel-ipv4 postrtg ip saddr 192.0.2.3 counter accept
            nft add rule ip flannel-ipv4 postrtg ip saddr 192.0.2.5 log prefix '\"x\"' accept
            nft add chain ip flannel-ipv4 theirs");
        assert_eq!(settle(&mut rules, &spec(System::Nftables)), 1);
        settle(&mut rules, &nothing(System::Nftables));
        let expected = r#"table ip flannel-ipv4 {
	comment "rules for flannel-ipv4"
	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 192.0.2.3 counter packets 0 bytes 0 accept
		ip saddr 192.0.2.5 log prefix "x" accept
	}

	chain theirs {
	}
}
"#;
        assert_eq!(sh("nft list ruleset"), expected);
    });
}

#[test]
fn switched_off_everything_is_gone() {
    in_every_system(|system| {
        let mut rules = Rules::open();
        settle(&mut rules, &spec(system));
        settle(&mut rules, &nothing(system));
        let left = listing(system);
        assert!(left.iter().all(|line| !line.to_lowercase().contains("flannel")), "{left:?}");
        assert!(system != System::Nftables || left.is_empty());
    });
}

#[test]
fn a_table_of_ours_with_an_object_of_a_stranger_stays_when_we_go() {
    in_a_node(|| {
        let mut rules = Rules::open();
        for object in [
            "counter theirs",
            "map portals { type ipv4_addr : verdict; }",
            "chain empty",
            "set ports { type inet_service; }",
        ] {
            settle(&mut rules, &spec(System::Nftables));
            sh(&format!("nft 'add {}'", object.replacen(' ', " ip flannel-ipv4 ", 1)));
            settle(&mut rules, &nothing(System::Nftables));
            let left = sh("nft list ruleset");
            let name = object.split(" {").next().unwrap();
            assert!(left.contains(name) && !left.contains("postrtg"), "{object}: {left}");
            assert_eq!(due(&mut rules, &nothing(System::Nftables)), []);
            sh("nft flush ruleset");
        }
    });
}

#[test]
fn a_table_that_iptables_cannot_read_is_said_and_left_alone_and_the_others_are_kept() {
    in_a_node(|| {
        let mut rules = Rules::open();
        let spec = spec(System::IptablesNft);
        settle(&mut rules, &spec);
        sh("nft insert rule ip nat FLANNEL-POSTRTG ip daddr 10.0.0.1-10.0.0.9 fib saddr type local accept
            iptables-nft -t filter -F FLANNEL-FWD");
        let observation = rules.observe(System::IptablesNft);
        let [unreadable] = &observation.unreadable[..] else { panic!("{:?}", observation.unreadable) };
        assert!(
            unreadable.why.contains("cannot read its table ip nat")
                && unreadable.why.contains("EnableNFTables")
        );
        let due = changes(&scope(&spec), &desired(&spec), &observation);
        let tables: Vec<String> = due.iter().map(|change| change.key().to_string()).collect();
        assert_eq!(tables, ["rules iptables filter"]);
        assert!(rules.apply(&scope(&spec), &due).is_empty());
        assert_eq!(changes(&scope(&spec), &desired(&spec), &rules.observe(System::IptablesNft)), []);
    });
}

#[test]
fn while_nothing_of_ours_changes_no_program_is_run() {
    for system in [System::IptablesNft, System::IptablesLegacy] {
        in_a_node(|| {
            let mut rules = Rules::open();
            settle(&mut rules, &spec(system));
            observe(&mut rules, system);
            // Without programs a look that needs one fails.
            sh("mount -t tmpfs none /usr/sbin");
            assert_eq!(due(&mut rules, &spec(system)), []);
            sh("umount /usr/sbin");
            let iptables = programs(system)[0];
            sh(&format!(
                "{iptables} -t nat -N OTHER; {iptables} -t nat -A POSTROUTING -s 192.0.2.1 -j OTHER"
            ));
            if system == System::IptablesNft {
                sh("mount -t tmpfs none /usr/sbin");
            }
            assert_eq!(due(&mut rules, &spec(system)), []);
        });
    }
}

#[test]
fn what_a_host_can_do_is_found_out_without_a_trace() {
    in_a_node(|| {
        let mut rules = Rules::open();
        let tools = rules.tools(&Family::BOTH);
        assert_eq!(tools.nftables, Some(SourcePorts::Randomised));
        let program = Program { system: System::IptablesNft, source_ports: SourcePorts::Randomised };
        assert_eq!(tools.iptables, ByFamily { v4: Some(program), v6: Some(program) });
        assert_eq!(sh("nft list ruleset"), "");
    });
}
