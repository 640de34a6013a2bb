//! One HTTP question to a program inside a machine, as plain as it can be.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// An answer that takes longer than this is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks 127.0.0.1 in the network of the calling thread; gives the status code and the body.
pub(crate) fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    ask(port, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
}

/// Sends a JSON text to 127.0.0.1 in the network of the calling thread, with a token where one is needed; gives the
/// status code and the body.
pub(crate) fn post(port: u16, path: &str, token: Option<&str>, body: &str) -> io::Result<(u16, String)> {
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let head = format!("Host: localhost\r\nContent-Type: application/json\r\n{token}");
    ask(port, &format!("POST {path} HTTP/1.0\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len()))
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
