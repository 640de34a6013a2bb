//! Questions to the API server, asked by `curl` from its own server.

use serde_json::Value;

use super::Kubernetes;
use crate::{LabError, Result, program};

/// How a change of an object is written: keys that are null go.
const MERGE: &str = "application/merge-patch+json";

impl Kubernetes<'_> {
    /// Asks as an administrator; gives the status code and the answer, which is null if it is no JSON.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let token = self.admin_token()?;
        self.request_as(&token, method, path, body)
    }

    /// Asks with somebody's token.
    pub fn request_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let kind = if method == "PATCH" { MERGE } else { "application/json" };
        let mut lines = format!(
            "url = \"{}{path}\"\nrequest = \"{method}\"\ncacert = \"{}\"\nmax-time = 20\n\
             header = \"Authorization: Bearer {token}\"\nheader = \"Content-Type: {kind}\"\n",
            self.url(),
            self.certificate().display(),
        );
        if let Some(body) = body {
            lines += &format!("data-binary = \"{}\"\n", escaped(&body.to_string()));
        }
        let ask = || program::run_with_input(program::command("curl").args(CURL), &lines);
        let said = self.server.inside(ask)??;
        let (answer, code) = said.rsplit_once('\n').unwrap_or(("", &said));
        let code = code.parse().map_err(|_| self.refused(path, &said))?;
        Ok((code, serde_json::from_str(answer).unwrap_or_default()))
    }

    /// Asks, and takes nothing but success.
    fn demand(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        match self.request(method, path, body)? {
            (200..=299, answer) => Ok(answer),
            (_, answer) => Err(self.refused(path, &answer.to_string())),
        }
    }

    fn refused(&self, path: &str, why: &str) -> LabError {
        self.server.no_answer(format!("{}{path}", self.url()), why)
    }

    /// An object.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.demand("GET", path, None)
    }

    /// Makes an object in a collection.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.demand("POST", path, Some(object))
    }

    /// Changes an object by a merge patch.
    pub fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.demand("PATCH", path, Some(change))
    }

    /// Deletes an object.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.demand("DELETE", path, None)
    }
}

/// The question comes on standard input, so that no token is on a command line.
const CURL: [&str; 6] = ["--silent", "--show-error", "--config", "-", "--write-out", "\n%{http_code}"];

/// As curl reads a text between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_between_quotes_hides_what_would_end_it() {
        assert_eq!(escaped("{\"a\":\"b\\n\"}\n"), r#"{\"a\":\"b\\n\"}\n"#);
    }
}
