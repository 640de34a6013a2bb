//! The language of iptables: rules as `iptables-save` prints them, and scripts for `iptables-restore`.
//!
//! [`saved`] reads, [`text`] and [`script`] write. A script is one transaction: all of it is done or nothing.

mod read;
mod write;

use super::System;
use super::edit::Edit;
use super::found::RuleName;

pub use read::{CutOff, Saved, rule, saved, words};
pub use write::{quoted, text};

/// The edits of one table as a script for `iptables-restore --noflush`.
///
/// Rules are deleted by what they say, never by their place: a stranger's rule that came in between stays.
pub fn script(table: &str, edits: &[Edit]) -> String {
    let mut lines = vec![format!("*{table}")];
    for edit in edits {
        match edit {
            Edit::AddChain(chain) => lines.push(format!("-N {}", chain.name)),
            Edit::RenewChain(chain) => lines.push(format!(":{} - [0:0]", chain.name)),
            Edit::FlushChain(chain) => lines.push(format!("-F {chain}")),
            Edit::AppendRule(chain, rule) => lines.push(format!("-A {chain} {}", text(rule))),
            Edit::InsertRules(chain, rules) => {
                let line = |(at, rule)| format!("-I {chain} {} {}", at + 1, text(rule));
                lines.extend(rules.iter().enumerate().map(line));
            }
            Edit::DeleteRule(chain, RuleName::Text(text)) => lines.push(format!("-D {chain} {text}")),
            Edit::DeleteChain(chain) => lines.push(format!("-X {chain}")),
            Edit::DeleteRule(_, RuleName::Handle(_)) | Edit::AddTable(_) | Edit::WakeTable => {}
            Edit::PutSet(_) | Edit::DeleteSet(_) | Edit::DeleteTable => {}
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
