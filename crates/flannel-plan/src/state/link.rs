//! Network devices, and every fact that depends on the kind of device. A new kind is a variant and a row of each match.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::link_name::LinkName;
use crate::mac::Mac;
use crate::quoted::quoted;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    pub name: LinkName,
    /// Its MAC, if it is a device that has one: peers hold it, so it is kept for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub up: bool,
    /// The text on it that says whose it is.
    pub alias: Box<str>,
    /// What kind of device, and its settings.
    pub kind: LinkKind,
}

/// The kinds of device that we make.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// An Ethernet tunnel over UDP.
    Vxlan(Vxlan),
    /// A kind that we do not make; only ever observed.
    Other(Box<str>),
}

/// The settings of a vxlan device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vxlan {
    /// The network number in every packet.
    pub vni: u32,
    pub port: u16,
    /// The lower device; none once that device is gone.
    #[serde(rename = "parent")]
    pub lower: Option<LinkName>,
    pub local: Option<IpAddr>,
    /// Whether it learns FDB entries from packets.
    pub learning: bool,
    /// Whether packets carry the group policy extension.
    pub gbp: bool,
}

impl LinkKind {
    /// The kernel's name for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Vxlan(_) => "vxlan",
            Self::Other(name) => name,
        }
    }

    /// Whether it is one that we make: no other device is ever ours.
    pub fn is_made_here(&self) -> bool {
        match self {
            Self::Vxlan(_) => true,
            Self::Other(_) => false,
        }
    }

    /// The device that it sends through.
    pub fn lower(&self) -> Option<LinkName> {
        match self {
            Self::Vxlan(vxlan) => vxlan.lower,
            Self::Other(_) => None,
        }
    }

    /// The settings, if it is a vxlan device.
    pub fn vxlan(&self) -> Option<&Vxlan> {
        match self {
            Self::Vxlan(vxlan) => Some(vxlan),
            Self::Other(_) => None,
        }
    }

    /// Whether a device of this kind cannot be altered into the other, only deleted and made anew.
    pub fn must_be_rebuilt(&self, want: &Self) -> bool {
        match self {
            Self::Vxlan(have) => want.vxlan().is_none_or(|want| have.fixed() != want.fixed()),
            Self::Other(_) => self != want,
        }
    }

    /// Whether the kernel cannot have two such devices at once, whatever their names are.
    pub fn excludes(&self, other: &Self) -> bool {
        match self {
            Self::Vxlan(vxlan) => other.vxlan().is_some_and(|other| vxlan.socket() == other.socket()),
            Self::Other(_) => false,
        }
    }
}

impl Vxlan {
    /// What cannot be altered.
    fn fixed(&self) -> impl PartialEq {
        (self.socket(), self.gbp, self.lower)
    }

    /// VNI, port and family: the kernel has one device for them.
    fn socket(&self) -> (u32, u16, Option<Family>) {
        (self.vni, self.port, self.local.map(Family::of))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} {}", self.name, if self.up { "up" } else { "down" })?;
        if let Some(mac) = self.mac {
            write!(f, " mac {mac}")?;
        }
        write!(f, " mtu {} {}", self.mtu, self.kind)?;
        if self.alias.is_empty() { Ok(()) } else { write!(f, " alias \"{}\"", quoted(&self.alias)) }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vxlan(vxlan) => write!(f, "{vxlan}"),
            Self::Other(name) => write!(f, "{}", quoted(name)),
        }
    }
}

impl fmt::Display for Vxlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vxlan id {} port {}", self.vni, self.port)?;
        if let Some(lower) = self.lower {
            write!(f, " over {lower}")?;
        }
        if let Some(local) = self.local {
            write!(f, " from {local}")?;
        }
        f.write_str(if self.learning { " learning" } else { "" })?;
        f.write_str(if self.gbp { " gbp" } else { "" })
    }
}
