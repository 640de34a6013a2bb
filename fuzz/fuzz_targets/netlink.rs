//! Messages of the kernel about devices, addresses, routes and neighbours: each reader of them takes any bytes.
#![no_main]

use flannel_kernel::fuzz::netlink;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| assert!(netlink(bytes) <= bytes.len() / 16));
