//! Chains: what they are called, and where packets meet them.

use serde::Serialize;

/// Where on its way a packet meets a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

/// What the rules of a chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainType {
    Filter,
    Nat,
    Route,
}

/// What makes a chain one that packets come to by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseChain {
    pub kind: ChainType,
    pub hook: Hook,
    /// Its place among the others there: lower is earlier.
    pub priority: i32,
    /// Whether its end lets packets through.
    pub accepts: bool,
}

/// A chain to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: Box<str>,
    pub comment: Option<Box<str>>,
    /// Where packets come from; none if only others jump to it.
    pub base: Option<BaseChain>,
}

impl Chain {
    /// A chain that others jump to.
    pub fn plain(name: impl Into<Box<str>>) -> Self {
        Self { name: name.into(), comment: None, base: None }
    }

    /// A chain that packets come to by themselves, and leave at its end.
    pub fn base(name: impl Into<Box<str>>, kind: ChainType, hook: Hook, priority: i32) -> Self {
        let base = BaseChain { kind, hook, priority, accepts: true };
        Self { name: name.into(), comment: None, base: Some(base) }
    }

    /// The same with a comment.
    pub fn comment(mut self, comment: impl Into<Box<str>>) -> Self {
        self.comment = Some(comment.into());
        self
    }
}

/// The longest name that every iptables takes.
const LONGEST: usize = 28;

/// A name that both languages take, and that is nobody else's: all that stands in the chain is thrown away when it is
/// not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct ChainName([u8; LONGEST]);

impl ChainName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl TryFrom<String> for ChainName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let of_iptables =
            ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "ACCEPT", "DROP", "RETURN", "QUEUE"];
        let of_others = ["FLANNEL-", "KUBE-", "CNI-", "MASQUERADE", "DNAT", "SNAT"];
        if !text.bytes().all(plain) || text.starts_with('-') || !(1..=LONGEST).contains(&text.len()) {
            Err("is no name of a chain: 1 to 28 letters, digits, dashes, dots and underscores".to_owned())
        } else if of_iptables.contains(&&*text) || of_others.iter().any(|begin| text.starts_with(begin)) {
            Err("is the name of somebody else's chain".to_owned())
        } else {
            let mut bytes = [0; LONGEST];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Ok(Self(bytes))
        }
    }
}

impl From<ChainName> for String {
    fn from(name: ChainName) -> Self {
        name.as_str().to_owned()
    }
}

impl std::fmt::Display for ChainName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
