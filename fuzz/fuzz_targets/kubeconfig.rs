//! A kubeconfig, written by an operator: what cannot be used says why, and a token is never shown.
#![no_main]

use flannel_leases::kubernetes::fuzz::kubeconfig;
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "planted-secret";

/// Whether it stands only where a secret stands: what is written as a server's name is none.
fn is_secret(line: &str) -> bool {
    ["token: ", "password: ", "proxy-url: http://me:"].iter().any(|key| line.trim_start().starts_with(key))
        || !line.contains(SECRET)
}

fuzz_target!(|text: &str| match kubeconfig(text) {
    Ok(shown) => assert!(!shown.contains(SECRET) || !text.lines().all(is_secret), "{shown}"),
    Err(why) => assert!(!why.is_empty()),
});
