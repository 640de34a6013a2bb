//! Annotations of Kubernetes nodes, written by other nodes and by operators: a JSON object of texts. What is
//! read, written, read and written again does not change any more.
#![no_main]

use std::collections::BTreeMap;

use flannel_plan::annotations::{
    AnnotationPrefix, from_annotations, node_addresses, overwritten_addresses, to_annotations,
};
use flannel_plan::family::ByFamily;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(prefix) = text.parse::<AnnotationPrefix>() {
        assert_eq!(prefix.to_string().parse::<AnnotationPrefix>(), Ok(prefix));
    }
    let Ok(annotations) = serde_json::from_str::<BTreeMap<String, String>>(text) else { return };
    let prefix = AnnotationPrefix::default();
    let _ = overwritten_addresses(&annotations, &prefix);
    let _ = node_addresses(&annotations, &prefix);
    let Ok(Some(read)) = from_annotations(&annotations, &prefix) else { return };
    // The first writing may drop what a backend never says, such as an address without data; it drops it for good.
    let written = to_annotations(&read, &prefix, &ByFamily::default());
    let again = from_annotations(&written, &prefix).expect("our own annotations").expect("are managed by us");
    assert_eq!(to_annotations(&again, &prefix, &ByFamily::default()), written);
});
