//! The rules of iptables, one by one.

use conformance_tests::version::{COMMON, WITH_CHECK};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, ports, result, rules};

scenarios! { "portmap":
    COMMON =>
        a_container_has_a_chain_of_its_name,
        ports_are_entered_fifteen_at_a_time,
        an_address_of_the_other_family_is_left_out,
        marks_are_set_and_masqueraded_by_shared_chains,
        del_leaves_the_shared_chains_and_other_containers,
        without_snat_no_mark_is_set,
        a_second_add_makes_nothing_twice;
    WITH_CHECK => check_sees_a_rule_that_is_gone;
}

/// The id of upstream's tests, which is as long as an id gets.
const LONG: &str = "icee6giejonei6sohng6ahngee7laquohquee9shiGo7fohferakah3Feiyoolu2pei7ciPhoh7shaoX6vai3vuf0ahfaeng8yohb9ceu0daez5hashee8ooYai5wa3y";

fn by_iptables(stage: &Stage, mappings: &[(u16, u16, &str)], keys: Value) -> Value {
    let mut config = ports(stage, mappings, keys);
    config["backend"] = "iptables".into();
    config
}

fn a_container_has_a_chain_of_its_name(stage: &Stage) {
    stage.site.pod("pod1");
    let mut config = by_iptables(
        stage,
        &[(8080, 80, "tcp"), (8081, 80, "tcp"), (8080, 81, "udp"), (8082, 82, "udp")],
        json!({}),
    );
    config["name"] = "test".into();
    config["prevResult"] = result(stage, &["10.0.0.2/24", "2001:db8::2/64"]);
    add(stage, &config).container(LONG).run().result();
    let chain = "CNI-DN-67e92b96e692a494b6b85";
    for family in [4, 6] {
        assert!(
            stage.site.nat_chains(family).contains(&chain.to_owned()),
            "{:?}",
            stage.site.nat_chains(family)
        );
        let entries = stage.site.nat_chain(family, "CNI-HOSTPORT-DNAT");
        let comment = format!(r#"-m comment --comment "dnat name: \"test\" id: \"{LONG}\"""#);
        let expected = [("tcp", "8080,8081"), ("udp", "8080,8082")].map(|(protocol, ports)| {
            format!("-p {protocol} {comment} -m multiport --dports {ports} -j {chain}")
        });
        assert_eq!(entries, expected);
    }
    let rules = stage.site.nat_chain(4, chain);
    let expected = [
        "-s 10.0.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
        "-s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
        "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80",
    ];
    assert_eq!(rules[..3], expected);
    assert_eq!(rules.len(), 12);
    let rules = stage.site.nat_chain(6, chain);
    let expected = [
        "-s 2001:db8::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK",
        "-p tcp -m tcp --dport 8080 -j DNAT --to-destination [2001:db8::2]:80",
    ];
    assert_eq!((&rules[..2], rules.len()), (&expected.map(str::to_owned)[..], 8));
}

fn ports_are_entered_fifteen_at_a_time(stage: &Stage) {
    let mappings: Vec<_> = (0..17).map(|number| (8000 + number, 80 + number, "tcp")).collect();
    add(stage, &by_iptables(stage, &mappings, json!({}))).run().result();
    let entries = stage.site.nat_chain(4, "CNI-HOSTPORT-DNAT");
    let counts: Vec<_> = entries.iter().map(|entry| entry.matches(",").count() + 1).collect();
    assert_eq!(counts, [15, 2], "{entries:?}");
    del(stage, &by_iptables(stage, &mappings, json!({}))).run().nothing();
    assert_eq!(rules(stage), [""; 0]);
}

fn an_address_of_the_other_family_is_left_out(stage: &Stage) {
    let mut config =
        by_iptables(stage, &[(8080, 80, "tcp"), (8081, 81, "tcp"), (8082, 82, "tcp")], json!({}));
    config["prevResult"] = result(stage, &["10.0.0.2/24", "fd00::2/64"]);
    let mappings = &mut config["runtimeConfig"]["portMappings"];
    mappings[0]["hostIP"] = "192.0.2.1".into();
    mappings[1]["hostIP"] = "::".into();
    mappings[2]["hostIP"] = "0.0.0.0".into();
    add(stage, &config).run().result();
    let targets = |family| {
        let rules = stage.site.iptables(family);
        let targets = rules.iter().filter(|rule| rule.contains("-j DNAT"));
        targets
            .map(|rule| {
                rule.split_once(" -p tcp").unwrap().0[3..].to_owned() + rule.rsplit(' ').next().unwrap()
            })
            .collect::<Vec<_>>()
    };
    let chain = "CNI-DN-7acf3bcf10978b0598870";
    assert_eq!(targets(4), [format!("{chain} -d 192.0.2.1/3210.0.0.2:80"), format!("{chain}10.0.0.2:82")]);
    assert_eq!(targets(6), [format!("{chain}[fd00::2]:81")]);
}

fn marks_are_set_and_masqueraded_by_shared_chains(stage: &Stage) {
    stage.site.sh("iptables -t nat -A POSTROUTING -s 192.0.2.7 -j ACCEPT");
    add(stage, &by_iptables(stage, &[(8080, 80, "tcp")], json!({"markMasqBit": 5}))).run().result();
    let mark = "-m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x20/0x20";
    assert_eq!(stage.site.nat_chain(4, "CNI-HOSTPORT-SETMARK"), [mark]);
    assert_eq!(stage.site.nat_chain(4, "CNI-HOSTPORT-MASQ"), ["-m mark --mark 0x20/0x20 -j MASQUERADE"]);
    let first = "-m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ";
    assert_eq!(
        stage.site.nat_chain(4, "POSTROUTING"),
        [first, "-s 192.0.2.7/32 -j ACCEPT"],
        "ours comes first"
    );
    for chain in ["PREROUTING", "OUTPUT"] {
        assert_eq!(stage.site.nat_chain(4, chain), ["-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"]);
    }
}

fn del_leaves_the_shared_chains_and_other_containers(stage: &Stage) {
    let (one, two) = (
        by_iptables(stage, &[(8080, 80, "tcp")], json!({})),
        by_iptables(stage, &[(8081, 81, "udp")], json!({})),
    );
    add(stage, &one).container("one").run().result();
    let before = stage.site.iptables(4);
    add(stage, &two).container("two").run().result();
    del(stage, &two).container("two").run().nothing();
    assert_eq!(stage.site.iptables(4), before);
    del(stage, &two).container("two").run().nothing();
    del(stage, &one).container("one").run().nothing();
    assert_eq!(stage.site.nat_chains(4), ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"]);
}

fn without_snat_no_mark_is_set(stage: &Stage) {
    stage.site.pod("pod1");
    add(stage, &by_iptables(stage, &[(8080, 80, "tcp")], json!({"snat": false}))).run().result();
    let chain = "CNI-DN-7acf3bcf10978b0598870";
    assert_eq!(
        stage.site.nat_chain(4, chain),
        ["-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.22.0.2:80"]
    );
    assert_eq!(stage.site.nat_chains(4), [chain, "CNI-HOSTPORT-DNAT"]);
}

fn a_second_add_makes_nothing_twice(stage: &Stage) {
    let config = by_iptables(stage, &[(8080, 80, "tcp"), (8081, 81, "udp")], json!({}));
    add(stage, &config).run().result();
    let before = stage.site.iptables(4);
    add(stage, &config).run().result();
    assert_eq!(stage.site.iptables(4), before);
}

fn check_sees_a_rule_that_is_gone(stage: &Stage) {
    let config = by_iptables(stage, &[(8080, 80, "tcp")], json!({}));
    let check = || stage.call("CHECK", "portmap", &config).run();
    check().error();
    add(stage, &config).run().result();
    check().nothing();
    stage.site.sh("iptables -t nat -D CNI-DN-7acf3bcf10978b0598870 3");
    check().error();
    add(stage, &config).run().result();
    check().nothing();
    stage.site.sh("iptables -t nat -F CNI-HOSTPORT-DNAT");
    check().error();
    del(stage, &config).run().nothing();
    check().error();
}
