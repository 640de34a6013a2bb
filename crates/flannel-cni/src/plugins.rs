//! The plugins of this program: which there are, and the function that each has for a command.

pub mod bridge;
pub mod flannel;
pub mod host_local;
pub mod loopback;
pub mod portmap;

use crate::error::CniError;
use crate::request::{Command, Request};
use crate::result::Attachment;

/// The functions of a plugin's module.
macro_rules! functions {
    ($plugin:ident) => {
        Functions {
            add: $plugin::add,
            del: $plugin::del,
            check: $plugin::check,
            gc: $plugin::gc,
            status: $plugin::status,
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
        let functions = self.functions();
        match request.command {
            Command::Add => return (functions.add)(request).map(Some),
            Command::Del => (functions.del)(request)?,
            Command::Check => (functions.check)(request)?,
            Command::Gc => (functions.gc)(request)?,
            Command::Status => (functions.status)(request)?,
            Command::Version => {} // answered by the program, for all alike
        }
        Ok(None)
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

    fn functions(self) -> Functions {
        match self {
            Self::Flannel => functions!(flannel),
            Self::Bridge => functions!(bridge),
            Self::HostLocal => functions!(host_local),
            Self::Portmap => functions!(portmap),
            Self::Loopback => functions!(loopback),
        }
    }
}

/// What a plugin does for each command.
struct Functions {
    add: fn(&Request) -> Result<Attachment, CniError>,
    del: fn(&Request) -> Result<(), CniError>,
    check: fn(&Request) -> Result<(), CniError>,
    gc: fn(&Request) -> Result<(), CniError>,
    status: fn(&Request) -> Result<(), CniError>,
}
