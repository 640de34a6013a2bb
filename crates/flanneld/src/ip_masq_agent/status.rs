//! `--status`: whether the rules are what the file says, in words. Looks, changes nothing.

use std::fmt::Write as _;
use std::io::Write as _;

use flannel_kernel::firewall::rules::Rules;
use flannel_plan::masq_agent::config::AgentConfig;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::{changes, differences};

use super::agent::{NO_TOOLS, spec, table};
use super::file::{self, Said};
use super::flags::AgentOptions;
use crate::exit;

/// Prints how it is; the exit code says whether all is well.
pub fn print(options: &AgentOptions) -> (u8, String) {
    let (is_well, text) = status(options);
    // Nobody is left to be told of a standard output that is gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    (if is_well { exit::FINE } else { exit::FAILED }, String::new())
}

fn status(options: &AgentOptions) -> (bool, String) {
    let path = options.config.display();
    let (mut text, config) = match file::read(options) {
        Err(fault) => return (false, format!("file   {path} cannot be used: {fault}\n")),
        Ok(Said::Nothing(config)) => {
            (format!("file   {path} is not there, or empty: the defaults hold\n"), config)
        }
        Ok(Said::Config(config)) => (format!("file   {path} holds\n"), config),
    };
    text += &keeps(&config);
    let scope = RuleScope { masq_agent: Some(options.chain), ..RuleScope::default() };
    let mut rules = Rules::open_for(&scope);
    let tools = rules.tools(&options.families);
    let Some(spec) = spec(options, &tools, config) else {
        return (false, format!("{text}rules  {NO_TOOLS}\n"));
    };
    let observation = rules.observe(spec.system);
    let changes = changes(&scope, &spec.desired(), &observation);
    let is_well = changes.is_empty() && observation.unreadable.is_empty();
    if is_well {
        _ = writeln!(text, "rules  {}, chain {}: as they should be", spec.system, spec.chain);
    }
    for change in &changes {
        _ = writeln!(text, "rules  {}: {}", table(change), differences(change).join(", "));
    }
    observation.unreadable.iter().for_each(|it| _ = writeln!(text, "rules  cannot be seen: {}", it.why));
    (is_well, text)
}

fn keeps(config: &AgentConfig) -> String {
    let networks: Vec<String> = config.non_masquerade.iter().map(ToString::to_string).collect();
    let shown = match networks.len() {
        0 => "nowhere".to_owned(),
        1..=11 => networks.join(", "),
        many => format!("{} and {} more", networks[..10].join(", "), many - 10),
    };
    let link = |masquerades: bool| if masquerades { "masqueraded" } else { "kept" };
    format!(
        "keeps  the source to {shown}; link-local is {} (IPv4) and {} (IPv6)\n",
        link(config.masq_link_local),
        link(config.masq_link_local_v6)
    )
}
