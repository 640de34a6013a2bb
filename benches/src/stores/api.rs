//! A connection to the API server that stays open, so that no start of a program is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, ensure};
use flannel_lab::Kubernetes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection of an administrator.
pub struct Api {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    head: String,
}

impl Api {
    /// Connects from the server itself.
    pub fn connect(kubernetes: Kubernetes<'_>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(kubernetes.certificate())? {
            // The first one is the server's own, which vouches for nobody.
            let _ = roots.add(certificate?);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = kubernetes.server().v4();
        let to = SocketAddr::new(address, 6443);
        let stream = kubernetes.server().inside(|| TcpStream::connect(to))??;
        stream.set_nodelay(true)?;
        let session = ClientConnection::new(Arc::new(config), ServerName::from(address))?;
        let head =
            format!("Host: {address}\r\nAuthorization: Bearer {}\r\n", kubernetes.admin_token()?.trim());
        Ok(Self { stream: BufReader::new(StreamOwned::new(session, stream)), head })
    }

    /// Asks, and takes nothing but success.
    pub fn ask(&mut self, method: &str, path: &str, kind: &str, body: &str) -> anyhow::Result<()> {
        let question = format!(
            "{method} {path} HTTP/1.1\r\n{}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.get_mut().write_all(question.as_bytes())?;
        self.stream.get_mut().flush()?;
        let (code, answer) = self.answer()?;
        ensure!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<(u16, String)> {
        let code = self.line()?.split_whitespace().nth(1).context("no status")?.parse()?;
        let (mut length, mut in_chunks) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse()?,
                Some(("transfer-encoding", _)) => in_chunks = true,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = Vec::new();
        if in_chunks {
            while let Some(chunk) = self.chunk()? {
                body.extend(chunk);
            }
        } else {
            body = self.bytes(length)?;
        }
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    fn chunk(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let length = usize::from_str_radix(self.line()?.trim(), 16)?;
        let bytes = self.bytes(length)?;
        self.line()?;
        Ok((length > 0).then_some(bytes))
    }

    fn bytes(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the API server hung up");
        Ok(line.trim_end().to_owned())
    }
}
