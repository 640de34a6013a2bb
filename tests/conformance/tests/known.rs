//! What Go's plugins do otherwise, with the reason: the scenarios that are asserted on ours only.

use conformance_tests::Known;
use conformance_tests::scenario::Others::{self, Go, GoSometimes, NewGo, OldGo, Ours};

const fn known(on: Others, scenario: &'static str, why: &'static str) -> Known {
    Known { on, scenario, why }
}

/// One table for all.
pub const KNOWN: &[Known] = &[
    known(OldGo, "skeleton::the_hosts_own_namespace_is_refused", "came with CNI 1.1.0"),
    known(
        Go,
        "skeleton::the_hosts_own_namespace_is_refused_before_anything_is_done",
        "looks after the work is done: the host's lo is down, the address is taken",
    ),
    known(OldGo, "skeleton::results_have_the_form_of_their_version", "writes an empty dns in 1.0.0, too"),
    known(
        Go,
        "loopback::the_result_has_the_form_of_its_version",
        "prints the form of 1.0.0 under every version",
    ),
    known(
        Go,
        "loopback::del_of_a_namespace_that_left_a_file_succeeds",
        "takes the file for an unknown file system",
    ),
    known(OldGo, "host_local::store::files_are_readable_by_their_owner_only", "writes files of mode 0644"),
    known(
        Go,
        "host_local::store::an_empty_entry_is_free",
        "an entry that a crash left empty belongs to nobody for ever",
    ),
    known(
        Go,
        "host_local::store::a_refused_add_keeps_what_the_container_had",
        "releases every address of the container, also older ones",
    ),
    known(
        Go,
        "host_local::addresses::a_container_that_asks_twice_is_refused",
        "does not look for an older address when one is asked for by name",
    ),
    known(Go, "host_local::garbage::garbage_collection_frees_what_belongs_to_nobody", NO_GC),
    known(Go, "host_local::garbage::garbage_collection_with_an_empty_list_frees_all", NO_GC),
    known(Go, "host_local::garbage::an_entry_without_interface_stays_while_its_container_does", NO_GC),
    known(Go, "host_local::garbage::status_of_a_full_network_is_not_available", NO_STATUS),
    known(
        Go,
        "host_local::store::addresses_of_before_a_reboot_are_free",
        "keeps them until somebody removes the files",
    ),
    known(
        Go,
        "host_local::store::an_address_that_nobody_uses_is_given_when_there_is_no_other",
        "never looks whether a container lives",
    ),
    known(
        Go,
        "bridge::life::a_route_may_have_an_mtu_and_a_priority",
        "takes mtu and advmss, and does not set them",
    ),
    known(
        GoSometimes,
        "bridge::vlan::every_subnet_has_its_gateway_inside_a_vlan",
        "its bridge takes the lowest MAC of its ports, so that CHECK may find another one than ADD told",
    ),
    known(
        GoSometimes,
        "bridge::life::the_gateway_of_ipv6_waits_for_no_probes",
        "the bridge looks for doubles of its address for a second or two",
    ),
    known(
        OldGo,
        "bridge::life::dns_of_ipam_is_handed_on",
        "an empty dns of the network replaces that of IPAM",
    ),
    known(
        OldGo,
        "bridge::life::a_pod_announces_its_address_and_waits_for_no_probes",
        "sends the announcement itself",
    ),
    known(Go, "bridge::life::a_failed_add_leaves_nothing_behind", "leaves the veth pair for a DEL"),
    known(Ours, "bridge::address::another_address_of_ipv4_is_refused", OLD_GATEWAY),
    known(Ours, "bridge::address::an_overlapping_address_of_ipv6_is_refused", OLD_GATEWAY),
    known(Go, "bridge::address::an_old_gateway_gives_way_when_no_pod_uses_it", NEW_SUBNET),
    known(Go, "bridge::address::an_old_gateway_stays_beside_the_new_while_pods_use_it", NEW_SUBNET),
    known(
        Go,
        "bridge::address::a_mac_in_args_is_not_held_against_ipam",
        "host-local refuses the MAC as an unknown argument",
    ),
    known(
        Go,
        "bridge::address::a_default_route_of_ipam_is_made_once",
        "adds the default route a second time, which fails",
    ),
    known(OldGo, "bridge::config::a_pods_end_that_stays_down_gets_no_address", YOUNGER),
    known(OldGo, "bridge::config::a_pods_end_can_stay_down", YOUNGER),
    known(OldGo, "bridge::config::isolation_is_written_to_the_port", YOUNGER),
    known(OldGo, "bridge::config::a_trunk_must_be_one", YOUNGER),
    known(OldGo, "bridge::vlan::a_trunk_carries_its_vlans_with_their_tags", YOUNGER),
    known(OldGo, "bridge::vlan::a_trunk_may_have_a_vlan_without_tag", YOUNGER),
    known(OldGo, "bridge::vlan::a_trunk_of_nothing_makes_a_bridge_that_knows_vlans", YOUNGER),
    known(
        Go,
        "bridge::vlan::a_vlan_without_tag_may_be_in_the_trunk_too",
        "tells the VLAN again as one with a tag, and frames without a tag have none any more",
    ),
    known(Go, "bridge::vlan::an_old_gateway_inside_a_vlan_gives_way_when_no_pod_uses_it", NEW_SUBNET),
    known(
        Go,
        "bridge::check::check_of_a_pod_without_addresses_succeeds",
        "asks for an IPAM plugin without a name",
    ),
    known(OldGo, "bridge::masquerade::nftables_has_a_rule_for_each_address", YOUNGER),
    known(OldGo, "bridge::masquerade::a_backend_of_another_name_is_refused", YOUNGER),
    known(
        Go,
        "bridge::masquerade::several_addresses_of_a_family_share_a_chain",
        "the second ACCEPT comes after MASQUERADE, and DEL fails",
    ),
    known(
        Go,
        "bridge::masquerade::two_interfaces_of_a_pod_do_not_take_each_others_rules",
        "the chain is the container's, and DEL of one interface empties it",
    ),
    known(Go, "bridge::masquerade::garbage_collection_frees_rules_and_addresses", NO_GC),
    known(Go, "bridge::masquerade::status_is_that_of_ipam", NO_STATUS),
    known(
        Go,
        "bridge::loss::a_namespace_that_left_a_file_costs_no_address",
        "takes the file for an unknown file system, and keeps the address",
    ),
    known(Go, "bridge::loss::a_device_that_is_gone_costs_no_address", BY_ADDRESS),
    known(Go, "bridge::loss::a_namespace_that_is_gone_leaves_no_masquerade", BY_ADDRESS),
    known(Go, "bridge::loss::a_namespace_that_is_gone_leaves_no_check_of_macs", BY_ADDRESS),
    known(Go, "bridge::loss::a_namespace_that_nobody_names_leaves_no_rule", BY_ADDRESS),
    known(
        Go,
        "bridge::loss::an_ipam_that_fails_does_not_keep_rules_and_devices",
        "stops at the first failure",
    ),
    known(OldGo, "portmap::config::a_backend_of_another_name_is_refused", YOUNGER),
    known(OldGo, "portmap::config::conditions_of_the_other_backend_are_refused", YOUNGER),
    known(
        OldGo,
        "portmap::iptables::check_sees_a_rule_that_is_gone",
        "looks for rules of IPv6 in a pod of IPv4",
    ),
    known(OldGo, "portmap::nftables::a_container_has_rules_with_its_id", YOUNGER),
    known(OldGo, "portmap::nftables::del_leaves_the_chains", YOUNGER),
    known(OldGo, "portmap::nftables::conditions_stand_before_the_jump", YOUNGER),
    known(OldGo, "portmap::nftables::check_counts_what_belongs_to_the_container", YOUNGER),
    known(NewGo, "portmap::nftables::a_second_add_makes_nothing_twice", "adds every rule again"),
    known(
        Go,
        "portmap::life::del_without_mappings_frees_the_rules",
        "does nothing without them: the rules lead to a pod that is gone",
    ),
    known(NewGo, "portmap::life::del_after_a_change_of_backend_frees_the_rules", "looks at one backend only"),
    known(
        Go,
        "portmap::life::del_after_the_network_was_renamed_frees_the_rules",
        "looks for a chain by the network's name",
    ),
    known(
        NewGo,
        "portmap::life::del_of_one_network_leaves_the_rules_of_another",
        "nftables' rules have the container's id alone",
    ),
    known(
        GoSometimes,
        "portmap::life::many_at_once_come_and_go",
        "looks whether a shared chain is there, and fails when another one makes it in between",
    ),
    known(Go, "portmap::life::garbage_collection_frees_what_belongs_to_nobody", NO_GC),
    known(OldGo, "portmap::traffic::masquerading_all_hides_who_asks_by_iptables", YOUNGER),
    known(
        Go,
        "portmap::traffic::masquerading_all_hides_who_asks_by_nftables",
        "nftables' backend does not read masqAll",
    ),
    known(Go, "flannel::life::a_pod_has_routes_to_every_network", "0.9.1 knows one network only"),
    known(Go, "flannel::delegate::a_failed_add_leaves_no_record", "keeps it until DEL, which may never come"),
    known(Go, "flannel::life::check_sees_that_the_pods_address_is_gone", "CHECK always succeeds"),
    known(Go, "flannel::subnet_env::a_missing_file_says_where_to_look", "0.9.1 has fewer words"),
    known(Go, "flannel::subnet_env::a_key_without_a_value_is_an_error_and_no_crash", "it is a crash"),
    known(
        Go,
        "flannel::loss::a_record_that_is_empty_costs_no_address",
        "fails, or succeeds and keeps the address",
    ),
    known(Go, "flannel::loss::a_record_that_is_gone_costs_no_address", NO_RECORD),
    known(Go, "flannel::loss::a_record_and_a_subnet_that_are_gone_cost_no_address", NO_RECORD),
    known(
        Go,
        "flannel::loss::two_interfaces_of_a_pod_do_not_share_a_record",
        "the second interface overwrites the record of the first",
    ),
    known(Go, "bridge::macspoof::garbage_collection_frees_rules_of_this_network_only", NO_GC),
    known(
        OldGo,
        "cross::what_one_made_the_other_checks",
        "its portmap looks for rules of IPv4 among those of IPv6",
    ),
    known(Go, "clients::cnitool::cnitool_checks_a_pod", BY_ADDRESS),
    known(Go, "clients::cnitool::cnitool_collects_what_a_reboot_left", BY_ADDRESS),
    known(Go, "clients::containerd::containerd_removes_a_pod_whose_namespace_is_gone", BY_ADDRESS),
    known(Ours, "golden::portmap_nftables_masqall", "nftables' backend reads masqAll, too"),
    known(Ours, "golden::loopback_0_1_0", FORM),
    known(Ours, "golden::loopback_0_2_0", FORM),
    known(Ours, "golden::loopback_0_3_0", FORM),
    known(Ours, "golden::loopback_0_3_1", FORM),
    known(Ours, "golden::loopback_0_4_0", FORM),
    known(Ours, "golden::flannel_no_subnet_env", TRY_AGAIN),
    known(Ours, "golden::errors_flannel", TRY_AGAIN),
    known(Ours, "golden::errors_bridge", "makes no bridge for a pod that is not there"),
];

const NO_RECORD: &str = "does nothing without a record, and keeps the address";
const FORM: &str = "results have the form of the version that they name";
const TRY_AGAIN: &str = "without subnet.env the code is 11, try again later: flanneld is about to write it";
const OLD_GATEWAY: &str = "an old gateway gives way, or stays beside the new one: pods start on a reset node";
const NEW_SUBNET: &str = "refuses every pod until somebody removes the old address";
const YOUNGER: &str = "does not know it yet";
const BY_ADDRESS: &str = "finds rules only by the addresses that it finds in the pod";
const NO_GC: &str = "has no GC: the skeleton says yes and does nothing";
const NO_STATUS: &str = "has no STATUS: the skeleton says yes and looks at nothing";
