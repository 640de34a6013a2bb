//! What a delegate or IPAM plugin of somebody else printed: the first line is the version in its configuration, the rest
//! its standard output. A result can be told in every version that can hold it, and says the same when read again.
#![no_main]

use flannel_cni::delegate::read_result;
use flannel_cni::result::Attachment;
use flannel_cni::version::Version;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    let (version, stdout) = text.split_once('\n').unwrap_or(("1.0.0", text));
    let config = Map::from_iter([("cniVersion".to_owned(), Value::from(version))]);
    match read_result(stdout.as_bytes(), &config) {
        Err(why) => assert!(why.code != 0 && !why.msg.is_empty(), "{why:?}"),
        Ok(result) => Version::ALL.iter().for_each(|version| convert(&result, *version)),
    }
});

fn convert(result: &Attachment, version: Version) {
    let Ok(written) = result.to_json(version) else { return };
    let map = written.as_object().expect("a result is an object");
    let read = Attachment::from_output(map, version).expect("we read what we write");
    assert_eq!(read.to_json(version), Ok(written));
}
