//! A text that is never shown: takes a password, a token or a key, and gives it only to whoever asks for it by name.
//! It is neither displayed nor serialised, so no report, snapshot or log can hold it.

use std::fmt;

/// A password, a token or a key. Printing it, in any form, prints no part of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for the wire, not for people.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { "hidden" })
    }
}
