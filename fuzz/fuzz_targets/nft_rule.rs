//! The expressions of rules of nftables, which anybody may have written: any bytes are read, and what was understood and is
//! written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| flannel_kernel::fuzz::nft_rule(bytes));
