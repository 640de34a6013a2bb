//! JSON objects as Go reads them: keys without regard to case, `null` is absent, unknown keys are ignored.

use std::net::IpAddr;

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

    /// The value of a key: of several that differ in case only the last counts; `null` is nothing.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        let is_it = |(name, value): &(&String, &Value)| !value.is_null() && name.eq_ignore_ascii_case(key);
        self.map.iter().rev().find(is_it).map(|(_, value)| value)
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

    /// An address, one of IPv4 in IPv6 clothes as what it is; absent and empty is none.
    pub fn address(self, key: &str) -> Result<Option<IpAddr>, CniError> {
        let Some(text) = self.text(key)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let wrong = |_| CniError::internal(format!("invalid IP address: {text}"));
        text.parse().map(|address: IpAddr| Some(address.to_canonical())).map_err(wrong)
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
    pub fn texts(self, key: &str) -> Result<Option<Vec<String>>, CniError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let text = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(wrong_type(key, "an array of strings", value)),
        };
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

/// A value as Go prints results and errors: four spaces a level, no line end.
pub fn indented(value: &Value) -> String {
    let mut bytes = Vec::with_capacity(1024);
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, format);
    // Neither memory nor a value that was read or made here can refuse.
    let _ = serde::Serialize::serialize(value, &mut writer);
    String::from_utf8(bytes).unwrap_or_default()
}

/// An object as Go stores it: no spaces, keys in the order of the alphabet, and no letter that HTML knows.
pub fn compact(object: &Map<String, Value>) -> String {
    let mut value = Value::Object(object.clone());
    value.sort_all_objects();
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    // They can only stand inside of texts.
    let escapes = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    escapes.iter().fold(text, |text, (letter, escape)| text.replace(*letter, escape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_indented_by_four_spaces_and_end_without_a_line_end() {
        let text = indented(&json!({"a": [1, {"b": "c"}], "d": {}, "e": []}));
        assert_eq!(
            text,
            "{\n    \"a\": [\n        1,\n        {\n            \"b\": \"c\"\n        }\n    ],\n    \"d\": {},\n    \"e\": []\n}"
        );
    }

    #[test]
    fn a_stored_object_is_to_the_byte_what_go_stores() {
        let object = json!({"b": {"d": 1, "c": "<&>"}, "a": true});
        assert_eq!(
            compact(object.as_object().unwrap()),
            r#"{"a":true,"b":{"c":"\u003c\u0026\u003e","d":1}}"#
        );
    }

    #[test]
    fn keys_are_found_without_regard_to_case_and_null_is_absent() {
        let value = json!({"HostPort": 80, "x": null, "Y": [1], "t": "no", "T": "text", "hostport": null});
        let object = Object::new(value.as_object().unwrap());
        assert_eq!(object.number("hostPort"), Ok(Some(80)));
        assert_eq!(object.text("X"), Ok(None));
        assert_eq!(object.text("t"), Ok(Some("text")));
        assert_eq!(object.switch("none"), Ok(false));
        assert_eq!(object.texts("y").unwrap_err().code, code::DECODING_FAILURE);
        assert_eq!(
            object.text("HostPort").unwrap_err().msg,
            "failed to parse config: HostPort must be a string, not 80"
        );
    }
}
