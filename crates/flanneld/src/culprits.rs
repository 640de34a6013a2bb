//! Who changed rules: the kernel tells the program's name with every change of nftables, and a repair passes it on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use flannel_plan::quoted::quoted;

/// What the programs of iptables that write rules are called; the kernel keeps 15 letters of a name.
const WRITERS: [&str; 2] = ["iptables-restor", "ip6tables-resto"];

/// The names of programs that changed rules; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Culprits(Arc<Mutex<BTreeSet<String>>>);

impl Culprits {
    /// Notes a program.
    pub fn note(&self, program: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(quoted(program).to_string());
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a pass did to rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    pub changed: bool,
    /// Some of that was a repair.
    pub repaired: bool,
}

/// Those who may be the cause of a repair.
#[derive(Debug)]
pub struct Suspects {
    culprits: Culprits,
    /// Those that were heard of before this pass.
    heard: BTreeSet<String>,
    /// Those that were heard of before the last repair of rules.
    accused: BTreeSet<String>,
    /// Whether the pass before ran programs that may be heard of now.
    worked: bool,
}

impl Suspects {
    /// Nobody so far.
    pub fn new(culprits: Culprits) -> Self {
        Self { culprits, heard: BTreeSet::new(), accused: BTreeSet::new(), worked: false }
    }

    /// Before a look: whatever it finds was done by those that were heard of until now. What our own programs did in
    /// the pass before is heard of, too.
    pub fn hear(&mut self) {
        let worked = std::mem::take(&mut self.worked);
        self.heard = self.culprits.take();
        self.heard.retain(|name| !(worked && WRITERS.contains(&&**name)));
    }

    /// After a pass: the causes of a repair of rules, where somebody was heard of.
    pub fn judge(&mut self, rules: Kinds) -> Option<String> {
        self.worked |= rules.changed;
        if !rules.repaired || self.heard.is_empty() {
            return None;
        }
        self.accused.clone_from(&self.heard);
        self.accused()
    }

    /// The causes of the last repair of rules.
    pub fn accused(&self) -> Option<String> {
        let names: Vec<&str> = self.accused.iter().map(|name| &**name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPAIR: Kinds = Kinds { changed: true, repaired: true };
    const NOTHING: Kinds = Kinds { changed: false, repaired: false };

    fn suspects(names: &[&str]) -> (Suspects, Culprits) {
        let culprits = Culprits::default();
        names.iter().for_each(|name| culprits.note(name));
        (Suspects::new(culprits.clone()), culprits)
    }

    #[test]
    fn a_repair_names_each_program_that_was_heard_of_before_the_look() {
        let (mut suspects, culprits) = suspects(&["nft", "iptables-restor", "nft"]);
        suspects.hear();
        culprits.note("too late");
        assert_eq!(suspects.judge(REPAIR).as_deref(), Some("iptables-restor, nft"));
        assert_eq!(suspects.accused().as_deref(), Some("iptables-restor, nft"));
    }

    #[test]
    fn our_own_work_in_the_pass_before_is_no_cause() {
        let (mut suspects, culprits) = suspects(&["nft"]);
        suspects.hear();
        assert_eq!(suspects.judge(REPAIR).as_deref(), Some("nft"));
        culprits.note("iptables-restor");
        suspects.hear();
        assert_eq!(suspects.judge(REPAIR), None);
        assert_eq!(suspects.accused().as_deref(), Some("nft"));
    }

    #[test]
    fn who_changes_rules_without_harm_is_not_accused() {
        let (mut suspects, _) = suspects(&["kube-proxy"]);
        suspects.hear();
        assert_eq!(suspects.judge(NOTHING), None);
        assert_eq!(suspects.accused(), None);
    }
}
