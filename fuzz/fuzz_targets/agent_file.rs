//! The file of ip-masq-agent, written by an operator, as JSON. What is understood gives rules for both families, and
//! what is not names its faults.
#![no_main]

use flannel_plan::family::{ByFamily, Family};
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::iptables::{AgentFound, lines};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::{SourcePorts, System};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match AgentConfig::parse(text, DefaultNetworks::default(), &Family::BOTH) {
        Err(faults) => assert!(!faults.to_string().is_empty()),
        Ok(config) => {
            let source_ports = ByFamily { v4: Some(SourcePorts::Randomised), v6: Some(SourcePorts::Kept) };
            let (system, chain) = (System::IptablesNft, "IP-MASQ-AGENT".into());
            let wish = AgentSpec { system, chain, source_ports, to_ports: Default::default(), config };
            for family in Family::BOTH {
                let rules = wish.rules(family).expect("both families are on");
                assert!(
                    !lines(&rules).is_empty() && rules.set().len() <= 1 + wish.config.non_masquerade.len()
                );
                assert!(AgentFound::default().script(&wish, family).is_some());
            }
        }
    }
});
