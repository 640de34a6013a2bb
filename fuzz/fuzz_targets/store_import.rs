//! A file that `flannelctl store import` reads: what is understood and written again is understood the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/flannelctl/src/store/file.rs"]
mod file;

use file::Holdings;

fuzz_target!(|text: &str| match Holdings::from_json(text) {
    Err(why) => assert!(!why.to_string().is_empty()),
    Ok(holdings) => {
        let written = holdings.to_json().expect("what was read is JSON");
        assert_eq!(Holdings::from_json(&written).expect("we read what we write"), holdings);
    }
});
