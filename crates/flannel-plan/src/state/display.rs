//! How keys and items read: in logs, in errors, in golden files.

use std::fmt;

use crate::quoted::quoted;

use super::{
    FdbEntry, Item, Key, Link, LinkKind, Neighbour, PROTOCOL, PROTOCOL_BOOT, PROTOCOL_KERNEL, Route,
    RouteKind, Vxlan,
};

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(f, "link {name}"),
            Self::Address(link, address) => write!(f, "address {address} dev {link}"),
            Self::Sysctl(path) => write!(f, "sysctl {path}"),
            Self::Fdb(link, mac) => write!(f, "fdb {mac} dev {link}"),
            Self::Neighbour(link, address) => write!(f, "neighbour {address} dev {link}"),
            Self::Route(destination) => write!(f, "route {destination}"),
            Self::Rules(table) => write!(f, "rules {table}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

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

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.up { "up" } else { "down" };
        write!(f, "link {} {state} mac {} mtu {}", self.name, self.mac, self.mtu)?;
        match &self.kind {
            LinkKind::Other(kind) => write!(f, " {}", quoted(kind))?,
            LinkKind::Vxlan(vxlan) => write!(f, " {vxlan}")?,
        }
        if self.alias.is_empty() { Ok(()) } else { write!(f, " alias \"{}\"", quoted(&self.alias)) }
    }
}

impl fmt::Display for Vxlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vxlan id {} port {}", self.vni, self.port)?;
        if let Some(parent) = self.parent {
            write!(f, " over {parent}")?;
        }
        if let Some(local) = self.local {
            write!(f, " from {local}")?;
        }
        f.write_str(if self.learning { " learning" } else { "" })?;
        f.write_str(if self.gbp { " gbp" } else { "" })
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
