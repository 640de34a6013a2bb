//! Results as they pass from plugin to plugin: what was printed, with a version, and what it means.

use serde_json::{Map, Value};

use crate::error::{CniError, OrInternal};
use crate::result::Attachment;
use crate::version::Version;

/// What a plugin answered to ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// As it was printed; its `cniVersion` is never missing.
    pub json: Map<String, Value>,
    pub attachment: Attachment,
}

impl Answer {
    /// Reads what a plugin printed; without a version it is of the configuration's, and `null` is nothing.
    pub(super) fn parse(stdout: &[u8], version: &str) -> Result<Self, CniError> {
        let json: Result<Option<Map<String, Value>>, _> = serde_json::from_slice(stdout);
        let mut json = json.or_internal(format_args!("failed to unmarshal raw result"))?.unwrap_or_default();
        if json.get("cniVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
            let version = if version.is_empty() { Version::V0_1_0.as_str() } else { version };
            json.insert("cniVersion".to_owned(), version.into());
        }
        Ok(Self { attachment: Attachment::from_output(&json, Version::V0_1_0)?, json })
    }
}

/// A remembered result in the version that the network has now.
pub(super) fn in_version(result: Map<String, Value>, version: &str) -> Result<Map<String, Value>, CniError> {
    let attachment = Attachment::from_output(&result, Version::V0_1_0)?;
    let target = Version::find(version).ok_or_else(|| {
        let own = result.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
        CniError::internal(format!("no converter for CNI result version {own} to {version}"))
    })?;
    if result.get("cniVersion").and_then(Value::as_str) == Some(target.as_str()) {
        return Ok(result);
    }
    match attachment.to_json(target)? {
        Value::Object(result) => Ok(result),
        other => Err(CniError::internal(format!("bug: a result became {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_without_a_version_has_that_of_the_configuration() {
        let of = |stdout: &str, version| Answer::parse(stdout.as_bytes(), version).map(|it| it.json.into());
        assert_eq!(of("{}", "1.0.0"), Ok(json!({"cniVersion": "1.0.0"})));
        assert_eq!(of(r#"{"cniVersion":"","dns":{}}"#, ""), Ok(json!({"cniVersion": "0.1.0", "dns": {}})));
        assert_eq!(of("null", "0.4.0"), Ok(json!({"cniVersion": "0.4.0"})));
        assert_eq!(of(r#"{"cniVersion":"0.4.0"}"#, "1.0.0"), Ok(json!({"cniVersion": "0.4.0"})));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let of = |stdout: &str| Answer::parse(stdout.as_bytes(), "1.0.0").unwrap_err().msg;
        assert_eq!(of(""), "failed to unmarshal raw result: EOF while parsing a value at line 1 column 0");
        assert!(of("[]").starts_with("failed to unmarshal raw result: invalid type"));
        assert_eq!(of(r#"{"cniVersion":"9.9.9"}"#), "unsupported CNI result version \"9.9.9\"");
        assert_eq!(of(r#"{"ips":[{"address":"x"}]}"#), "invalid CIDR address: x");
    }

    #[test]
    fn a_remembered_result_is_converted_unless_the_version_is_the_same() {
        let result =
            json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}], "x": 1});
        let of = |version| in_version(result.as_object().unwrap().clone(), version).map(Value::from);
        assert_eq!(of("0.3.1"), Ok(result.clone()));
        assert_eq!(of("1.0.0"), Ok(json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}]})));
        let single = json!({"cniVersion": "0.1.0", "ip4": {"ip": "10.1.2.3/24"}, "dns": {}});
        assert_eq!(of(""), Ok(single));
        assert_eq!(of("2.0.0").unwrap_err().msg, "no converter for CNI result version 0.3.1 to 2.0.0");
    }
}
