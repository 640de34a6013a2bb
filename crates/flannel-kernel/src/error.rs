//! What can go wrong when looking and applying: the object, the cause, and the way out.

use flannel_plan::diff::Change;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::link_name::LinkName;
use flannel_plan::state::{Item, Key, Link, LinkKind};
use rustix::io::Errno;

use crate::netlink::NetlinkError;

/// A change that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub change: Change,
    pub why: ApplyError,
}

/// Why something could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what}: {why}")]
pub struct ObserveError {
    pub what: String,
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
    #[error("cannot {verb} {object}: {why}")]
    Refused { verb: &'static str, object: Box<Item>, why: NetlinkError },
    #[error("cannot {verb} {object}: there is no device {link}")]
    NoDevice { verb: &'static str, object: Box<Item>, link: LinkName },
    #[error("cannot {verb} {name}: a {found} of that name exists")]
    NameTaken { verb: &'static str, name: LinkName, found: Box<str> },
    #[error("cannot {verb} {object}: another device came in the place of {link}, and has that name now")]
    Exchanged { verb: &'static str, object: Box<Item>, link: LinkName },
    #[error("cannot create {name}: {} has VNI {vni} on UDP port {port}", or_somebody(.by))]
    VniTaken { name: LinkName, vni: u32, port: u16, by: Option<LinkName> },
    #[error(
        "cannot bring {name} up: {by} uses UDP port {port} {} the group policy extension (GBP)",
        if *.gbp { "without" } else { "with" }
    )]
    GbpClash {
        name: LinkName,
        /// Whether it was to have the extension.
        gbp: bool,
        port: u16,
        by: LinkName,
    },
    #[error("cannot bring {name} up: UDP port {port} is in use by another program")]
    PortTaken { name: LinkName, port: u16 },
    #[error("cannot {verb} {object}: {why}")]
    Rules { verb: &'static str, object: String, why: String, hint: Option<String> },
    #[error("cannot {verb} {object}: a bug: we never make such an object")]
    Unknown { verb: &'static str, object: Box<Item> },
}

fn or_somebody(by: &Option<LinkName>) -> String {
    by.map_or_else(|| "another device".to_owned(), |by| by.to_string())
}

impl ApplyError {
    /// The kernel does not take the change.
    pub fn refused(change: &Change, why: NetlinkError) -> Self {
        Self::Refused { verb: change.verb(), object: object(change), why }
    }

    /// The device that the object belongs on is not there.
    pub fn no_device(change: &Change, link: LinkName) -> Self {
        Self::NoDevice { verb: change.verb(), object: object(change), link }
    }

    pub(crate) fn exchanged(change: &Change, link: LinkName) -> Self {
        Self::Exchanged { verb: change.verb(), object: object(change), link }
    }

    /// `found` has the name of the device that changes.
    pub(crate) fn name_taken(change: &Change, found: &Link) -> Self {
        Self::NameTaken { verb: change.verb(), name: found.name, found: found.kind.name().into() }
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
            | Self::Unknown { object, .. } => **object = Item::Link(Box::new(link.clone())),
            Self::Rules { .. } => {}
            Self::NameTaken { name, .. }
            | Self::VniTaken { name, .. }
            | Self::GbpClash { name, .. }
            | Self::PortTaken { name, .. } => *name = link.name,
        }
        self
    }

    /// The same to be told of an object.
    pub fn finding(&self, object: &Key) -> Finding {
        let finding = Finding::new(self.code(), object, self).with_parts(self.cause(), None);
        match self.hint() {
            Some(hint) => finding.or_do(hint),
            None => finding,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Refused { object, why, .. } => judged(object, why).0,
            Self::NoDevice { .. } | Self::Unknown { .. } => Code::ChangeRefused,
            Self::NameTaken { .. }
            | Self::Exchanged { .. }
            | Self::VniTaken { .. }
            | Self::GbpClash { .. }
            | Self::PortTaken { .. } => Code::DeviceInTheWay,
            Self::Rules { .. } => Code::RulesRefused,
        }
    }

    fn cause(&self) -> Option<String> {
        match self {
            Self::Refused { why, .. } => Some(why.to_string()),
            Self::Rules { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// What an operator can do about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { object, why, .. } => judged(object, why).1.map(str::to_owned),
            Self::NoDevice { link, object, .. } if matches!(**object, Item::Link(_)) => {
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

fn object(change: &Change) -> Box<Item> {
    let (Change::Create(item) | Change::Remove(item) | Change::Replace { to: item, .. }) = change;
    Box::new(item.clone())
}

fn no_such_kind(kind: &LinkKind) -> &'static str {
    match kind {
        LinkKind::Vxlan(_) | LinkKind::Other(_) => {
            "the kernel has no vxlan: `modprobe vxlan`, or install linux-modules-extra"
        }
    }
}

/// Which finding an error is, and what an operator can do about it.
fn judged(object: &Item, why: &NetlinkError) -> (Code, Option<&'static str>) {
    let words = why.message.as_deref().unwrap_or_default();
    let (code, text) = match (why.errno, object) {
        _ if words.contains("IPv6 is disabled") => {
            (Code::NoIpv6, "switch IPv6 on: set net.ipv6.conf.*.disable_ipv6 to 0")
        }
        (Errno::NOENT, Item::Sysctl(sysctl)) if sysctl.path.starts_with("net/ipv6") => {
            (Code::NoIpv6, "the kernel has no IPv6: boot without ipv6.disable=1")
        }
        (Errno::PERM, _) => (
            Code::MissingCapability,
            "flanneld needs the capability CAP_NET_ADMIN: run it as root, or privileged",
        ),
        (Errno::OPNOTSUPP, Item::Link(link)) => (Code::KernelLacksBackend, no_such_kind(&link.kind)),
        (Errno::INVAL, Item::Address(_)) => {
            (Code::ChangeRefused, "a device with IPv6 needs an MTU of at least 1280")
        }
        (Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL, Item::Route(_)) => (
            Code::ChangeRefused,
            "the next router is on no network of this node: is the device up, and does it have its address?",
        ),
        (Errno::NETDOWN, _) => (Code::ChangeRefused, "the device is down: it is brought up at the next look"),
        (Errno::ROFS, _) => (
            Code::FileRefused,
            "the file system is read-only: mount it writable into the container, or run privileged",
        ),
        (Errno::NOSPC | Errno::DQUOT, _) => (Code::FileRefused, "the file system is full: free some space"),
        (Errno::ACCESS, _) => (
            Code::FileRefused,
            "flanneld may not write there: run it as root, and look at AppArmor or SELinux",
        ),
        (_, Item::File(_) | Item::Sysctl(_)) => return (Code::FileRefused, None),
        (_, Item::Link(_) | Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_))
        | (_, Item::Route(_) | Item::Rules(_)) => return (Code::ChangeRefused, None),
    };
    (code, Some(text))
}

#[cfg(test)]
mod tests {
    use flannel_plan::mac::Mac;

    use super::*;

    #[test]
    fn a_kernel_without_vxlan_is_told_what_to_load() {
        let why = NetlinkError { errno: Errno::OPNOTSUPP, message: Some("Unknown device type".into()) };
        let kind = LinkKind::Other("vxlan".into());
        let (name, mac) = ("flannel.1".parse().unwrap(), Mac([2; 6]));
        let link =
            Item::Link(Box::new(Link { name, mac: Some(mac), mtu: 1450, up: true, alias: "".into(), kind }));
        let error = ApplyError::Refused { verb: "create", object: Box::new(link.clone()), why };
        let cause = "Operation not supported: Unknown device type";
        let remedy = "the kernel has no vxlan: `modprobe vxlan`, or install linux-modules-extra";
        let expected =
            Finding::new(Code::KernelLacksBackend, "link flannel.1", format!("cannot create {link}"));
        assert_eq!(error.finding(&link.key()), expected.because(cause).or_do(remedy));
    }
}
