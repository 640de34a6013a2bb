//! The command line and the environment, as Go's `flag` package reads them: which flag was given which texts, and
//! by whom. Takes words and variables, gives [`Given`] and the faults of form; no value is judged here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::fault::{OptionFault, Origin, Shown};
use super::flags::{FLANNELD, Flag, FlagTable, Takes, variable};
use super::{Environment, Provenance};

/// What was set, flag by flag. It may hold a secret, so it cannot be printed.
#[derive(Default)]
pub struct Given {
    settings: BTreeMap<&'static str, Vec<Setting>>,
}

/// One text for one flag.
pub struct Setting {
    pub text: String,
    pub from: Provenance,
}

impl Given {
    /// Every text for a flag, in the order in which they were written.
    pub fn settings(&self, flag: &str) -> &[Setting] {
        self.settings.get(flag).map_or(&[], Vec::as_slice)
    }

    /// Who set a flag, if anybody did.
    pub fn origin(&self, flag: &'static str) -> Option<Origin> {
        self.settings(flag).last().map(|setting| Origin { flag, from: setting.from })
    }

    fn set(&mut self, flag: &'static str, text: &str, from: Provenance) {
        self.settings.entry(flag).or_default().push(Setting { text: text.to_owned(), from });
    }

    /// Fills in from the environment what the command line does not set; an empty variable is none.
    pub fn fill_in(&mut self, environment: &Environment) -> Vec<OptionFault> {
        let mut faults = Vec::new();
        // Images set FLANNELD_VERSION to what they hold; Go looks at --version before it looks there.
        for flag in FLANNELD.all().filter(|flag| flag.name != "version") {
            let variable = variable(flag.name);
            let Some(value) = environment.get(OsStr::new(&variable)).filter(|value| !value.is_empty()) else {
                continue;
            };
            if self.settings.contains_key(flag.name) {
                continue;
            }
            match value.to_str() {
                Some(text) => self.set(flag.name, text, Provenance::Environment),
                None => faults.push(OptionFault::NotText { place: variable }),
            }
        }
        faults
    }
}

/// A command line that has been read.
pub struct CommandLine {
    table: &'static FlagTable,
    pub given: Given,
    pub help: bool,
    /// What is wrong with its form.
    pub faults: Vec<OptionFault>,
    /// The flag to which a word without dashes may have been meant to belong.
    before: Before,
}

#[derive(Clone, Copy)]
enum Before {
    Nothing,
    Switch(&'static str),
    Value,
    Secret,
    UnknownFlag,
}

impl CommandLine {
    /// Reads the words behind the program's name, all of them: Go stops at the first fault.
    pub fn read(table: &'static FlagTable, words: &[OsString]) -> Self {
        let (given, faults, before) = (Given::default(), Vec::new(), Before::Nothing);
        let mut line = Self { table, given, help: false, faults, before };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--") => break,
                Some(text) => line.word(text, &mut words),
                None => {
                    line.faults.push(OptionFault::NotText { place: before_equals(&word.to_string_lossy()) })
                }
            }
        }
        words.for_each(|word| line.stray(&word.to_string_lossy()));
        line
    }

    fn word<'a>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'a OsString>) {
        let Some(body) = word.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return self.stray(word);
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() || body.starts_with(['-', '=']) {
            return self.faults.push(OptionFault::Malformed { word: before_equals(word) });
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        match self.table.find(name) {
            Some(flag) => self.flag(flag, value, rest),
            None if name == "h" || name == "help" => self.help = true,
            None => {
                let nearest = self.table.nearest(name);
                self.faults.push(OptionFault::Unknown { name: name.to_owned(), nearest });
                self.before = if value.is_none() { Before::UnknownFlag } else { Before::Nothing };
            }
        }
    }

    fn flag<'a>(
        &mut self,
        flag: &'static Flag,
        value: Option<&str>,
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) {
        self.before = match (flag.takes, value) {
            (Takes::Switch, None) => Before::Switch(flag.name),
            (Takes::Secret, _) => Before::Secret,
            _ => Before::Value,
        };
        match (flag.takes, value) {
            (_, Some(value)) => self.given.set(flag.name, value, Provenance::Flag),
            (Takes::Switch, None) => self.given.set(flag.name, "true", Provenance::Flag),
            (_, None) => match rest.next().map(|word| word.to_str()) {
                Some(Some(value)) => self.given.set(flag.name, value, Provenance::Flag),
                Some(None) => self.faults.push(OptionFault::NotText { place: format!("--{}", flag.name) }),
                None => self.faults.push(OptionFault::Valueless { flag: flag.name }),
            },
        }
    }

    /// A word that is no flag. Go ignores it, and with it all flags that follow.
    fn stray(&mut self, word: &str) {
        let fault = match self.before {
            // It is the unknown flag's value, as far as anyone can tell, and it may be a secret.
            Before::UnknownFlag => return self.before = Before::Nothing,
            Before::Switch(switch) if super::value::switch(word).is_ok() => {
                OptionFault::Detached { value: word.to_owned(), switch }
            }
            // What follows a password may be the rest of a password that was not quoted.
            Before::Secret => OptionFault::Stray { word: Shown::Hidden },
            _ => OptionFault::Stray { word: Shown::Text(word.to_owned()) },
        };
        self.faults.push(fault);
    }
}

/// The part of a word that is no value: a value may be a secret.
fn before_equals(word: &str) -> String {
    word.split('=').next().unwrap_or_default().to_owned()
}
