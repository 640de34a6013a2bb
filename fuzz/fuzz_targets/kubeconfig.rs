//! A kubeconfig, written by an operator: what cannot be used says why, and a token is never shown.
#![no_main]

use flannel_leases::kubernetes::fuzz::kubeconfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match kubeconfig(text) {
    Ok(shown) => assert!(!shown.contains("planted-secret"), "{shown}"),
    Err(why) => assert!(!why.is_empty()),
});
