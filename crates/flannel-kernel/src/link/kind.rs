//! The settings of a device by its kind, as netlink attributes: which file reads and writes them.

use flannel_plan::link_name::LinkName;
use flannel_plan::observation::LinkFact;
use flannel_plan::state::{Link, LinkKind};

use crate::ApplyError;
use crate::abi::{IFLA_INFO_DATA, IFLA_INFO_KIND};
use crate::netlink::{Attributes, NetlinkError, Writer};
use crate::vxlan;

/// Writes kind and settings for a device that is made; `lower` is the index of its lower device, or 0.
pub(super) fn write(info: &mut Writer, kind: &LinkKind, lower: u32) {
    info.text(IFLA_INFO_KIND, kind.name());
    match kind {
        LinkKind::Vxlan(vxlan) => info.nest(IFLA_INFO_DATA, |data| vxlan::write(data, vxlan, lower)),
        LinkKind::Other(_) => {}
    }
}

/// Writes kind and settings as far as the kernel lets us change them on a living device.
pub(super) fn write_alterable(info: &mut Writer, kind: &LinkKind) {
    info.text(IFLA_INFO_KIND, kind.name());
    match kind {
        LinkKind::Vxlan(vxlan) => info.nest(IFLA_INFO_DATA, |data| vxlan::write_alterable(data, vxlan)),
        LinkKind::Other(_) => {}
    }
}

/// Reads the settings of a device of a kind, and the index of its lower device.
pub(super) fn read(name: &str, data: Option<Attributes>) -> (LinkKind, u32) {
    match (name, data) {
        ("vxlan", Some(data)) => {
            let (vxlan, lower) = vxlan::read(data);
            (LinkKind::Vxlan(vxlan), lower)
        }
        (name, _) => (LinkKind::Other(name.into()), 0),
    }
}

pub(super) fn set_lower(kind: &mut LinkKind, lower: Option<LinkName>) {
    match kind {
        LinkKind::Vxlan(vxlan) => vxlan.lower = lower,
        LinkKind::Other(_) => {}
    }
}

/// Why a device that exists already, or whose address is in use, cannot be: because of which of the others.
pub(crate) fn culprit(link: &Link, why: &NetlinkError, others: &[LinkFact]) -> Option<ApplyError> {
    match &link.kind {
        LinkKind::Vxlan(vxlan) => Some(vxlan::culprit(link.name, vxlan, why, others)),
        LinkKind::Other(_) => None,
    }
}
