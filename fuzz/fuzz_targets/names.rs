//! Hardware addresses and names of devices: they come out as they went in.
#![no_main]

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(mac) = text.parse::<Mac>() {
        assert_eq!(mac.to_string(), text.to_lowercase().replace('-', ":"));
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
    if let Ok(name) = text.parse::<LinkName>() {
        assert_eq!(name.as_str(), text);
    }
});
