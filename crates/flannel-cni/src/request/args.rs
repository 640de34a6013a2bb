//! `CNI_ARGS`, read as strictly as Go reads it: `KEY=value;KEY=value`, and only keys that the plugin knows.

use crate::error::CniError;

/// The known keys of `CNI_ARGS` with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Args<'a> {
    /// Reads the text; `known` are the plugin's keys, and others are refused unless `IgnoreUnknown` is on.
    pub fn parse(text: &'a str, known: &[&str]) -> Result<Self, CniError> {
        let mut args = Self::default();
        if text.is_empty() {
            return Ok(args);
        }
        let (mut unknown, mut ignores_unknown) = (Vec::new(), false);
        for pair in text.split(';') {
            let invalid = || CniError::internal(format!("ARGS: invalid pair {pair:?}"));
            let (key, value) = pair.split_once('=').ok_or_else(invalid)?;
            if value.contains('=') {
                return Err(invalid());
            }
            if key == "IgnoreUnknown" {
                ignores_unknown = switch(pair, value)?;
            } else if known.contains(&key) {
                args.pairs.push((key, value));
            } else {
                unknown.push(format!("{pair:?}"));
            }
        }
        if unknown.is_empty() || ignores_unknown {
            return Ok(args);
        }
        Err(CniError::internal(format!("ARGS: unknown args [{}]", unknown.join(" "))))
    }

    /// The value of a key; of several the last counts.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
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
        Args::parse(text, &["IP"]).unwrap_err().to_string()
    }

    #[test]
    fn known_keys_are_found_and_the_last_counts() {
        let args = Args::parse("IP=10.0.0.1;IP=10.0.0.2", &["IP"]).unwrap();
        assert_eq!(args.get("IP"), Some("10.0.0.2"));
        assert_eq!(args.get("MAC"), None);
        assert_eq!(Args::parse("", &["IP"]), Ok(Args::default()));
    }

    #[test]
    fn what_kubernetes_sends_is_taken_because_it_asks_to_ignore_what_is_unknown() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;IP=10.0.0.1";
        assert_eq!(Args::parse(text, &["IP"]).unwrap().get("IP"), Some("10.0.0.1"));
        assert_eq!(Args::parse("FOO=1;IgnoreUnknown=TRUE", &[]), Ok(Args::default()));
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
