//! Addresses on devices: dump, create, remove.

use std::net::IpAddr;

use flannel_plan::observation::AddressFact;
use flannel_plan::state::Address;
use ipnet::IpNet;

use crate::abi::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_NODAD, IFA_F_PERMANENT,
    IFA_F_TEMPORARY, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL, NLM_F_CREATE, NLM_F_REPLACE, RT_SCOPE_UNIVERSE,
    RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR,
};
use crate::names::Names;
use crate::netlink::{NetlinkError, Outbox, Received, Socket, ip, number};

/// All addresses of the namespace, IPv4 first.
pub(crate) fn dump(socket: &mut Socket, names: &Names) -> Result<Vec<AddressFact>, NetlinkError> {
    let mut facts = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let request = || Outbox::of(RTM_GETADDR, 0, |message| message.header(&[family, 0, 0, 0, 0, 0, 0, 0]));
        // Without IPv6 in the kernel the question is answered with the addresses of another family.
        socket.dump(request, &mut facts, |message| {
            read(message, names).filter(|_| message.payload.first() == Some(&family))
        })?;
    }
    Ok(facts)
}

/// Writes the request that makes an address.
pub(crate) fn create(outbox: &mut Outbox, address: &Address, link: u32) {
    outbox.add(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, |message| {
        message.header(&header(address.address, link));
        message.ip(IFA_LOCAL, address.address.addr());
        message.ip(IFA_ADDRESS, address.address.addr());
        if address.address.addr().is_ipv6() {
            // A subnet is leased to one node: asking the tunnel for a double would only delay us.
            message.number(IFA_FLAGS, IFA_F_NODAD);
        }
    });
}

/// Writes the request that removes an address.
pub(crate) fn remove(outbox: &mut Outbox, address: &Address, link: u32) {
    outbox.add(RTM_DELADDR, 0, |message| {
        message.header(&header(address.address, link));
        message.ip(IFA_LOCAL, address.address.addr());
    });
}

/// `struct ifaddrmsg`
fn header(address: IpNet, link: u32) -> [u8; 8] {
    let family = if address.addr().is_ipv4() { AF_INET } else { AF_INET6 };
    let [a, b, c, d] = link.to_ne_bytes();
    [family, address.prefix_len(), 0, RT_SCOPE_UNIVERSE, a, b, c, d]
}

/// The number of the device that a message about an address is about, unless the address is of no use to us:
/// every device has a link-local one, which the kernel mentions several times until it is checked.
pub(crate) fn read_mention(message: &Received) -> Option<u32> {
    let (header, mut attributes) = message.split::<8>()?;
    let is_link_local = attributes.any(|(kind, value)| {
        kind == IFA_ADDRESS
            && matches!(ip(value), Some(IpAddr::V6(address)) if address.is_unicast_link_local())
    });
    if is_link_local { None } else { number(&header[4..]) }
}

pub(crate) fn read(message: &Received, names: &Names) -> Option<AddressFact> {
    let (header, attributes) = message.split::<8>()?;
    let (length, mut flags) = (header[1], u32::from(header[2]));
    let (mut local, mut other): (Option<IpAddr>, _) = (None, None);
    for (kind, value) in attributes {
        match kind {
            // Of a point-to-point pair ours is the local one.
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            IFA_FLAGS => flags = number(value)?,
            _ => {}
        }
    }
    let address = IpNet::new(local.or(other)?, length).ok()?;
    Some(AddressFact {
        link: names.name(number(&header[4..])?)?,
        address,
        permanent: flags & IFA_F_PERMANENT != 0,
        // The same bit of an IPv4 address only says that it is not the first of its network.
        temporary: address.addr().is_ipv6() && flags & IFA_F_TEMPORARY != 0,
        deprecated: flags & IFA_F_DEPRECATED != 0,
        unusable: flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0,
    })
}
