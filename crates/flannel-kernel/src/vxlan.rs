//! The settings of a vxlan device as netlink attributes, both ways.

use std::net::IpAddr;

use flannel_plan::state::Vxlan;

use crate::abi::{
    IFLA_VXLAN_GBP, IFLA_VXLAN_ID, IFLA_VXLAN_LEARNING, IFLA_VXLAN_LINK, IFLA_VXLAN_LOCAL, IFLA_VXLAN_LOCAL6,
    IFLA_VXLAN_PORT, IFLA_VXLAN_TOS, IFLA_VXLAN_TTL,
};
use crate::netlink::{Attributes, Writer, ip, number};

/// Writes all settings, for a device that is made.
pub(crate) fn write(data: &mut Writer, vxlan: &Vxlan, parent: u32) {
    data.number(IFLA_VXLAN_ID, vxlan.vni);
    if parent != 0 {
        data.number(IFLA_VXLAN_LINK, parent);
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

/// Reads the settings, and the number of the device below.
pub(crate) fn read(data: Attributes) -> (Vxlan, u32) {
    let mut vxlan = Vxlan { vni: 0, port: 0, parent: None, local: None, learning: false, gbp: false };
    let mut parent = 0;
    for (kind, value) in data {
        match kind {
            IFLA_VXLAN_ID => vxlan.vni = number(value).unwrap_or_default(),
            IFLA_VXLAN_LINK => parent = number(value).unwrap_or_default(),
            IFLA_VXLAN_PORT => vxlan.port = value.first_chunk().map_or(0, |port| u16::from_be_bytes(*port)),
            IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6 => vxlan.local = ip(value),
            IFLA_VXLAN_LEARNING => vxlan.learning = value.first().is_some_and(|value| *value != 0),
            IFLA_VXLAN_GBP => vxlan.gbp = true,
            _ => {}
        }
    }
    (vxlan, parent)
}
