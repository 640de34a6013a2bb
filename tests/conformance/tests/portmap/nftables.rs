//! The rules of nftables, one by one.

use conformance_tests::version::{COMMON, WITH_CHECK};
use conformance_tests::{Stage, scenarios};
use serde_json::{Value, json};

use super::{add, del, nft_rules, ports, result};

scenarios! { "portmap":
    COMMON =>
        a_container_has_rules_with_its_id,
        del_leaves_the_chains,
        a_second_add_makes_nothing_twice,
        conditions_stand_before_the_jump;
    WITH_CHECK => check_counts_what_belongs_to_the_container;
}

fn by_nftables(stage: &Stage, mappings: &[(u16, u16, &str)], keys: Value) -> Value {
    let mut config = ports(stage, mappings, keys);
    config["backend"] = "nftables".into();
    config
}

fn both(stage: &Stage) -> Value {
    let mut config =
        by_nftables(stage, &[(8080, 80, "tcp"), (8081, 81, "udp"), (8082, 82, "sctp")], json!({}));
    config["prevResult"] = result(stage, &["10.0.0.2/24", "fd00::2/64"]);
    config["runtimeConfig"]["portMappings"][1]["hostIP"] = "192.0.2.1".into();
    config
}

fn a_container_has_rules_with_its_id(stage: &Stage) {
    add(stage, &both(stage)).run().result();
    let expected = [
        "tcp dport 8080 dnat to 10.0.0.2:80 comment \"c0ffee01\"",
        "ip daddr 192.0.2.1 udp dport 8081 dnat to 10.0.0.2:81 comment \"c0ffee01\"",
        "sctp dport 8082 dnat to 10.0.0.2:82 comment \"c0ffee01\"",
        "ip saddr 10.0.0.2 ip daddr 10.0.0.2 masquerade comment \"c0ffee01\"",
        "ip saddr 127.0.0.1 ip daddr 10.0.0.2 masquerade comment \"c0ffee01\"",
        "tcp dport 8080 dnat to [fd00::2]:80 comment \"c0ffee01\"",
        "sctp dport 8082 dnat to [fd00::2]:82 comment \"c0ffee01\"",
        "ip6 saddr fd00::2 ip6 daddr fd00::2 masquerade comment \"c0ffee01\"",
    ];
    assert_eq!(nft_rules(stage), expected);
    for table in ["ip cni_hostport", "ip6 cni_hostport"] {
        for chain in ["prerouting", "output"] {
            assert_eq!(stage.site.nft_chain(table, chain), ["fib daddr type local jump hostports_all"]);
        }
        let expected = ["jump hostip_hostports", "jump hostports"];
        assert_eq!(stage.site.nft_chain(table, "hostports_all"), expected);
    }
}

fn del_leaves_the_chains(stage: &Stage) {
    add(stage, &both(stage)).container("other").run().result();
    let before = stage.site.nft();
    add(stage, &both(stage)).run().result();
    del(stage, &both(stage)).run().nothing();
    assert_eq!(stage.site.nft(), before);
    del(stage, &both(stage)).container("other").run().nothing();
    assert_eq!(nft_rules(stage), [""; 0]);
    assert_eq!(
        stage.site.nft_chain("ip cni_hostport", "prerouting"),
        ["fib daddr type local jump hostports_all"]
    );
}

fn a_second_add_makes_nothing_twice(stage: &Stage) {
    add(stage, &both(stage)).run().result();
    let before = stage.site.nft();
    add(stage, &both(stage)).run().result();
    assert_eq!(stage.site.nft(), before);
}

fn conditions_stand_before_the_jump(stage: &Stage) {
    let keys = json!({"conditionsV4": ["ip", "daddr", "!=", "192.0.2.0/24"]});
    add(stage, &by_nftables(stage, &[(8080, 80, "tcp")], keys)).run().result();
    let expected = ["ip daddr != 192.0.2.0/24 fib daddr type local jump hostports_all"];
    assert_eq!(stage.site.nft_chain("ip cni_hostport", "prerouting"), expected);
}

fn check_counts_what_belongs_to_the_container(stage: &Stage) {
    let config =
        |snat: bool| by_nftables(stage, &[(8080, 80, "tcp"), (8081, 81, "udp")], json!({"snat": snat}));
    let check = |snat| stage.call("CHECK", "portmap", &config(snat)).run();
    check(false).error();
    add(stage, &config(false)).run().result();
    check(false).nothing();
    check(true).error();
    add(stage, &config(true)).run().result();
    check(true).nothing();
    del(stage, &config(true)).run().nothing();
    check(false).error();
}
