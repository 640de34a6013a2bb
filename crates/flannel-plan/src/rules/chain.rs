//! Chains: what they are called, and where packets meet them.

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
