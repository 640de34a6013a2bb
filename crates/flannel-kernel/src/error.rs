//! What can go wrong when looking and applying: the object, the cause, and the way out.

use flannel_plan::diff::Change;
use flannel_plan::link_name::LinkName;
use flannel_plan::state::{Item, Link};
use rustix::io::Errno;

use crate::netlink::NetlinkError;

/// A change that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The change.
    pub change: Change,
    /// Why.
    pub why: ApplyError,
}

/// Why something could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what}: {why}")]
pub struct ObserveError {
    /// What was to be read.
    pub what: String,
    /// Why.
    pub why: NetlinkError,
}

impl ObserveError {
    /// Whether the look was only ended for something more urgent.
    pub fn gave_way(&self) -> bool {
        self.why.is(Errno::CANCELED)
    }
}

/// Why a change could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The kernel said no.
    #[error("cannot {verb} {object}: {why}")]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// The object.
        object: String,
        /// The kernel's words.
        why: NetlinkError,
    },
    /// The device that the object belongs to is not there.
    #[error("cannot {verb} {object}: there is no device {link}")]
    NoDevice {
        /// What was tried.
        verb: &'static str,
        /// The object.
        object: String,
        /// The device.
        link: LinkName,
    },
    /// A device of that name exists.
    #[error("cannot {verb} {name}: a {found} of that name exists")]
    NameTaken {
        /// What was tried.
        verb: &'static str,
        /// The name.
        name: LinkName,
        /// The kind of the device that has it.
        found: Box<str>,
    },
    /// The device is not the one that was looked at.
    #[error("cannot {verb} {object}: another device came in the place of {link}, and has that name now")]
    Exchanged {
        /// What was tried.
        verb: &'static str,
        /// The object.
        object: String,
        /// The name of both devices.
        link: LinkName,
    },
    /// Another vxlan device has the same VNI and port.
    #[error("cannot create {name}: {} has VNI {vni} on UDP port {port}", or_somebody(.by))]
    VniTaken {
        /// The device that was to be made.
        name: LinkName,
        /// Its VNI.
        vni: u32,
        /// Its port.
        port: u16,
        /// The device that has both.
        by: Option<LinkName>,
    },
    /// Another vxlan device uses the port with another setting of the group policy extension.
    #[error(
        "cannot bring {name} up: {by} uses UDP port {port} {} the group policy extension (GBP)",
        if *.gbp { "without" } else { "with" }
    )]
    GbpClash {
        /// The device that was to come up.
        name: LinkName,
        /// Whether it was to have the extension.
        gbp: bool,
        /// The port.
        port: u16,
        /// The other device.
        by: LinkName,
    },
    /// Another program listens on the port.
    #[error("cannot bring {name} up: UDP port {port} is in use by another program")]
    PortTaken {
        /// The device that was to come up.
        name: LinkName,
        /// The port.
        port: u16,
    },
    /// Rules could not be changed.
    #[error("cannot {verb} {object}: {why}")]
    Rules {
        /// What was tried.
        verb: &'static str,
        /// The table.
        object: String,
        /// Why.
        why: String,
        /// What an operator can do about it.
        hint: Option<String>,
    },
    /// We know no way to do that.
    #[error("cannot {verb} {object}: a bug: we never make such an object")]
    Unknown {
        /// What was tried.
        verb: &'static str,
        /// The object.
        object: String,
    },
}

fn or_somebody(by: &Option<LinkName>) -> String {
    by.map_or_else(|| "another device".to_owned(), |by| by.to_string())
}

impl ApplyError {
    pub(crate) fn refused(change: &Change, why: NetlinkError) -> Self {
        Self::Refused { verb: change.verb(), object: object(change), why }
    }

    pub(crate) fn no_device(change: &Change, link: LinkName) -> Self {
        Self::NoDevice { verb: change.verb(), object: object(change), link }
    }

    pub(crate) fn exchanged(change: &Change, link: LinkName) -> Self {
        Self::Exchanged { verb: change.verb(), object: object(change), link }
    }

    pub(crate) fn unknown(change: &Change) -> Self {
        Self::Unknown { verb: change.verb(), object: object(change) }
    }

    /// The same of another device than the one that was tried in its place.
    #[must_use]
    pub fn of(mut self, link: &Link) -> Self {
        match &mut self {
            Self::Refused { object, .. }
            | Self::NoDevice { object, .. }
            | Self::Exchanged { object, .. }
            | Self::Rules { object, .. }
            | Self::Unknown { object, .. } => *object = Item::Link(Box::new(link.clone())).to_string(),
            Self::NameTaken { name, .. }
            | Self::VniTaken { name, .. }
            | Self::GbpClash { name, .. }
            | Self::PortTaken { name, .. } => *name = link.name,
        }
        self
    }

    /// What an operator can do about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { object, why, .. } => hint_for(object, why),
            Self::NoDevice { link, object, .. } if object.starts_with("link ") => {
                Some(format!("bring {link} back, or choose another device with --iface"))
            }
            Self::NoDevice { link, .. } => {
                Some(format!("somebody removed {link} a moment ago: it is made again at the next look"))
            }
            Self::NameTaken { name, .. } | Self::Exchanged { link: name, .. } => {
                Some(format!("remove it with `ip link del {name}`, or choose another VNI"))
            }
            Self::VniTaken { by: Some(by), .. } => Some(format!(
                "remove it with `ip link del {by}`, or choose another VNI or Port in net-conf.json"
            )),
            Self::VniTaken { by: None, .. } => {
                Some("list them with `ip -d link show type vxlan`, or choose another VNI or Port".to_owned())
            }
            Self::GbpClash { by, .. } => {
                Some(format!("set GBP as {by} has it, or choose another Port in net-conf.json"))
            }
            Self::PortTaken { port, .. } => Some(format!(
                "find it with `ss -ulnp 'sport = :{port}'`, or choose another Port in net-conf.json"
            )),
            Self::Rules { hint, .. } => hint.clone(),
            Self::Unknown { .. } => None,
        }
    }
}

fn object(change: &Change) -> String {
    let (Change::Create(item) | Change::Remove(item) | Change::Replace { to: item, .. }) = change;
    item.to_string()
}

fn hint_for(object: &str, why: &NetlinkError) -> Option<String> {
    let words = why.message.as_deref().unwrap_or_default();
    let is_a = |kind: &str| object.starts_with(kind);
    let text = match why.errno {
        _ if words.contains("IPv6 is disabled") => "switch IPv6 on: set net.ipv6.conf.*.disable_ipv6 to 0",
        Errno::NOENT if is_a("sysctl net/ipv6") => "the kernel has no IPv6: boot without ipv6.disable=1",
        Errno::PERM => "flanneld needs the capability CAP_NET_ADMIN: run it as root, or privileged",
        Errno::OPNOTSUPP if is_a("link") => {
            "the kernel has no vxlan: `modprobe vxlan`, or install linux-modules-extra"
        }
        Errno::INVAL if is_a("address") => "a device with IPv6 needs an MTU of at least 1280",
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL if is_a("route") => {
            "the next router is on no network of this node: is the device up, and does it have its address?"
        }
        Errno::NETDOWN => "the device is down: it is brought up at the next look",
        Errno::ROFS => {
            "the file system is read-only: mount it writable into the container, or run privileged"
        }
        Errno::NOSPC | Errno::DQUOT => "the file system is full: free some space",
        Errno::ACCESS => "flanneld may not write there: run it as root, and look at AppArmor or SELinux",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_vxlan_is_told_what_to_load() {
        let why = NetlinkError { errno: Errno::OPNOTSUPP, message: Some("Unknown device type".into()) };
        let error = ApplyError::Refused { verb: "create", object: "link flannel.1".to_owned(), why };
        assert_eq!(
            error.to_string(),
            "cannot create link flannel.1: Operation not supported: Unknown device type"
        );
        assert_eq!(
            error.hint().unwrap(),
            "the kernel has no vxlan: `modprobe vxlan`, or install linux-modules-extra"
        );
    }
}
