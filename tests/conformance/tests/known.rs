//! What Go's plugins do otherwise, with the reason: the scenarios that are asserted on ours only.

use conformance_tests::Known;
use conformance_tests::scenario::Others::{self, Go, OldGo};

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
];

const NO_GC: &str = "has no GC: the skeleton says yes and does nothing";
const NO_STATUS: &str = "has no STATUS: the skeleton says yes and looks at nothing";
