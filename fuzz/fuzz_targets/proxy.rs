//! The values of HTTPS_PROXY and NO_PROXY and the name of a server, one a line. What is asked for by a proxy is not this
//! host, and its password is never shown.
#![no_main]

use flannel_leases::kubernetes::fuzz::proxy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n');
    let [url, exempt, host] = [(); 3].map(|()| lines.next().unwrap_or_default());
    assert_eq!(proxy(url, exempt, "localhost", 1), Ok(None));
    assert_eq!(proxy(url, "*", host, 1), Ok(None));
    let told = |url: &str| proxy(url, exempt, host, 443).map_or_else(|why| why, Option::unwrap_or_default);
    let why = "HTTPS_PROXY names a proxy that flannel cannot use";
    assert!(proxy(url, exempt, host, 443).err().is_none_or(|told| told.starts_with(why)));
    assert!(
        !told(&format!("http://user:planted-secret@{}", url.replace(['/', '?', '#'], "")))
            .contains("planted-secret")
    );
});
