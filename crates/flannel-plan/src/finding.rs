//! What is wrong, as parts that programs can act on and one sentence for people.
//!
//! Whoever finds something makes a [`Finding`] there and then: log, `/readyz`, `state.json`, metrics, conditions and
//! `flannelctl status` all show that one. What a code means is written in docs/findings.md.

mod code;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use code::{Code, Severity};

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Finding {
    /// Which of the things that can be wrong it is.
    pub code: Code,
    pub severity: Severity,
    /// The object, node, file or store that it is about.
    pub object: String,
    /// All of it, as one sentence.
    pub text: String,
    /// The part of the sentence that says why, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The part of the sentence that says what to do, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What those who are not on the node are told in place of the sentence.
    #[serde(skip)]
    outside: Option<String>,
}

impl Finding {
    /// A sentence about an object.
    pub fn new(code: Code, object: impl ToString, text: impl ToString) -> Self {
        let (object, text) = (object.to_string(), text.to_string());
        Self { code, severity: code.severity(), object, text, cause: None, remedy: None, outside: None }
    }

    /// A line of a flanneld that gave no code with it.
    pub fn unlisted(text: impl ToString) -> Self {
        Self::new(Code::Unlisted, "", text)
    }

    /// The same under another code.
    pub fn as_code(self, code: Code) -> Self {
        Self { code, severity: code.severity(), ..self }
    }

    /// The same of another object.
    pub fn about(self, object: impl ToString) -> Self {
        Self { object: object.to_string(), ..self }
    }

    /// The same, with the cause behind a colon.
    pub fn because(mut self, cause: impl ToString) -> Self {
        let cause = cause.to_string();
        self.text += &format!(": {cause}");
        self.cause = Some(cause);
        self
    }

    /// The same, with the way out behind a semicolon.
    pub fn or_do(mut self, remedy: impl ToString) -> Self {
        let remedy = remedy.to_string();
        self.text += &format!("; {remedy}");
        self.remedy = Some(remedy);
        self
    }

    /// The same, of whose sentence these are parts already.
    pub fn with_parts(self, cause: Option<String>, remedy: Option<String>) -> Self {
        Self { cause, remedy, ..self }
    }

    /// The same, of which those who are not on the node are told no more than this.
    pub fn told_outside_as(self, outside: impl ToString) -> Self {
        Self { outside: Some(outside.to_string()), ..self }
    }

    /// The same in the middle of a longer sentence.
    pub fn within(self, before: &str, after: &str) -> Self {
        let outside = self.outside.map(|text| format!("{before}{text}"));
        Self { text: format!("{before}{}{after}", self.text), outside, ..self }
    }

    /// The sentence for those who are not on the node.
    pub fn outside(&self) -> &str {
        self.outside.as_ref().unwrap_or(&self.text)
    }

    /// The same with words that strangers may have written cut and cleaned, so that each is one line.
    pub fn harmless(self) -> Self {
        let clean = |text: String| crate::quoted::line(&text).to_string();
        Self {
            object: clean(self.object),
            text: clean(self.text),
            cause: self.cause.map(clean),
            remedy: self.remedy.map(clean),
            outside: self.outside.map(clean),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The sentences of findings.
pub fn texts<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.text.clone()).collect()
}

/// A finding in a file: before there were codes, it was its sentence alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Parts {
        code: Code,
        severity: Severity,
        object: String,
        text: String,
        cause: Option<String>,
        remedy: Option<String>,
    },
    Text(String),
}

impl From<Written> for Finding {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self::unlisted(text),
            Written::Parts { code, severity, object, text, cause, remedy } => {
                Self { code, severity, object, text, cause, remedy, outside: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding::new(Code::BridgeBroken, "cni0", "cni0 is down")
            .because("the pods of this node are cut off")
            .or_do("raise it with `ip link set cni0 up`")
    }

    #[test]
    fn a_finding_is_one_sentence_and_its_parts() {
        let finding = finding();
        let text =
            "cni0 is down: the pods of this node are cut off; raise it with `ip link set cni0 up`".to_owned();
        assert_eq!((finding.to_string(), texts([&finding])), (text.clone(), vec![text]));
        assert_eq!(finding.cause.as_deref(), Some("the pods of this node are cut off"));
        assert_eq!(finding.remedy.as_deref(), Some("raise it with `ip link set cni0 up`"));
        assert_eq!((finding.code.to_string().as_str(), finding.severity), ("FL-0205", Severity::Error));
    }

    #[test]
    fn those_who_are_not_on_the_node_are_told_less_also_in_a_longer_sentence() {
        let secret = finding().told_outside_as("cni0 is down").within("net-conf: ", "; so it waits");
        assert!(secret.text.starts_with("net-conf: cni0 is down: the pods"), "{secret}");
        assert_eq!(secret.outside(), "net-conf: cni0 is down");
        assert_eq!(finding().outside(), finding().text);
    }

    #[test]
    fn what_is_written_reads_the_same_and_so_does_a_line_of_a_flanneld_without_codes() {
        let text = serde_json::to_string(&finding()).unwrap();
        assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), finding());
        let old: Finding = serde_json::from_str(r#""cni0 is down""#).unwrap();
        assert_eq!(old, Finding::unlisted("cni0 is down"));
        let newer = text.replace("FL-0205", "FL-9999");
        let newer: Finding = serde_json::from_str(&newer).unwrap();
        assert_eq!((newer.code, newer.text), (Code::Unlisted, finding().text));
    }
}
