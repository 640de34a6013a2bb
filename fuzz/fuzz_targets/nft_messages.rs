//! Messages of nftables about tables, chains, rules and sets: each reader of them takes any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| flannel_kernel::fuzz::nft_messages(bytes));
