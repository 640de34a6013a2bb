//! The proxy that the environment names for a server, read as Go's programs read it, and the way through it.
//!
//! HTTPS_PROXY and HTTP_PROXY name one, NO_PROXY whom it is not for; this host itself is never asked for by one.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flannel_plan::secret::Secret;
use http::Uri;
use ipnet::IpNet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No proxy says more before the way is open.
const LONGEST_ANSWER: usize = 8 << 10;

/// What the environment says of proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    https: Option<String>,
    http: Option<String>,
    exempt: String,
}

/// A proxy that opens ways by CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    host: String,
    port: u16,
    authorization: Option<Secret>,
}

/// A proxy that is named, and cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} names a proxy that flannel cannot use ({reason}): expected http://HOST:PORT; or name the server in \
     NO_PROXY"
)]
pub struct ProxyError {
    variable: &'static str,
    reason: &'static str,
}

impl Proxies {
    /// Those of this process.
    pub(crate) fn of_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let either = |upper: &str| set(upper).or_else(|| set(&upper.to_lowercase()));
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            exempt: either("NO_PROXY").unwrap_or_default(),
        }
    }

    /// One for every server but these.
    #[cfg(fuzzing)]
    pub(crate) fn named(https: &str, exempt: &str) -> Self {
        Self { https: Some(https.to_owned()), http: None, exempt: exempt.to_owned() }
    }

    /// The proxy for a server, if one is for it.
    pub(crate) fn way_to(&self, tls: bool, host: &str, port: u16) -> Result<Option<Proxy>, ProxyError> {
        let (variable, named) = if tls { ("HTTPS_PROXY", &self.https) } else { ("HTTP_PROXY", &self.http) };
        match named {
            Some(url) if !self.is_exempt(host, port) => {
                url.parse().map(Some).map_err(|reason| ProxyError { variable, reason })
            }
            _ => Ok(None),
        }
    }

    fn is_exempt(&self, host: &str, port: u16) -> bool {
        let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let mut rules = self.exempt.split(',').map(|rule| rule.trim().to_lowercase());
        is_here || rules.any(|rule| is_meant(&rule, &host, address, port))
    }
}

/// Whether an entry of NO_PROXY means a server: `*`, an address, a network, or a domain and what is below it; each but
/// a network perhaps with a port.
fn is_meant(rule: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if rule.is_empty() || rule == "*" {
        return rule == "*";
    }
    if let Ok(network) = rule.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    let is_address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let (name, asked) = match rule.rsplit_once(':') {
        Some((name, number)) if is_address(rule).is_none() => (name, number.parse().ok()),
        _ => (rule, None),
    };
    if asked.is_some_and(|asked: u16| asked != port) {
        return false;
    }
    if let Some(meant) = is_address(name) {
        return address == Some(meant);
    }
    let domain = name.strip_prefix('*').unwrap_or(name);
    let below = domain.trim_start_matches('.');
    let is_below = host.strip_suffix(below).is_some_and(|rest| rest.ends_with('.'));
    is_below || (!domain.starts_with('.') && host == below)
}

impl FromStr for Proxy {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, &'static str> {
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = whole.parse().map_err(|_| "it is no URL")?;
        if uri.scheme_str() != Some("http") {
            return Err("only http is spoken to a proxy");
        }
        let authority = uri.authority().ok_or("it names no host")?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| user.contains('%')) {
            return Err("its user or password has a %");
        }
        let authorization = user.map(|user| Secret::new(format!("Basic {}", STANDARD.encode(user))));
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authorization })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}:{}", self.host, self.port)
    }
}

impl Proxy {
    /// Opens a way to a server.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let named = |cause: io::Error| io::Error::new(cause.kind(), format!("{self}: {cause}"));
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(named)?;
        let server = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let authorization = self.authorization.as_ref().map(|secret| secret.reveal());
        let authorization =
            authorization.map(|words| format!("Proxy-Authorization: {words}\r\n")).unwrap_or_default();
        let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.map_err(named)?;
        let answer = read_head(&mut stream).await.map_err(named)?;
        let status = answer.lines().next().unwrap_or_default();
        if status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
            return Ok(stream);
        }
        let status: String = status.chars().filter(|c| !c.is_control()).take(80).collect();
        let words =
            format!("{self} answers {status:?}: let it CONNECT to {server}, or name {host} in NO_PROXY");
        Err(io::Error::other(words))
    }
}

/// Reads the head of an answer, and nothing of what comes behind it.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
        if head.len() > LONGEST_ANSWER {
            return Err(io::Error::other("its answer has no end"));
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(exempt: &str) -> Proxies {
        let [https, http] = ["http://me:planted@p:3128", "p2"].map(|url| Some(url.to_owned()));
        Proxies { https, http, exempt: exempt.to_owned() }
    }

    #[test]
    fn whom_a_proxy_is_not_for_is_read_as_go_reads_it() {
        let rules = "10.96.0.0/12, .svc,example.com, *.corp,192.0.2.7, [fd00::7]:443,api:6443";
        let goes = |host: &str, port| proxies(rules).way_to(true, host, port).unwrap().is_some();
        for host in [
            "10.96.0.1",
            "a.svc",
            "example.com",
            "k8s.example.com",
            "x.corp",
            "192.0.2.7",
            "127.0.0.1",
            "localhost",
            "::1",
        ] {
            assert!(!goes(host, 1), "{host}");
        }
        for host in ["10.112.0.1", "svc", "notexample.com", "corp", "192.0.2.8", "api"] {
            assert!(goes(host, 1), "{host}");
        }
        assert!(!goes("api", 6443) && !goes("fd00::7", 443) && goes("fd00::7", 80));
        assert_eq!(proxies("*").way_to(true, "h", 1), Ok(None));
        assert_eq!(Proxies::default().way_to(true, "h", 1), Ok(None));
    }

    #[test]
    fn a_proxy_is_chosen_by_the_scheme_and_its_password_is_not_shown() {
        let secure = proxies("").way_to(true, "h", 1).unwrap().unwrap();
        assert_eq!(secure.to_string(), "proxy p:3128");
        assert!(secure.authorization.is_some() && !format!("{secure:?}").contains("planted"));
        assert_eq!(proxies("").way_to(false, "h", 1).unwrap().unwrap().to_string(), "proxy p2:80");
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_refused_by_name() {
        for url in ["socks5://p:1080", "https://p:3129", "http://", "http://a%40b:c@p"] {
            let proxies = Proxies { https: Some(url.to_owned()), ..Proxies::default() };
            let wrong = proxies.way_to(true, "h", 1).unwrap_err().to_string();
            assert!(wrong.starts_with("HTTPS_PROXY names a proxy that flannel cannot use"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_way_is_opened_by_connect_and_a_refusal_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in ["200 OK\r\nX: y\r\n\r\nhello", "403 Forbidden\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                asked.push(read_head(&mut stream).await.unwrap());
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
            }
            asked
        });
        let proxy: Proxy = format!("http://me:word@127.0.0.1:{port}").parse().unwrap();
        let mut stream = proxy.connect("fd00::1", 6443).await.unwrap();
        let mut behind = [0; 5];
        stream.read_exact(&mut behind).await.unwrap();
        assert_eq!(&behind, b"hello");
        let refused = proxy.connect("h", 1).await.unwrap_err().to_string();
        assert!(refused.contains("403 Forbidden") && refused.contains("NO_PROXY"), "{refused}");
        let asked = answers.await.unwrap();
        assert!(asked[0].starts_with("CONNECT [fd00::1]:6443 HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].contains("Proxy-Authorization: Basic bWU6d29yZA==\r\n"), "{}", asked[0]);
    }
}
