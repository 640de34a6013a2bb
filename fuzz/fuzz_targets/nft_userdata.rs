//! What stands beside rules of nftables, comments and tags: any bytes are read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| flannel_kernel::fuzz::nft_userdata(bytes));
