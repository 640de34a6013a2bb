//! How items read: in logs, in errors, in golden files.

use std::fmt;

use crate::quoted::quoted;

use super::{FdbEntry, Item, Neighbour, PROTOCOL, PROTOCOL_BOOT, PROTOCOL_KERNEL, Route, RouteKind};

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(link) => write!(f, "{link}"),
            Self::Address(_) => write!(f, "{}", self.key()),
            Self::Sysctl(sysctl) => write!(f, "sysctl {} = {}", sysctl.path, quoted(&sysctl.value)),
            Self::Fdb(entry) => write!(f, "{entry}"),
            Self::Neighbour(neighbour) => write!(f, "{neighbour}"),
            Self::Route(route) => write!(f, "{route}"),
            Self::Rules(table) => write!(f, "{table}"),
            Self::File(file) => {
                write!(f, "file {} ({:04o}, {} bytes)", file.path, file.mode, file.content.len())
            }
        }
    }
}

impl fmt::Display for FdbEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fdb {} dev {}", self.mac, self.link)?;
        if let Some(destination) = self.destination {
            write!(f, " to {destination}")?;
        }
        if self.marked { Ok(()) } else { f.write_str(" (not marked as ours)") }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour {} dev {} mac {}", self.address, self.link, self.mac)?;
        if self.protocol == PROTOCOL { Ok(()) } else { write!(f, " protocol {}", self.protocol) }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteKind::Unicast => write!(f, "route {}", self.destination)?,
            RouteKind::Multipath => write!(f, "multipath route {}", self.destination)?,
            RouteKind::Blackhole => write!(f, "blackhole route {}", self.destination)?,
            RouteKind::Other => write!(f, "special route {}", self.destination)?,
        }
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(link) = self.link {
            write!(f, " dev {link}")?;
        }
        f.write_str(if self.onlink { " onlink" } else { "" })?;
        match self.protocol {
            PROTOCOL => Ok(()),
            PROTOCOL_KERNEL => f.write_str(" protocol kernel"),
            PROTOCOL_BOOT => f.write_str(" protocol boot"),
            other => write!(f, " protocol {other}"),
        }
    }
}
