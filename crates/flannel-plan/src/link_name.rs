//! The name of a network device, checked once and kept without a heap allocation: a state of thousands of
//! peers names the same few devices again and again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const LONGEST: usize = 15;

/// A name that the kernel accepts for a network device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName([u8; LONGEST]);

/// A text that cannot name a network device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a network device: 1 to 15 characters without '/', ':' or white space")]
pub struct LinkNameError(String);

impl LinkName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(LONGEST);
        // Only whole texts get in (see `from_str`), so this never falls back.
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl FromStr for LinkName {
    type Err = LinkNameError;

    fn from_str(text: &str) -> Result<Self, LinkNameError> {
        let banned = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
        if text.is_empty() || text.len() > LONGEST || text == "." || text == ".." || text.contains(banned) {
            return Err(LinkNameError(text.to_owned()));
        }
        let mut bytes = [0; LONGEST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes))
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for LinkName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for LinkName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_as_it_went_in() {
        for name in ["lo", "flannel.1", "flannel-v6.4000", "äöüß"] {
            assert_eq!(name.parse::<LinkName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused() {
        for name in ["", ".", "..", "a/b", "a b", "a:b", "flannel.16777216x"] {
            assert_eq!(name.parse::<LinkName>(), Err(LinkNameError(name.to_owned())), "{name}");
        }
    }
}
