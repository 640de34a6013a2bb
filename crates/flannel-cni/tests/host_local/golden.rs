//! The recorded steps of Go's host-local 1.9.1, one after the other, by ours: same answers, same files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flannel_cni::error::CniError;
use flannel_cni::plugins::host_local;
use flannel_cni::request::{Command, Environment, Request};
use serde_json::{Value, json};

use crate::node::Node;

fn text(step: &Value, key: &str) -> String {
    step["env"][key].as_str().unwrap_or_default().to_owned()
}

fn request(node: &Node, step: &Value) -> Request {
    let environment = Environment {
        command: text(step, "CNI_COMMAND"),
        container_id: text(step, "CNI_CONTAINERID"),
        netns: text(step, "CNI_NETNS").into(),
        ifname: text(step, "CNI_IFNAME"),
        args: text(step, "CNI_ARGS"),
        ..Environment::default()
    };
    let mut config = step["stdin"].clone();
    config["ipam"]["dataDir"] = json!(node.data.path());
    Request::read(&environment, config.to_string().as_bytes()).unwrap()
}

fn answer(node: &Node, step: &Value) -> Result<Value, CniError> {
    let request = request(node, step);
    let nothing = |outcome: Result<(), CniError>| outcome.map(|()| json!(""));
    match request.command {
        Command::Add => host_local::add(&node.machine, &request)?.to_json(request.version),
        Command::Del => nothing(host_local::del(&node.machine, &request)),
        Command::Check => nothing(host_local::check(&node.machine, &request)),
        other => panic!("{other:?} was not recorded"),
    }
}

fn replay(path: &Path) {
    let recorded: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let node = Node::new();
    for (number, step) in recorded["steps"].as_array().unwrap().iter().enumerate() {
        let told =
            answer(&node, step).unwrap_or_else(|error| json!({ "code": error.code, "msg": error.msg }));
        assert_eq!(told, step["stdout"], "step {number} of {}", path.display());
    }
    let left = recorded["left"]["files"].as_object().unwrap().iter().map(|(path, content)| {
        let name = path.rsplit('/').next().unwrap().to_owned();
        (name, content.as_str().unwrap().to_owned())
    });
    let expected: BTreeMap<String, String> = left.filter(|(name, _)| name != "lock").collect();
    // The recording knows no carriage returns.
    let found = node.files().into_iter().map(|(name, content)| (name, content.replace("\r\n", "\n")));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "files of {}", path.display());
}

#[test]
fn every_recorded_step_of_go_is_answered_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ours = |path: &std::path::PathBuf| {
        path.file_name().unwrap().to_str().is_some_and(|name| name.starts_with("host-local-"))
    };
    let recordings: Vec<_> = entries.filter(ours).collect();
    assert_eq!(recordings.len(), 11);
    for path in recordings {
        replay(&path);
    }
}
