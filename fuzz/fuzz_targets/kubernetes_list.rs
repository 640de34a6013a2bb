//! A list of nodes as the API server sends it: the first byte is the size of the pieces in which it arrives. It says
//! the same in whatever pieces it comes.
#![no_main]

use flannel_leases::kubernetes::fuzz::list;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((at_a_time, bytes)) = bytes.split_first() else { return };
    assert_eq!(list(bytes, usize::from(*at_a_time)), list(bytes, usize::MAX));
});
