//! What can be wrong with options, each fault with its place, its cause and the way out. Gives one text for all
//! of them. No fault ever carries the value of a secret.

use std::fmt;

use super::Provenance;
use super::flags;

/// One fault in the command line or the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionFault {
    #[error("--{name}: there is no such flag{}", nearest.map(|flag| format!("; did you mean --{flag}?")).unwrap_or_default())]
    Unknown {
        name: String,
        /// A known name that is like it.
        nearest: Option<&'static str>,
    },
    #[error("{word}: a flag is written --NAME or --NAME=VALUE")]
    Malformed {
        /// The word up to its `=`.
        word: String,
    },
    #[error("--{flag}: the value is missing; write --{flag}=VALUE")]
    Valueless { flag: &'static str },
    #[error("{value}: --{switch} takes its value only behind `=`; write --{switch}={value}")]
    Detached { value: String, switch: &'static str },
    #[error("{word}: flanneld takes only flags; quote a value that has spaces in it")]
    Stray {
        /// The word, unless it may be a part of a secret.
        word: Shown,
    },
    #[error("{place}: the value is not valid UTF-8")]
    NotText {
        /// The flag, the variable or the word.
        place: String,
    },
    #[error("{origin}: {value} {why}")]
    BadValue {
        origin: Origin,
        /// The value, unless it is a secret.
        value: Shown,
        why: String,
    },
    #[error("{lease_dir} chooses another store than {}; keep one of the two", listed(origins))]
    StoreTwice { lease_dir: Origin, origins: Vec<Origin> },
    #[error(
        "--kube-subnet-mgr: which Kubernetes node is this? Set NODE_NAME (from spec.nodeName), or POD_NAME and \
         POD_NAMESPACE"
    )]
    NoNode,
    #[error(
        "{from}: {name:?} cannot name this node; set NODE_NAME to 1 to 253 letters, digits, `-`, `_` or `.`"
    )]
    Nameless { from: &'static str, name: String },
}

/// Who set a flag: the command line or the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub flag: &'static str,
    pub from: Provenance,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Provenance::Environment => f.write_str(&flags::variable(self.flag)),
            Provenance::Flag => write!(f, "--{}", self.flag),
        }
    }
}

/// A text that is fit to be shown, or the place of one that is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Text(String),
    /// A secret was here.
    Hidden,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Hidden => f.write_str("(hidden)"),
        }
    }
}

fn listed(origins: &[Origin]) -> String {
    origins.iter().map(Origin::to_string).collect::<Vec<_>>().join(", ")
}

/// All faults as one text for a person.
pub fn report(program: &str, faults: &[OptionFault]) -> String {
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    let lines: String = faults.iter().map(|fault| format!("  {fault}\n")).collect();
    format!("{program} cannot start: {count} in the options\n{lines}`{program} --help` lists every flag.\n")
}
