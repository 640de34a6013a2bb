//! `flanneld ip-masq-agent`: stands in for kubernetes-sigs/ip-masq-agent, with its flags and its file.
//!
//! A small daemon of its own: one thread runs the loop, one listens to rules, one to the file. It shares
//! nothing with the node daemon but the tools, and the two may run on one node.

mod agent;
mod file;
mod flags;
mod folder_watch;
mod status;
mod yaml;

use std::ffi::OsString;
use std::thread;

use anyhow::Context;
use flannel_kernel::firewall::masq_agent::AgentFirewall;
use tracing::{debug, error, info};

use crate::culprits::{Culprits, Suspects};
use crate::wake::{Alarm, Bell, Wake};
use crate::{exit, logging, options};
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

fn run(options: AgentOptions, bell: Bell) -> (u8, String) {
    if let Err(fault) = logging::start(options.verbosity, options.log_format) {
        return (exit::USAGE, format!("{NAME} cannot start: {fault}\n"));
    }
    match keep(options, bell) {
        Ok(()) => (exit::FINE, String::new()),
        Err(error) => (exit::FAILED, format!("{NAME} cannot start: {error:#}\n")),
    }
}

/// Keeps the rules until the end is rung; they stay when it ends, as the original's do.
fn keep(options: AgentOptions, bell: Bell) -> anyhow::Result<()> {
    info!(version = options::VERSION, file = %options.config.display(), chain = options.chain, "{NAME} starts");
    let firewall = AgentFirewall::open();
    let culprits = Culprits::default();
    listen_to_rules(&firewall, &options.chain, (bell.clone(), culprits.clone()))?;
    folder_watch::start(&options.config, bell.clone());
    Agent::new(options, firewall, Suspects::new(culprits)).run(&mut Alarm::new(bell));
    Ok(())
}

/// Where the kernel has no nftables nobody tells of changes: they are seen at every resync.
fn listen_to_rules(
    firewall: &AgentFirewall,
    chain: &str,
    (bell, culprits): (Bell, Culprits),
) -> anyhow::Result<()> {
    let mut watch = match firewall.watch(chain) {
        Ok(watch) => watch,
        Err(error) => {
            debug!(%error, "the kernel tells of no changes to rules: they are looked at every resyncInterval");
            return Ok(());
        }
    };
    let listen = move || {
        loop {
            match watch.wait() {
                Ok(notice) => {
                    notice.by.iter().for_each(|program| culprits.note(program));
                    debug!(%notice, "the kernel changed");
                }
                Err(error) => {
                    error!(%error, "changes to rules are no longer heard: they are repaired every resyncInterval only");
                    return;
                }
            }
            bell.ring(Wake::Look);
        }
    };
    thread::Builder::new()
        .name("rule-watch".into())
        .spawn(listen)
        .context("no thread for the kernel's notices")?;
    Ok(())
}
