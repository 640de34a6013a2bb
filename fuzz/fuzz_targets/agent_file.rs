//! The file of ip-masq-agent, written by an operator, as JSON. What is understood gives rules for both families, and
//! what is not names its faults.
#![no_main]

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::edit::edits;
use flannel_plan::rules::{SourcePorts, System};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match AgentConfig::parse(text, DefaultNetworks::default(), &Family::BOTH) {
        Err(faults) => assert!(!faults.to_string().is_empty()),
        Ok(config) => {
            let source_ports = ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Kept) };
            for system in [System::IptablesNft, System::Nftables] {
                let chain = "IP-MASQ-AGENT".to_owned().try_into().expect("a name");
                let (config, to_ports) = (config.clone(), Default::default());
                let spec = AgentSpec { system, chain, source_ports, to_ports, config };
                let tables = spec.desired();
                assert_eq!(tables.len(), 2);
                for table in tables {
                    let most = 1 + spec.config.non_masquerade.len();
                    assert!(table.sets.iter().all(|set| set.networks.len() <= most));
                    assert!(!table.chains[0].rules.is_empty());
                    assert!(!edits(&spec.scope(), Some(&table), None).is_empty());
                }
            }
        }
    }
});
