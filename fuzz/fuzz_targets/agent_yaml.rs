//! The file of ip-masq-agent as YAML: what is understood is one JSON object, which says the same when it is read again.
#![no_main]

use flannel_plan::family::Family;
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

#[path = "../../crates/flanneld/src/ip_masq_agent/yaml.rs"]
mod yaml;

fuzz_target!(|text: &str| match yaml::to_json(text) {
    Err(why) => assert!(!why.is_empty()),
    Ok(json) if text.trim_start().starts_with('{') => assert_eq!(json, text),
    Ok(json) => {
        serde_json::from_str::<Map<String, Value>>(&json).expect("an object");
        assert_eq!(yaml::to_json(&json), Ok(json.clone()));
        let _ = AgentConfig::parse(&json, DefaultNetworks::default(), &Family::BOTH);
    }
});
