//! The language of iptables: rules as `iptables-save` prints them, and scripts for `iptables-restore`.
//!
//! [`saved`] reads, [`text`] and [`script`] write. A script is one transaction: all of it is done or nothing.

mod read;
mod write;

use super::System;
use super::edit::{Edit, jump};
use super::found::{FoundTable, RuleName};

pub use read::{CutOff, Saved, rule, saved, words};
pub use write::text;

/// The steps for one table as a script for `iptables-restore --noflush`.
///
/// Rules are deleted by what they say, never by their place: a stranger's rule that came in between stays.
pub fn script(found: &FoundTable, edits: &[Edit]) -> String {
    let mut lines = vec![format!("*{}", found.id.name)];
    for edit in edits {
        match edit {
            Edit::MakeChain(role) => lines.push(format!("-N {}", role.chain(found.id.system))),
            Edit::Delete { chain, at } => {
                let rule = found.chain(chain).and_then(|chain| chain.rules.get(*at));
                if let Some(RuleName::Text(text)) = rule.map(|rule| &rule.name) {
                    lines.push(format!("-D {chain} {text}"));
                }
            }
            Edit::PutFirst(role, rules) => {
                let chain = role.chain(found.id.system);
                let line = |(at, rule)| format!("-I {chain} {} {}", at + 1, text(rule));
                lines.extend(rules.iter().enumerate().map(line));
            }
            Edit::AddJump(role) => {
                lines.push(format!("-A {} {}", role.base_chain(), text(&jump(*role, found.id.system))));
            }
            Edit::DropChain(role) => lines.push(format!("-X {}", role.chain(found.id.system))),
            Edit::MakeTable | Edit::PutSet(_) | Edit::DropSet(_) | Edit::DropTable => {}
        }
    }
    lines.push("COMMIT\n".to_owned());
    lines.join("\n")
}

impl System {
    /// Whether its rules are written by the programs of iptables.
    pub fn is_iptables(self) -> bool {
        self != Self::Nftables
    }
}
