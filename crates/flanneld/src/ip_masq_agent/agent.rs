//! The loop of ip-masq-agent: the file and the rules are looked at, and what differs is made right.
//!
//! It looks when somebody says that something may have changed, and every `resyncInterval`. A program that keeps undoing
//! its rules is named, and answered once a second at most.

use std::time::Instant;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::diff::Change;
use flannel_plan::masq_agent::config::AgentConfig;
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::tools::Tools;
use flannel_plan::rules::{SourcePorts, changes, differences};
use flannel_plan::state::Key;
use tracing::{debug, error, info, warn};

use super::file::{self, Followed, Said};
use super::flags::AgentOptions;
use crate::culprits::{Kinds, Suspects};
use crate::damper::{Advice, Damper};
use crate::fast_path::FastPath;
use crate::wake::{Alarm, Wake};

/// What a host without any way to keep rules is told.
pub const NO_TOOLS: &str = "this host has neither nftables in its kernel nor an iptables program: `modprobe nf_tables`, \
                            or install iptables";

/// The agent.
pub struct Agent {
    options: AgentOptions,
    rules: Rules,
    tools: Tools,
    followed: Followed,
    damper: Damper,
    suspects: Suspects,
    /// What was wrong the last time: the same is not told twice.
    told: Vec<String>,
}

/// Why rules differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Config,
    /// Somebody changed them.
    Others,
}

impl Agent {
    /// An agent that has done nothing yet.
    pub fn new(options: AgentOptions, mut rules: Rules, suspects: Suspects) -> Self {
        let tools = rules.tools(&options.families);
        let (followed, damper) = (Followed::default(), Damper::default());
        Self { options, rules, tools, followed, damper, suspects, told: Vec::new() }
    }

    /// Keeps the rules until the end is rung.
    pub fn run(&mut self, alarm: &mut Alarm) {
        loop {
            let begun = Instant::now();
            self.pass(begun);
            alarm.note_pass(begun.elapsed(), 1, &FastPath::default());
            let others = [self.damper.next_release(begun), self.followed.next_reading()];
            let next = others.into_iter().flatten().fold(begun + self.resync(), Instant::min);
            if alarm.wait(next) == Some(Wake::Stop) {
                info!("ip-masq-agent ends; its rules stay");
                return;
            }
        }
    }

    fn resync(&self) -> std::time::Duration {
        let without = || AgentConfig::without_file(self.options.default_networks).resync;
        self.followed.said().map_or_else(without, |said| said.config().resync)
    }

    fn pass(&mut self, now: Instant) {
        let mut troubles = Vec::new();
        let mut cause = Cause::Others;
        match self.followed.take(file::read(&self.options), now) {
            Ok(None) => {}
            Ok(Some(said)) => {
                cause = Cause::Config;
                tell_config(&self.options, said);
            }
            Err(fault) => troubles.push(self.words_of(&fault)),
        }
        let config = self.followed.said().map(|said| said.config().clone());
        // Before the first good file nothing is touched: what an earlier run left is better than a guess.
        if let Some(config) = config {
            match spec(&self.options, &self.tools, config) {
                Some(spec) => self.keep(&spec, cause, now, &mut troubles),
                None => {
                    self.tools = self.rules.tools(&self.options.families);
                    troubles.push(NO_TOOLS.to_owned());
                }
            }
        }
        self.damper.forget_old(now);
        self.tell(troubles);
    }

    /// Makes the rules what they should be.
    fn keep(&mut self, spec: &AgentSpec, cause: Cause, now: Instant, troubles: &mut Vec<String>) {
        self.suspects.hear();
        let observation = self.rules.observe(spec.system);
        troubles.extend(observation.unreadable.iter().map(|it| it.why.clone()));
        let mut due = changes(&spec.scope(), &spec.desired(), &observation);
        due.retain(|change| self.may_mend(change, cause, now));
        if due.is_empty() {
            debug!("the rules are as they should be");
            return;
        }
        let failures = self.rules.apply(&spec.scope(), &due);
        troubles.extend(failures.iter().map(|failure| {
            let hint = failure.hint.iter().map(|hint| format!("; {hint}"));
            format!("{failure}{}", hint.collect::<String>())
        }));
        let by = self
            .suspects
            .judge(Kinds { changed: true, repaired: cause == Cause::Others })
            .unwrap_or_default();
        let failed =
            |change: &Change| failures.iter().any(|failure| Key::Rules(failure.id.clone()) == change.key());
        for done in due.iter().filter(|change| !failed(change)) {
            let (table, because) = (table(done), differences(done).join(", "));
            match cause {
                Cause::Config => info!(table, because, "rules were made as the configuration says"),
                Cause::Others => warn!(table, because, by, "rules were repaired"),
            }
        }
    }

    fn may_mend(&mut self, change: &Change, cause: Cause, now: Instant) -> bool {
        if cause == Cause::Config {
            return true;
        }
        let advice = self.damper.ask(&change.key(), now);
        if advice == Advice::RepairAndTell {
            let (table, by) = (table(change), self.suspects.accused().unwrap_or_default());
            warn!(
                table,
                by,
                "somebody keeps changing these rules: from now on they are repaired once a second at most"
            );
        }
        advice != Advice::Hold
    }

    fn words_of(&self, fault: &file::FileFault) -> String {
        let held = match self.followed.said() {
            Some(_) => "the last good configuration stays in force",
            None => "nothing is done until it is mended",
        };
        format!("{} cannot be used, {held}: {fault}", self.options.config.display())
    }

    /// Says what is wrong, once, and when nothing is any more.
    fn tell(&mut self, troubles: Vec<String>) {
        if troubles == self.told {
            return;
        }
        troubles
            .iter()
            .filter(|trouble| !self.told.contains(trouble))
            .for_each(|trouble| error!("{trouble}"));
        if troubles.is_empty() {
            info!("all is well again");
        }
        self.told = troubles;
    }
}

fn tell_config(options: &AgentOptions, said: &Said) {
    let file = options.config.display();
    match said {
        Said::Nothing(_) => info!(%file, "there is no file, or nothing in it: the defaults hold"),
        Said::Config(config) => {
            let networks = config.non_masquerade.len();
            info!(%file, networks, resync = ?config.resync, "the configuration of the file holds");
        }
    }
}

/// The name of the table that changes.
pub fn table(change: &Change) -> String {
    change.key().to_string().trim_start_matches("rules ").to_owned()
}

/// The rules that a configuration asks for on a host with these tools; none if it has none.
pub fn spec(options: &AgentOptions, tools: &Tools, config: AgentConfig) -> Option<AgentSpec> {
    let nftables = config.nftables.unwrap_or(options.nftables);
    let system = tools.choose(nftables)?.system;
    let most = if options.random_fully { SourcePorts::Randomised } else { SourcePorts::Kept };
    let source_ports = |family| (family, most.min(tools.source_ports(system, family)));
    let source_ports = options.families.iter().copied().map(source_ports).collect();
    let (chain, to_ports) = (options.chain, options.to_ports.clone());
    Some(AgentSpec { system, chain, source_ports, to_ports, config })
}
