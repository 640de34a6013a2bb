//! The versions of the CNI specification, in order.

use std::fmt;

use crate::error::{CniError, code};

/// A version of the CNI specification that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0, which an absent version means.
    V0_1_0,
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

/// The versions that write a result in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 0.1.0 and 0.2.0: one address a family.
    Single,
    /// 0.3.0 to 0.4.0: lists, and every address says its family.
    Lists,
    /// 1.0.0 and later: lists.
    Modern,
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

    /// How it writes a result.
    pub fn shape(self) -> Shape {
        match self {
            Self::V0_1_0 | Self::V0_2_0 => Shape::Single,
            Self::V0_3_0 | Self::V0_3_1 | Self::V0_4_0 => Shape::Lists,
            Self::V1_0_0 | Self::V1_1_0 => Shape::Modern,
        }
    }

    /// The version of a text, if we speak it.
    pub fn find(text: &str) -> Option<Self> {
        let text = if text.is_empty() { "0.1.0" } else { text };
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Reads it as Go does: by the whole text, so `1.0` is none; nothing means 0.1.0.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        Self::find(text).ok_or_else(|| {
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

/// The numbers of any version's text, to be compared: one to three of them, missing ones are 0.
pub fn numbers(text: &str) -> Result<[i64; 3], CniError> {
    if text.is_empty() {
        return Ok([0, 1, 0]);
    }
    let wrong = |why: &str| CniError::new(code::DECODING_FAILURE, format!("invalid version {text:?}: {why}"));
    let mut numbers = [0; 3];
    for (place, part) in text.split('.').enumerate() {
        let number = numbers.get_mut(place).ok_or_else(|| wrong("too many parts"))?;
        *number = part.parse().map_err(|_| wrong("its parts must be numbers"))?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_read_by_its_whole_text_and_nothing_means_the_first() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Ok(version));
        }
        assert_eq!(Version::parse(""), Ok(Version::V0_1_0));
        for text in ["1.0", "1.1", "v1.0.0", "1.0.0 ", "1.2.0", "9.9.9", "x"] {
            let refusal = Version::parse(text).unwrap_err();
            assert_eq!((refusal.code, &*refusal.msg), (1, "incompatible CNI versions"));
            let details = format!(
                "config is \"{text}\", plugin supports [\"0.1.0\" \"0.2.0\" \"0.3.0\" \"0.3.1\" \"0.4.0\" \"1.0.0\" \"1.1.0\"]"
            );
            assert_eq!(refusal.details, details);
        }
    }

    #[test]
    fn versions_are_compared_by_one_to_three_numbers() {
        assert_eq!(numbers(""), Ok([0, 1, 0]));
        assert_eq!(numbers("1"), Ok([1, 0, 0]));
        assert_eq!(numbers("0.4"), Ok([0, 4, 0]));
        assert_eq!(numbers("10.20.30"), Ok([10, 20, 30]));
        for text in ["1.2.3.4", "a.b", "1..2", "1.x", "."] {
            assert_eq!(numbers(text).unwrap_err().code, code::DECODING_FAILURE, "{text}");
        }
    }
}
