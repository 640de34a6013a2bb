//! Tells systemd how the daemon is. Takes the socket that NOTIFY_SOCKET names, gives datagrams; without a socket
//! it does nothing. (Our own: the crate for it knows no abstract sockets, which Go flannel does.)

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Who wants to know how the daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supervisor {
    socket: Option<OsString>,
}

/// One word to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState<'a> {
    /// The node is wired for the first time.
    Ready,
    /// How the daemon is, in one line.
    Status(&'a str),
    Stopping,
}

impl ServiceState<'_> {
    fn line(self) -> String {
        match self {
            Self::Ready => "READY=1\n".to_owned(),
            // A second line would be another word.
            Self::Status(text) => format!("STATUS={}\n", text.replace(['\n', '\r'], " ")),
            Self::Stopping => "STOPPING=1\n".to_owned(),
        }
    }
}

impl Supervisor {
    /// The one that the environment names; the variable stays for children, as in Go.
    pub fn from_environment() -> Self {
        Self::at(std::env::var_os("NOTIFY_SOCKET"))
    }

    /// The one behind this socket.
    pub fn at(socket: Option<OsString>) -> Self {
        Self { socket: socket.filter(|name| !name.is_empty()) }
    }

    /// Tells it these words at once, and never waits for it.
    pub fn tell(&self, words: &[ServiceState<'_>]) -> io::Result<()> {
        let Some(name) = &self.socket else { return Ok(()) };
        let text: String = words.iter().map(|word| word.line()).collect();
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(text.as_bytes(), &address(name)?).map(drop)
    }
}

/// A leading `@` means a name in the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram) -> String {
        by.set_nonblocking(true).unwrap();
        let mut text = [0; 256];
        let length = by.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_supervisor_hears_several_words_at_once_each_in_one_line() {
        let name = format!("flanneld-notify-{}", std::process::id());
        let ear = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let supervisor = Supervisor::at(Some(format!("@{name}").into()));
        supervisor.tell(&[ServiceState::Ready, ServiceState::Status("7 peers\nREADY=0")]).unwrap();
        assert_eq!(heard(&ear), "READY=1\nSTATUS=7 peers READY=0\n");
        supervisor.tell(&[ServiceState::Stopping]).unwrap();
        assert_eq!(heard(&ear), "STOPPING=1\n");
    }

    #[test]
    fn a_supervisor_behind_a_path_hears_too() {
        let path = std::env::temp_dir().join(format!("flanneld-notify-{}.sock", std::process::id()));
        let ear = UnixDatagram::bind(&path).unwrap();
        let told = Supervisor::at(Some(path.clone().into())).tell(&[ServiceState::Ready]);
        std::fs::remove_file(path).unwrap();
        told.unwrap();
        assert_eq!(heard(&ear), "READY=1\n");
    }

    #[test]
    fn nobody_is_told_where_nobody_asks() {
        assert_eq!(Supervisor::at(Some(OsString::new())), Supervisor::default());
        Supervisor::default().tell(&[ServiceState::Ready]).unwrap();
    }

    #[test]
    fn a_supervisor_that_is_gone_is_an_error() {
        let gone = Supervisor::at(Some("/nonexistent/notify".into()));
        assert_eq!(gone.tell(&[ServiceState::Ready]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
