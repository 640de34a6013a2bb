//! `CNI_ARGS`, read as strictly as Go reads it: `KEY=value;KEY=value`, and only keys that the plugin knows.

use crate::error::CniError;

/// The value of a key, of several the last; keys that are not `known` are refused unless `IgnoreUnknown` is on.
pub(super) fn value_of<'a>(text: &'a str, wanted: &str, known: &[&str]) -> Result<Option<&'a str>, CniError> {
    let (mut found, mut unknown, mut ignores_unknown) = (None, Vec::new(), false);
    for pair in text.split(';').filter(|_| !text.is_empty()) {
        let invalid = || CniError::internal(format!("ARGS: invalid pair {pair:?}"));
        let (key, value) = pair.split_once('=').ok_or_else(invalid)?;
        if value.contains('=') {
            return Err(invalid());
        }
        if key == "IgnoreUnknown" {
            ignores_unknown = switch(pair, value)?;
        } else if key == wanted {
            found = Some(value);
        } else if !known.contains(&key) {
            unknown.push(format!("{pair:?}"));
        }
    }
    if unknown.is_empty() || ignores_unknown {
        return Ok(found);
    }
    Err(CniError::internal(format!("ARGS: unknown args [{}]", unknown.join(" "))))
}

fn switch(pair: &str, value: &str) -> Result<bool, CniError> {
    match &*value.to_ascii_lowercase() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(CniError::internal(format!(
            "ARGS: error parsing value of pair {pair:?}: boolean unmarshal error: invalid input {value}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        value_of(text, "IP", &["IP"]).unwrap_err().to_string()
    }

    #[test]
    fn known_keys_are_found_and_the_last_counts() {
        let text = "IP=10.0.0.1;IP=10.0.0.2";
        assert_eq!(value_of(text, "IP", &["IP"]), Ok(Some("10.0.0.2")));
        assert_eq!(value_of(text, "MAC", &["IP"]), Ok(None));
        assert_eq!(value_of("", "IP", &["IP"]), Ok(None));
    }

    #[test]
    fn what_kubernetes_sends_is_taken_because_it_asks_to_ignore_what_is_unknown() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;IP=10.0.0.1";
        assert_eq!(value_of(text, "IP", &["IP"]), Ok(Some("10.0.0.1")));
        assert_eq!(value_of("FOO=1;IgnoreUnknown=TRUE", "IP", &[]), Ok(None));
    }

    #[test]
    fn a_pair_is_one_key_one_equals_sign_and_one_value() {
        assert_eq!(words("IP"), "ARGS: invalid pair \"IP\"");
        assert_eq!(words("IP=a=b"), "ARGS: invalid pair \"IP=a=b\"");
        assert_eq!(words("IP=a;"), "ARGS: invalid pair \"\"");
    }

    #[test]
    fn unknown_keys_are_refused_with_regard_to_case() {
        assert_eq!(words("ip=1;MAC=2"), "ARGS: unknown args [\"ip=1\" \"MAC=2\"]");
        assert_eq!(words("IgnoreUnknown=false;MAC=2"), "ARGS: unknown args [\"MAC=2\"]");
        assert_eq!(words("ignoreunknown=1"), "ARGS: unknown args [\"ignoreunknown=1\"]");
        let unreadable = "ARGS: error parsing value of pair \"IgnoreUnknown=yes\": \
                          boolean unmarshal error: invalid input yes";
        assert_eq!(words("IgnoreUnknown=yes"), unreadable);
    }
}
