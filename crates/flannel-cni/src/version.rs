//! The versions of the CNI specification, in order.

use std::fmt;

use crate::error::{CniError, code};

/// A version of the CNI specification that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0, which an absent version means.
    V0_1_0,
    /// 0.2.0.
    V0_2_0,
    /// 0.3.0: interfaces, several addresses, chains.
    V0_3_0,
    /// 0.3.1.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0.
    V1_0_0,
    /// 1.1.0: GC and STATUS.
    V1_1_0,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Version; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// The newest.
    pub const NEWEST: Version = Self::V1_1_0;

    /// Its text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Reads it as Go does: by the whole text, so `1.0` is none; nothing means 0.1.0.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let text = if text.is_empty() { "0.1.0" } else { text };
        Self::ALL.into_iter().find(|version| version.as_str() == text).ok_or_else(|| {
            let known: Vec<String> =
                Self::ALL.iter().map(|version| format!("{:?}", version.as_str())).collect();
            CniError::new(code::INCOMPATIBLE_VERSION, "incompatible CNI versions")
                .details(format!("config is {text:?}, plugin supports [{}]", known.join(" ")))
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
