//! What etcd answers: the bytes of a read of everything, behind two bytes with their length, then those of a watch.
//! Leases are told once and in order, and what this node would write names subnets.
#![no_main]

use flannel_leases::etcd::fuzz::table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (read, told) = rest.split_at(length);
    table(read, told, bytes.len() as u64);
});
