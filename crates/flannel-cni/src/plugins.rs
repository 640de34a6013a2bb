//! The plugins of this program: which there are, and the function that each has for a command.

pub mod bridge;
pub mod flannel;
pub mod host_local;
pub mod loopback;
pub mod portmap;

use self::host_local::Machine;
use crate::error::CniError;
use crate::request::{Command, Request};
use crate::result::Attachment;

/// Calls the function that a plugin has for a command; only ADD has something to give.
macro_rules! call {
    ($plugin:ident, $request:ident $(, $machine:expr)?) => {
        match $request.command {
            Command::Add => $plugin::add($($machine,)? $request).map(Some),
            Command::Del => $plugin::del($($machine,)? $request).map(|()| None),
            Command::Check => $plugin::check($($machine,)? $request).map(|()| None),
            Command::Gc => $plugin::gc($($machine,)? $request).map(|()| None),
            Command::Status => $plugin::status($($machine,)? $request).map(|()| None),
            Command::Version => Ok(None), // answered by the program, for all alike
        }
    };
}

/// A plugin of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Reads what flanneld wrote and hands on to another.
    Flannel,
    /// Connects containers to a bridge.
    Bridge,
    /// Hands out addresses from ranges of this host.
    HostLocal,
    /// Forwards ports of the host.
    Portmap,
    /// Raises `lo`.
    Loopback,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Plugin; 5] =
        [Self::Flannel, Self::Bridge, Self::HostLocal, Self::Portmap, Self::Loopback];

    /// The name that the program is called by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flannel => "flannel",
            Self::Bridge => "bridge",
            Self::HostLocal => "host-local",
            Self::Portmap => "portmap",
            Self::Loopback => "loopback",
        }
    }

    /// The plugin of a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// Does what is asked; only ADD has something to give.
    pub fn call(self, request: &Request) -> Result<Option<Attachment>, CniError> {
        match self {
            Self::Flannel => call!(flannel, request),
            Self::Bridge => call!(bridge, request),
            Self::HostLocal => call!(host_local, request, &Machine::this()),
            Self::Portmap => call!(portmap, request),
            Self::Loopback => call!(loopback, request),
        }
    }

    /// Reads what a request says as a call does first, and does nothing: whether it could be understood.
    pub fn read(self, request: &Request) -> Result<(), CniError> {
        request.prev_result()?;
        match self {
            Self::Flannel => flannel::read(request),
            Self::Bridge => bridge::read(request),
            Self::HostLocal => host_local::read(request),
            Self::Portmap => portmap::read(request),
            Self::Loopback => Ok(()),
        }
    }
}
