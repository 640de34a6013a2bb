//! Values that are never shown: a password, a token, a private key.

use std::fmt;

/// A value that cannot be serialised and prints no part of itself: no log, finding or `state.json` can hold it.
///
/// ```compile_fail
/// serde_json::to_string(&flannel_plan::secret::Secret::<String>::new("key"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// Hides a value.
    pub fn new(value: impl Into<T>) -> Self {
        Self(value.into())
    }

    /// The value itself: for the wire, not for people.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

#[cfg(test)]
#[test]
fn a_secret_prints_no_part_of_itself() {
    assert_eq!(format!("{:?}", Secret::<String>::new("key")), "hidden");
}
