//! One call of a CNI plugin: variables, one a line, then an empty line and the configuration that a runtime wrote,
//! perhaps with the result of a plugin that nobody knows. A refusal names its reason; what is understood and written
//! again is understood the same.
#![no_main]

use flannel_cni::error::CniError;
use flannel_cni::json::compact;
use flannel_cni::plugins::Plugin;
use flannel_cni::request::{Environment, Request};
use flannel_cni::result::Attachment;
use flannel_cni::version::Version;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    let (variables, stdin) = text.split_once("\n\n").unwrap_or(("", text));
    let environment = environment(variables);
    let Some(request) =
        told(environment.check().and_then(|()| Request::read(&environment, stdin.as_bytes())))
    else {
        return;
    };
    told(request.valid_attachments());
    told(request.cni_arg("IP", &["IP", "MAC"]));
    for plugin in Plugin::ALL {
        told(plugin.read(&request));
    }
    let stored: Map<String, Value> = serde_json::from_str(&compact(&request.config)).expect("what we store");
    // Not the values: of a broken number the last digit may change.
    assert!(
        stored.len() == request.config.len() && stored.keys().all(|key| request.config.contains_key(key))
    );
    if let Some(Some(previous)) = told(request.prev_result()) {
        Version::ALL.iter().for_each(|version| convert(&previous, *version));
    }
});

/// What cannot be done is told with a code and in words.
fn told<T>(outcome: Result<T, CniError>) -> Option<T> {
    outcome.inspect_err(|why| assert!(why.code != 0 && !why.msg.is_empty(), "{why:?}")).ok()
}

/// A result in the form of a version says the same when it is read back and written again.
fn convert(result: &Attachment, version: Version) {
    let Some(written) = told(result.to_json(version)) else { return };
    let map = written.as_object().expect("a result is an object");
    let read = Attachment::from_previous(map, version).expect("we read what we write");
    assert_eq!(read.to_json(version), Ok(written));
}

fn environment(variables: &str) -> Environment {
    let find = |name: &str| {
        let mut pairs = variables.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    Environment {
        command: find("CNI_COMMAND"),
        container_id: find("CNI_CONTAINERID"),
        netns: find("CNI_NETNS").into(),
        ifname: find("CNI_IFNAME"),
        args: find("CNI_ARGS"),
        path: find("CNI_PATH").into(),
        netns_override: find("CNI_NETNS_OVERRIDE"),
    }
}
