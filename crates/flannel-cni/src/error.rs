//! What a plugin answers when it cannot do what was asked: a code, a sentence, and details for a person.

use std::fmt;

/// The codes of the CNI specification, and those that Go's plugins use beyond it.
pub mod code {
    /// The version is not one that we speak.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The container does not exist; nothing is to be cleaned up.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A CNI_ variable is missing or wrong.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Standard input cannot be read.
    pub const IO_FAILURE: u32 = 5;
    /// Standard input is not what it should be.
    pub const DECODING_FAILURE: u32 = 6;
    /// The network configuration is wrong.
    pub const INVALID_CONFIG: u32 = 7;
    /// The network namespace is not the container's.
    pub const INVALID_NETNS: u32 = 8;
    /// Not now: the runtime is to try again.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: no container can be added now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// Everything else.
    pub const INTERNAL: u32 = 999;
}

/// The findings that plugins make. As constants: the program does not carry the table of all codes.
pub mod finding {
    use flannel_plan::finding::Code;

    /// There is no subnet.env.
    pub const NOT_READY: &str = Code::NotReady.as_str();
    /// A plugin is not there.
    pub const PLUGIN_MISSING: &str = Code::PluginMissing.as_str();
    /// Every address is in use.
    pub const RANGE_FULL: &str = Code::RangeFull.as_str();
}

/// The answer of a plugin that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// One of [`code`].
    pub code: u32,
    /// What failed and why, in one line.
    pub msg: String,
    /// More, for a person; may be empty.
    pub details: String,
    /// The code of the finding in docs/findings.md that it is, if it is one.
    pub finding: Option<&'static str>,
}

impl CniError {
    /// An error with a code.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new(), finding: None }
    }

    /// An error for which the specification has no code.
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, msg)
    }

    /// The same with details.
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The same as one of [`finding`].
    pub fn found(mut self, finding: &'static str) -> Self {
        self.finding = Some(finding);
        self
    }

    /// The same, and what could not be undone because of it.
    pub fn not_taken_back(mut self, failure: &Self) -> Self {
        self.details = format!("{}; not taken back: {failure}", self.details).trim_start_matches("; ").into();
        self
    }

    /// The same with words in front of the message.
    pub fn context(mut self, words: impl fmt::Display) -> Self {
        self.msg = format!("{words}: {}", self.msg);
        self
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl std::error::Error for CniError {}

/// A result whose error is of another kind.
pub(crate) trait OrInternal<T> {
    /// The same with an error of ours, for which the specification has no code: what was tried, and why it failed.
    fn or_internal(self, tried: fmt::Arguments<'_>) -> Result<T, CniError>;
}

impl<T, E: fmt::Display> OrInternal<T> for Result<T, E> {
    fn or_internal(self, tried: fmt::Arguments<'_>) -> Result<T, CniError> {
        self.map_err(|why| CniError::internal(format!("{tried}: {why}")))
    }
}
