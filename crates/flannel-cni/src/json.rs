//! JSON objects as Go reads them: keys without regard to case, `null` is absent, unknown keys are ignored.

use serde_json::{Map, Value};

use crate::error::{CniError, code};

/// A JSON object, read as Go reads it.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// Looks at an object.
    pub fn new(map: &'a Map<String, Value>) -> Self {
        Self { map }
    }

    /// The object itself, to be changed and passed on.
    pub fn map(self) -> &'a Map<String, Value> {
        self.map
    }

    /// The value of a key: an exact match is preferred, of several others the last counts; `null` is nothing.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        let other =
            || self.map.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value);
        self.map.get(key).or_else(other).filter(|value| !value.is_null())
    }

    /// A text; absent is none.
    pub fn text(self, key: &str) -> Result<Option<&'a str>, CniError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A switch; absent is off.
    pub fn switch(self, key: &str) -> Result<bool, CniError> {
        Ok(self.typed(key, "a boolean", Value::as_bool)?.unwrap_or(false))
    }

    /// A whole number; absent is none.
    pub fn number(self, key: &str) -> Result<Option<i64>, CniError> {
        self.typed(key, "an integer", Value::as_i64)
    }

    /// A list; absent is none.
    pub fn list(self, key: &str) -> Result<Option<&'a Vec<Value>>, CniError> {
        self.typed(key, "an array", Value::as_array)
    }

    /// An object; absent is none.
    pub fn object(self, key: &str) -> Result<Option<Object<'a>>, CniError> {
        Ok(self.typed(key, "an object", Value::as_object)?.map(Object::new))
    }

    /// A list of texts; absent is none.
    pub fn texts(self, key: &str) -> Result<Option<Vec<&'a str>>, CniError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let text =
            |value: &'a Value| value.as_str().ok_or_else(|| wrong_type(key, "an array of strings", value));
        list.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    fn typed<T>(
        self,
        key: &str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CniError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong_type(key, kind, value))
    }
}

fn wrong_type(key: &str, kind: &str, value: &Value) -> CniError {
    CniError::new(
        code::DECODING_FAILURE,
        format!("failed to parse config: {key} must be {kind}, not {value}"),
    )
}
