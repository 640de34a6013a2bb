//! What an observation is asked of the host besides objects: what its firewall can do, and what its bridges do.

use std::fs;

use flannel_plan::family::ByFamily;
use flannel_plan::firewall_backend::{FirewallFacts, FirewallQuery, ToolQuery, Translated, Untrack};
use flannel_plan::observation::Observation;
use flannel_plan::pod_bridge::{self, BridgeNetfilter};
use flannel_plan::rules::tools::Tools;
use ipnet::IpNet;

use super::Linux;
use crate::firewall::rules::Rules;
use crate::module;

/// The kernel module that has the settings of bridges.
const MODULE: &str = "br_netfilter";

impl Linux {
    /// Answers what is asked of the firewall, and nothing else: an answer may take a program.
    pub(super) fn firewall_facts(&mut self, query: &FirewallQuery) -> FirewallFacts {
        let mut facts = FirewallFacts::default();
        if *query == FirewallQuery::default() {
            return facts;
        }
        let rules = self.rules();
        facts.tools = query.tools.as_ref().map(|query| tools(rules, query));
        if !query.suspects.is_empty() {
            let unreadable = query.suspects.iter().filter(|table| rules.cannot_read(table));
            facts.unreadable = Some(unreadable.cloned().collect());
        }
        for (system, family) in &query.untrack {
            *facts.untrack.slot(*family) = Some(match rules.can_untrack(*system, *family) {
                Some(true) => Untrack::Possible,
                Some(false) => Untrack::Impossible,
                None => Untrack::Locked,
            });
        }
        for (family, port) in &query.ports {
            *facts.translated.slot(*family) = Some(match rules.translation_of(*family, *port) {
                Ok(None) => Translated::No,
                Ok(Some(step)) => Translated::By(Box::new(step)),
                Err(why) => Translated::Unknown(why.to_string()),
            });
        }
        facts
    }

    /// Whether bridges with pods of these subnets call iptables.
    ///
    /// The settings come with a module, which is loaded where pods hang on a bridge: once, since what keeps it from
    /// being loaded does not go away by itself.
    pub(super) fn bridge_netfilter(
        &mut self,
        observation: &Observation,
        subnets: &ByFamily<IpNet>,
    ) -> ByFamily<BridgeNetfilter> {
        let mut settings = ByFamily::default();
        for (family, subnet) in subnets.iter() {
            if pod_bridge::of(observation, subnet).next().is_none() {
                continue;
            }
            let read = || read_switch(BridgeNetfilter::sysctl(family));
            let mut setting = read();
            if setting == BridgeNetfilter::Unknown && !std::mem::replace(&mut self.tried_module, true) {
                // The setting tells what came of it.
                let _ = module::load(MODULE);
                setting = read();
            }
            *settings.slot(family) = Some(setting);
        }
        settings
    }
}

/// Programs are not run where none is wanted.
fn tools(rules: &mut Rules, query: &ToolQuery) -> Tools {
    match rules.nftables().filter(|_| query.prefers_nftables) {
        Some(ability) => Tools { nftables: Some(ability), iptables: ByFamily::default() },
        None => rules.tools(&query.families),
    }
}

fn read_switch(name: &str) -> BridgeNetfilter {
    match fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))) {
        Ok(text) if text.trim() == "0" => BridgeNetfilter::Off,
        Ok(_) => BridgeNetfilter::On,
        Err(_) => BridgeNetfilter::Unknown,
    }
}
