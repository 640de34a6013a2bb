//! The settings of a vxlan device as netlink attributes, both ways, and who is in its way.

use std::net::IpAddr;

use flannel_plan::link_name::LinkName;
use flannel_plan::observation::LinkFact;
use flannel_plan::state::Vxlan;
use rustix::io::Errno;

use crate::ApplyError;
use crate::abi::{
    IFLA_VXLAN_GBP, IFLA_VXLAN_ID, IFLA_VXLAN_LEARNING, IFLA_VXLAN_LINK, IFLA_VXLAN_LOCAL, IFLA_VXLAN_LOCAL6,
    IFLA_VXLAN_PORT, IFLA_VXLAN_TOS, IFLA_VXLAN_TTL,
};
use crate::netlink::{Attributes, NetlinkError, Writer, ip, number};

/// Writes all settings, for a device that is made.
pub(crate) fn write(data: &mut Writer, vxlan: &Vxlan, lower: u32) {
    data.number(IFLA_VXLAN_ID, vxlan.vni);
    if lower != 0 {
        data.number(IFLA_VXLAN_LINK, lower);
    }
    data.attribute(IFLA_VXLAN_PORT, &vxlan.port.to_be_bytes());
    data.attribute(IFLA_VXLAN_TTL, &[0]);
    data.attribute(IFLA_VXLAN_TOS, &[0]);
    write_alterable(data, vxlan);
    if vxlan.gbp {
        data.attribute(IFLA_VXLAN_GBP, &[]);
    }
}

/// Writes the settings that the kernel lets us change on a living device.
pub(crate) fn write_alterable(data: &mut Writer, vxlan: &Vxlan) {
    match vxlan.local {
        Some(local @ IpAddr::V4(_)) => data.ip(IFLA_VXLAN_LOCAL, local),
        Some(local @ IpAddr::V6(_)) => data.ip(IFLA_VXLAN_LOCAL6, local),
        None => {}
    }
    data.attribute(IFLA_VXLAN_LEARNING, &[u8::from(vxlan.learning)]);
}

/// Reads the settings, and the index of the lower device.
pub(crate) fn read(data: Attributes) -> (Vxlan, u32) {
    let mut vxlan = Vxlan { vni: 0, port: 0, lower: None, local: None, learning: false, gbp: false };
    let mut lower = 0;
    for (kind, value) in data {
        match kind {
            IFLA_VXLAN_ID => vxlan.vni = number(value).unwrap_or_default(),
            IFLA_VXLAN_LINK => lower = number(value).unwrap_or_default(),
            IFLA_VXLAN_PORT => vxlan.port = value.first_chunk().map_or(0, |port| u16::from_be_bytes(*port)),
            IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => vxlan.local = ip(value),
            IFLA_VXLAN_LEARNING => vxlan.learning = value.first().is_some_and(|value| *value != 0),
            IFLA_VXLAN_GBP => vxlan.gbp = true,
            _ => {}
        }
    }
    (vxlan, lower)
}

/// Which other device is why a device cannot be made or brought up; if none is, another program is.
pub(crate) fn culprit(name: LinkName, vxlan: &Vxlan, why: &NetlinkError, others: &[LinkFact]) -> ApplyError {
    let that = |is_it: &dyn Fn(&LinkFact, &Vxlan) -> bool| {
        let found = others.iter().find(|fact| fact.link.kind.vxlan().is_some_and(|other| is_it(fact, other)));
        found.map(|fact| fact.link.name)
    };
    let (vni, port, gbp) = (vxlan.vni, vxlan.port, vxlan.gbp);
    if why.is(Errno::EXIST) {
        let is_v6 = |vxlan: &Vxlan| vxlan.local.is_some_and(|local| local.is_ipv6());
        let is_same = |other: &Vxlan| (other.vni, other.port, is_v6(other)) == (vni, port, is_v6(vxlan));
        return ApplyError::VniTaken { name, vni, port, by: that(&|_, other| is_same(other)) };
    }
    let is_up = |fact: &LinkFact| fact.link.up && fact.link.name != name;
    match that(&|fact, other| is_up(fact) && other.port == port && other.gbp != gbp) {
        Some(by) => ApplyError::GbpClash { name, gbp, port, by },
        None => ApplyError::PortTaken { name, port },
    }
}
