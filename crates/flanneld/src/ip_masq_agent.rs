//! `flanneld ip-masq-agent`: stands in for kubernetes-sigs/ip-masq-agent, with its flags and its file.
//!
//! A small daemon of its own: one thread runs the loop, one listens to rules, one to the file. It shares
//! nothing with the node daemon but the tools, and the two may run on one node.

mod agent;
mod file;
mod flags;
mod status;
mod yaml;

use std::ffi::OsString;

use flannel_kernel::firewall::rules::Rules;
use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_plan::rules::observed::RuleScope;
use tracing::info;

use crate::culprits::{Culprits, Suspects};
use crate::wake::{Alarm, Bell};
use crate::watching::{self, Failures, Named};
use crate::{exit, file_watch, logging, options};
use agent::Agent;
use flags::{AgentOptions, AgentParsed};

/// The word that chooses this mode.
pub const NAME: &str = "ip-masq-agent";

/// Runs the agent; gives the exit code and what is left to say.
pub fn main(words: &[OsString], bell: Bell) -> (u8, String) {
    match flags::parse(words) {
        Ok(AgentParsed::Help) => (exit::FINE, flags::usage()),
        Ok(AgentParsed::Version) => (exit::FINE, format!("{}\n", options::VERSION)),
        Ok(AgentParsed::Status(options)) => status::print(&options),
        Ok(AgentParsed::Run(options)) => run(options, bell),
        Err(faults) => (exit::USAGE, flags::report(&faults)),
    }
}

/// Keeps the rules until the end is rung; they stay when it ends, as the original's do.
fn run(options: AgentOptions, bell: Bell) -> (u8, String) {
    if let Err(fault) = logging::start(options.verbosity, options.log_format) {
        return (exit::USAGE, format!("{NAME} cannot start: {fault}\n"));
    }
    info!(version = options::VERSION, file = %options.config.display(), chain = %options.chain, "{NAME} starts");
    let scope = RuleScope { masq_agent: Some(options.chain), ..RuleScope::default() };
    let rules = Rules::open_for(&scope);
    let culprits = Culprits::default();
    let named =
        Named { name: "rule-watch", without: "changes to rules are repaired every resyncInterval only" };
    let own_ports: Vec<u32> = rules.port_id().into_iter().collect();
    let open = move || RuleWatch::open(own_ports.clone(), &scope);
    watching::keep_rules(named, Failures::default(), open, (bell.clone(), culprits.clone()));
    file_watch::start_or_poll(&options.config, bell.clone());
    Agent::new(options, rules, Suspects::new(culprits)).run(&mut Alarm::new(bell));
    (exit::FINE, String::new())
}
