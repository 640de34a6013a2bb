//! What a backend says of itself in a lease: JSON of another node, which is checked before it is kept.
//!
//! It is written into files of every node and read again by programs of any kind. So it is taken only if it is
//! small, flat and JSON in the strict sense; then it is kept to the byte, because Go cuts it by hand.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::quoted::quoted;

/// Backends say a hundred bytes or two.
const MOST_BYTES: usize = 4096;
/// Readers of JSON stop at some depth, ours at 128; a lease lies a few levels deep in our files.
const DEEPEST: usize = 16;

/// What a backend says of itself, as compact JSON text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendData(Box<str>);

/// Backend data that is not kept.
#[derive(Debug, thiserror::Error)]
pub enum BackendDataError {
    #[error("backend data of {0} bytes is not kept, {MOST_BYTES} are the most")]
    TooLong(usize),
    /// Many programs would not read it.
    #[error("backend data that is nested {0} deep is not kept, {DEEPEST} are the most")]
    TooDeep(usize),
    /// It is no JSON, or has a number or a text in it that JSON can write and no program can hold.
    #[error("backend data is no JSON that can be kept: {}", quoted(&.0.to_string()))]
    NotJson(#[from] serde_json::Error),
}

impl BackendData {
    /// Takes JSON text; white space between its parts is dropped, as Go does. `null` is nothing.
    pub fn from_json(text: &str) -> Result<Option<Self>, BackendDataError> {
        if text.len() > MOST_BYTES {
            return Err(BackendDataError::TooLong(text.len()));
        }
        let depth = depth(text);
        if depth > DEEPEST {
            return Err(BackendDataError::TooDeep(depth));
        }
        // Not as a raw value, which takes numbers and characters that do not exist.
        let value: Value = serde_json::from_str(text)?;
        Ok((!value.is_null()).then(|| Self(compact(text).into())))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The characters of a JSON text, each with whether it is inside of a string.
fn characters(json: &str) -> impl Iterator<Item = (char, bool)> {
    let (mut inside, mut escaped) = (false, false);
    json.chars().map(move |c| {
        let was_inside = inside;
        if c == '"' && !escaped {
            inside = !inside;
        }
        escaped = was_inside && !escaped && c == '\\';
        (c, was_inside)
    })
}

/// Drops white space outside of strings: what Go's encoder does to a raw message.
fn compact(json: &str) -> String {
    characters(json).filter(|(c, inside)| *inside || !c.is_ascii_whitespace()).map(|(c, _)| c).collect()
}

/// How deep lists and objects are nested.
fn depth(json: &str) -> usize {
    let (mut now, mut deepest) = (0_usize, 0);
    for (c, _) in characters(json).filter(|(_, inside)| !inside) {
        match c {
            '[' | '{' => now += 1,
            ']' | '}' => now = now.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(now);
    }
    deepest
}

impl fmt::Debug for BackendData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for BackendData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BackendData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let data = Self::from_json(raw.get()).map_err(serde::de::Error::custom)?;
        data.ok_or_else(|| serde::de::Error::custom("backend data is null"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_dropped_and_strings_are_kept() {
        let data = BackendData::from_json(r#" { "a b" : "c \" d" , "e" : [ 1, 2 ] } "#).unwrap().unwrap();
        assert_eq!(data.as_str(), r#"{"a b":"c \" d","e":[1,2]}"#);
        assert_eq!(BackendData::from_json("null").unwrap(), None);
    }

    #[test]
    fn brackets_inside_of_strings_are_no_depth() {
        assert_eq!(depth(r#"{"a":["[[{\"[",{}]}"#), 3);
        assert_eq!(depth("1"), 0);
    }
}
