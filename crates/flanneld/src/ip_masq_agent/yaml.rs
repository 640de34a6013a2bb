//! YAML as JSON: the file of ip-masq-agent may be either. Takes the text, gives a JSON object in text.

use flannel_leases::yaml::{self, Aliases};
use serde_json::{Map, Value};
use yaml_rust2::Yaml;

/// The text as a JSON object; nothing at all is an object without keys, as in Go.
pub fn to_json(text: &str) -> Result<String, String> {
    // Go does the same: what begins like JSON is read as JSON, which may have tabs where YAML has none.
    if text.trim_start().starts_with('{') {
        return Ok(text.to_owned());
    }
    let documents = yaml::load(text, Aliases::Refused)?;
    match documents.first() {
        None | Some(Yaml::Null) => Ok("{}".to_owned()),
        Some(Yaml::Hash(_)) => Ok(value(&documents[0]).to_string()),
        Some(_) => Err("it has no keys: expected lines such as `masqLinkLocal: true`".to_owned()),
    }
}

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null | Yaml::BadValue | Yaml::Alias(_) => Value::Null,
        Yaml::Boolean(truth) => Value::Bool(*truth),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::Real(text) => {
            text.parse().map_or_else(|_| Value::String(text.clone()), |it: f64| Value::from(it))
        }
        // The YAML of Go has more words for yes and no.
        Yaml::String(text) => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" | "y" => Value::Bool(true),
            "no" | "off" | "n" => Value::Bool(false),
            _ => Value::String(text.clone()),
        },
        Yaml::Array(values) => values.iter().map(value).collect(),
        Yaml::Hash(entries) => {
            let entry = |(key, entry): (&Yaml, &Yaml)| (key_text(key), value(entry));
            Value::Object(entries.iter().map(entry).collect::<Map<_, _>>())
        }
    }
}

fn key_text(key: &Yaml) -> String {
    match value(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = "# comment\nnonMasqueradeCIDRs:\n  - 10.0.0.0/8\n  - \"fd00::/8\"\ncidrLimit: 64\n\
                    masqLinkLocal: no\nmasqLinkLocalIPv6: True\nresyncInterval: 60s\n";
        let json = r#"{"nonMasqueradeCIDRs":["10.0.0.0/8","fd00::/8"],"cidrLimit":64,"masqLinkLocal":false,"masqLinkLocalIPv6":true,"resyncInterval":"60s"}"#;
        assert_eq!(to_json(yaml), Ok(json.to_owned()));
        assert_eq!(to_json(json), Ok(json.to_owned()));
        assert_eq!(to_json("\t{\n\t}"), Ok("\t{\n\t}".to_owned()));
        assert_eq!(to_json("nonMasqueradeCIDRs: []"), Ok(r#"{"nonMasqueradeCIDRs":[]}"#.to_owned()));
        assert_eq!(to_json("nonMasqueradeCIDRs:"), Ok(r#"{"nonMasqueradeCIDRs":null}"#.to_owned()));
    }

    #[test]
    fn nothing_is_an_object_without_keys() {
        for text in ["", "\n", "# only words\n", "---\n", "null"] {
            assert_eq!(to_json(text), Ok("{}".to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let begins = |text: &str, words: &str| {
            let fault = to_json(text).unwrap_err();
            assert!(fault.starts_with(words), "{text:?}: {fault}");
        };
        begins("- 10.0.0.0/8", "it has no keys");
        begins("just words", "it has no keys");
        begins("a: [1", "it is not YAML");
        begins("a: 1\na: 2", "it is not YAML");
        begins("a: &x [1, 2]\nb: [*x, *x]", "it has an alias");
    }
}
