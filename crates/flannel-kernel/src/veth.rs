//! Veth pairs: one end created here, the other at once in the namespace of a pod.

use std::os::fd::{AsRawFd, BorrowedFd};

use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use rustix::io::Errno;

use crate::abi::{
    IFF_UP, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU,
    IFLA_NET_NS_FD, IFLA_NUM_RX_QUEUES, IFLA_NUM_TX_QUEUES, IFLA_TXQLEN, NLM_F_CREATE, NLM_F_EXCL,
    RTM_NEWLINK, VETH_INFO_PEER,
};
use crate::link::header;
use crate::netlink::{NetlinkError, Outbox, Writer};
use crate::stack::{self, Device, Stack};

/// A pair to be made: this end switched on, the other end switched off.
///
/// Both get a hardware address: the host's device daemon leaves a device alone that was given one, and changes
/// the address of others when it finds the time.
#[derive(Clone, Copy, Debug)]
pub struct NewVeth<'a> {
    pub name: LinkName,
    pub mac: Mac,
    /// The bridge that this end is a port of.
    pub master: Option<u32>,
    pub peer: LinkName,
    pub peer_mac: Mac,
    /// Where the other end is to be; none is here.
    pub peer_namespace: Option<BorrowedFd<'a>>,
    /// The MTU of both ends; none is the kernel's choice.
    pub mtu: Option<u32>,
}

impl Stack {
    /// Makes a pair, and gives this end as it was a moment before it became a port.
    ///
    /// The kernel tells it with its answer: a question afterwards would wait for all that a new device sets off.
    /// The other end cannot be switched on by the same request: the kernel would do it before it knows the pair.
    pub fn create_veth(&mut self, veth: &NewVeth) -> Result<Device, NetlinkError> {
        let namespace = veth.peer_namespace.map(|fd| u32::try_from(fd.as_raw_fd()));
        let namespace = namespace.transpose().map_err(|_| Errno::BADF)?;
        let request = Outbox::of(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |message| {
            message.header(&header(0, IFF_UP, IFF_UP));
            message.text(IFLA_IFNAME, veth.name.as_str());
            message.attribute(IFLA_ADDRESS, &veth.mac.0);
            write_queues(message);
            if let Some(bridge) = veth.master {
                message.number(IFLA_MASTER, bridge);
                message.number(IFLA_TXQLEN, 0); // as Go's plugin makes ports
            }
            if let Some(mtu) = veth.mtu {
                message.number(IFLA_MTU, mtu);
            }
            message.nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_KIND, "veth");
                info.nest(IFLA_INFO_DATA, |data| {
                    data.nest(VETH_INFO_PEER, |peer| {
                        peer.header(&header(0, 0, 0));
                        peer.text(IFLA_IFNAME, veth.peer.as_str());
                        peer.attribute(IFLA_ADDRESS, &veth.peer_mac.0);
                        write_queues(peer);
                        if let Some(mtu) = veth.mtu {
                            peer.number(IFLA_MTU, mtu);
                        }
                        if let Some(namespace) = namespace {
                            peer.number(IFLA_NET_NS_FD, namespace);
                        }
                    });
                });
            });
        });
        if let Some(made) = self.socket.make(request, stack::read)? {
            return Ok(made);
        }
        // An old kernel tells nothing. Whatever has the name by now is ours only if it has our address.
        let found = self.device(veth.name)?.filter(|found| found.mac == veth.mac);
        found.ok_or_else(|| Errno::NODEV.into())
    }
}

/// Asks for one queue each way, which is what a pair uses. The kernel would make one for each processor and take all
/// but one away at once, and wait for every processor to notice: a fifth of the time of an attachment on two.
fn write_queues(message: &mut Writer) {
    message.number(IFLA_NUM_TX_QUEUES, 1);
    message.number(IFLA_NUM_RX_QUEUES, 1);
}
