//! One HTTP question to a program inside a machine, as plain as it can be.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::machine::Machine;
use crate::{LabError, Result};

/// An answer that takes longer than this is none.
const PATIENCE: Duration = Duration::from_secs(10);

impl Machine {
    /// Asks a program on the machine's 127.0.0.1; gives the status code and the body.
    pub fn http_get(&self, port: u16, path: &str) -> Result<(u16, String)> {
        self.http(port, path, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends it a JSON text, with a token where one is needed.
    pub(crate) fn http_post(
        &self,
        port: u16,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(u16, String)> {
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let head = format!("Host: localhost\r\nContent-Type: application/json\r\n{token}");
        let length = body.len();
        let text = format!("POST {path} HTTP/1.0\r\n{head}Content-Length: {length}\r\n\r\n{body}");
        self.http(port, path, &text)
    }

    fn http(&self, port: u16, path: &str, question: &str) -> Result<(u16, String)> {
        let answer = self.inside(|| ask(port, question))?;
        answer.map_err(|why| self.no_answer(format!("http://127.0.0.1:{port}{path}"), why))
    }

    pub(crate) fn no_answer(&self, to: impl ToString, why: impl ToString) -> LabError {
        LabError::NoAnswer { from: self.name().to_owned(), to: to.to_string(), why: why.to_string() }
    }
}

fn ask(port: u16, question: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    parsed(&answer).ok_or_else(|| io::Error::other(format!("no HTTP answer: {answer:?}")))
}

fn parsed(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_code_and_a_body() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nnoway";
        assert_eq!(parsed(answer), Some((503, "noway".to_owned())));
        assert_eq!(parsed("what?"), None);
    }
}
