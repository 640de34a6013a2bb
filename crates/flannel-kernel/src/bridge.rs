//! Bridges, and what is set for one port of a bridge: hairpin, isolation, VLANs.

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;

use crate::abi::{
    AF_BRIDGE, BRIDGE_VLAN_INFO_PVID, BRIDGE_VLAN_INFO_RANGE_BEGIN, BRIDGE_VLAN_INFO_RANGE_END,
    BRIDGE_VLAN_INFO_UNTAGGED, IFF_PROMISC, IFF_UP, IFLA_ADDRESS, IFLA_AF_SPEC, IFLA_BR_VLAN_FILTERING,
    IFLA_BRIDGE_VLAN_INFO, IFLA_BRPORT_ISOLATED, IFLA_BRPORT_MODE, IFLA_IFNAME, IFLA_INFO_DATA,
    IFLA_INFO_KIND, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU,
    NLM_F_CREATE, NLM_F_EXCL, RTM_DELLINK, RTM_NEWLINK, RTM_SETLINK,
};
use crate::batch;
use crate::link::header;
use crate::netlink::{NetlinkError, Outbox, Writer};
use crate::stack::Stack;

/// A bridge to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBridge {
    pub name: LinkName,
    /// Its hardware address. It is said at once: a bridge that was never told one takes the lowest of its ports,
    /// and changes it when pods come and go.
    pub mac: Mac,
    /// Its MTU; none is the kernel's choice.
    pub mtu: Option<u32>,
    pub vlan_filtering: bool,
    /// Whether it takes frames for others, too.
    pub promiscuous: bool,
}

/// How frames of one port are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Back out of the port that they came in, too.
    pub hairpin: bool,
    /// Not to other ports of that kind.
    pub isolated: bool,
}

/// The VLANs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortVlans {
    /// To be taken away: what the bridge gave the port by itself.
    pub without: Option<u16>,
    /// The one of frames without a tag.
    pub untagged: Option<u16>,
    /// Those of frames with a tag, in ascending order.
    pub tagged: Vec<u16>,
}

impl Stack {
    /// Makes a bridge, switched on; until a port is up it has no carrier, and hence no link-local address.
    pub fn create_bridge(&mut self, bridge: &NewBridge) -> Result<(), NetlinkError> {
        let flags = if bridge.promiscuous { IFF_UP | IFF_PROMISC } else { IFF_UP };
        self.socket.request(Outbox::of(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |message| {
            message.header(&header(0, flags, flags));
            message.text(IFLA_IFNAME, bridge.name.as_str());
            message.attribute(IFLA_ADDRESS, &bridge.mac.0);
            if let Some(mtu) = bridge.mtu {
                message.number(IFLA_MTU, mtu);
            }
            message.nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_KIND, "bridge");
                if bridge.vlan_filtering {
                    info.nest(IFLA_INFO_DATA, |data| data.attribute(IFLA_BR_VLAN_FILTERING, &[1]));
                }
            });
        }))
    }

    /// Makes a device a port of a bridge.
    pub fn set_master(&mut self, index: u32, bridge: u32) -> Result<(), NetlinkError> {
        self.change(&header(index, 0, 0), |message| message.number(IFLA_MASTER, bridge))
    }

    /// Sets how the frames of a port are passed on.
    pub fn set_port(&mut self, index: u32, port: Port) -> Result<(), NetlinkError> {
        self.change(&header(index, 0, 0), |message| {
            message.nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_SLAVE_KIND, "bridge");
                info.nest(IFLA_INFO_SLAVE_DATA, |data| {
                    data.attribute(IFLA_BRPORT_MODE, &[u8::from(port.hairpin)]);
                    data.attribute(IFLA_BRPORT_ISOLATED, &[u8::from(port.isolated)]);
                });
            });
        })
    }

    /// Takes VLANs from a port and gives it others.
    pub fn set_vlans(&mut self, index: u32, vlans: &PortVlans) -> Result<(), NetlinkError> {
        let mut outbox = Outbox::default();
        if let Some(vlan) = vlans.without {
            write(&mut outbox, RTM_DELLINK, index, |spec| write_vlan(spec, vlan, 0));
        }
        write(&mut outbox, RTM_SETLINK, index, |spec| {
            if let Some(vlan) = vlans.untagged {
                write_vlan(spec, vlan, BRIDGE_VLAN_INFO_PVID | BRIDGE_VLAN_INFO_UNTAGGED);
            }
            for (first, last) in ranges(&vlans.tagged) {
                if first == last {
                    write_vlan(spec, first, 0);
                } else {
                    write_vlan(spec, first, BRIDGE_VLAN_INFO_RANGE_BEGIN);
                    write_vlan(spec, last, BRIDGE_VLAN_INFO_RANGE_END);
                }
            }
        });
        batch::send(&mut self.socket, &mut outbox)?
            .into_iter()
            .next()
            .map_or(Ok(()), |failed| Err(failed.why))
    }
}

fn write(outbox: &mut Outbox, kind: u16, index: u32, write: impl FnOnce(&mut Writer)) {
    outbox.add(kind, 0, |message| {
        let mut header = header(index, 0, 0);
        header[0] = AF_BRIDGE;
        message.header(&header);
        message.nest(IFLA_AF_SPEC, write);
    });
}

/// `struct bridge_vlan_info`
fn write_vlan(spec: &mut Writer, vlan: u16, flags: u16) {
    let ([a, b], [c, d]) = (flags.to_ne_bytes(), vlan.to_ne_bytes());
    spec.attribute(IFLA_BRIDGE_VLAN_INFO, &[a, b, c, d]);
}

/// Numbers that follow each other, as first and last: thousands of VLANs would not fit into one message.
fn ranges(vlans: &[u16]) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for vlan in vlans {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *vlan => *last = *vlan,
            _ => ranges.push((*vlan, *vlan)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_that_follow_each_other_become_one_range() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[101, 200, 201, 202, 4094]), [(101, 101), (200, 202), (4094, 4094)]);
    }
}
