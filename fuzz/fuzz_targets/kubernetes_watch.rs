//! The frames of a watch, as the API server sends them. Whatever they hold, leases stay in order.
#![no_main]

use flannel_leases::kubernetes::fuzz::watch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| watch(bytes));
