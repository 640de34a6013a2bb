//! Whether packets that only cross a bridge meet the rules of a host, found by sending some.
//!
//! Two ends of a bridge, in namespaces that are made for it and go with the answer: a packet has to pass while there is
//! no rule, and the same packet is dropped by a rule that it meets.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use flannel_plan::family::Family;
use flannel_plan::link_name::LinkName;
use flannel_plan::mac::Mac;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::bridge::NewBridge;
use crate::firewall::nft::{
    self, BaseChain, Chain, Hook, Kind, Nft, NftError, Policy, Step, Table, Transaction,
};
use crate::netlink::NetlinkError;
use crate::netns::{Namespace, NetnsError, run_inside, visit};
use crate::stack::Stack;
use crate::veth::NewVeth;
use crate::wiring::DoubleCheck;

/// How long a bridge may take until it passes packets.
const UNTIL_READY: Duration = Duration::from_secs(5);
/// How long a packet is waited for that should not come.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long one packet is waited for before the next is sent.
const SLICE: Duration = Duration::from_millis(20);
const TABLE: &str = "flannel-probe";
const PORT: u16 = 9;

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No namespaces: that needs CAP_SYS_ADMIN.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The bridge or its ends could not be made.
    #[error("cannot make a bridge to try: {0}")]
    Devices(#[from] NetlinkError),
    /// The rule could not be made.
    #[error(transparent)]
    Rule(#[from] NftError),
    /// No packet could be sent.
    #[error("cannot send over a bridge to try: {0}")]
    Packet(#[from] io::Error),
    /// Nothing came through, though there was no rule.
    #[error("a bridge to try passed nothing within {UNTIL_READY:?}")]
    Silent,
}

/// Whether packets between two ports of a bridge meet rules about forwarded packets, where `setting` is what the
/// host's `bridge-nf-call-iptables`, or `-ip6tables`, says; none leaves it as a new namespace has it.
pub fn meets_rules(family: Family, setting: Option<&str>) -> Result<bool, ProbeError> {
    let ends = [namespace()?, namespace()?];
    run_inside(&Namespace::Fresh, || try_bridge(family, setting, &ends))?
}

/// A namespace of its own, for as long as its file is held.
fn namespace() -> Result<File, ProbeError> {
    Ok(run_inside(&Namespace::Fresh, || File::open("/proc/thread-self/ns/net"))??)
}

fn try_bridge(family: Family, setting: Option<&str>, ends: &[File; 2]) -> Result<bool, ProbeError> {
    if let Some(value) = setting {
        // What cannot be set is as in every new namespace.
        let _ = fs::write(path_of_setting(family), value);
    }
    let mut host = Stack::open()?;
    let bridge =
        NewBridge { name: name("probe")?, mac: mac(0), mtu: None, vlan_filtering: false, promiscuous: false };
    host.create_bridge(&bridge)?;
    let bridge = host.device(bridge.name)?.ok_or(ProbeError::Silent)?.index;
    let [from, to] = addresses(family);
    let sender = attach(&mut host, bridge, (&ends[0], 1), from)?;
    let receiver = attach(&mut host, bridge, (&ends[1], 2), to)?;
    receiver.set_read_timeout(Some(SLICE))?;
    let way = Way { sender, receiver, to: SocketAddr::new(to.addr(), PORT) };
    if !way.passes(b'1', UNTIL_READY)? {
        return Err(ProbeError::Silent);
    }
    Nft::open()?.commit(&drop_forwarded(family))?;
    Ok(!way.passes(b'2', PATIENCE)?)
}

/// The setting of a host.
pub fn path_of_setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "/proc/sys/net/bridge/bridge-nf-call-iptables",
        Family::V6 => "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
    }
}

/// Makes one end of the bridge, and a socket there.
fn attach(
    host: &mut Stack,
    bridge: u32,
    (end, number): (&File, u8),
    address: IpNet,
) -> Result<UdpSocket, ProbeError> {
    let peer = name("eth0")?;
    host.create_veth(&NewVeth {
        name: name(&format!("probe{number}"))?,
        mac: mac(number),
        master: Some(bridge),
        peer,
        peer_mac: mac(0x10 | number),
        peer_namespace: Some(end.as_fd()),
        mtu: None,
    })?;
    visit(end, || {
        let mut stack = Stack::open()?;
        let device = stack.device(peer)?.ok_or(ProbeError::Silent)?.index;
        stack.raise(device)?;
        stack.add_address(device, address, DoubleCheck::Skipped)?;
        Ok(UdpSocket::bind((address.addr(), PORT))?)
    })?
}

struct Way {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

impl Way {
    /// Whether a packet of this content comes through in time; an earlier one may still be on its way.
    fn passes(&self, content: u8, limit: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        let mut buffer = [0];
        while begun.elapsed() < limit {
            // A neighbour that is not found yet is no reason to give up.
            let _ = self.sender.send_to(&[content], self.to);
            match self.receiver.recv(&mut buffer) {
                Ok(_) if buffer == [content] => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

fn drop_forwarded(family: Family) -> Transaction {
    let family = match family {
        Family::V4 => nft::Family::Ipv4,
        Family::V6 => nft::Family::Ipv6,
    };
    let table = Table { family, name: TABLE };
    let base = BaseChain { kind: Kind::Filter, hook: Hook::Forward, priority: 0, policy: Policy::Drop };
    let chain = Chain { name: "forward".into(), comment: None, base: Some(base) };
    let mut transaction = Transaction::default();
    transaction.push(Step::AddTable(table, None));
    transaction.push(Step::AddChain(table, chain));
    transaction
}

/// Both ends have addresses that nobody has.
fn addresses(family: Family) -> [IpNet; 2] {
    [1, 2].map(|number| match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, number), 24).into(),
        Family::V6 => {
            Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()), 64).into()
        }
    })
}

fn name(text: &str) -> Result<LinkName, ProbeError> {
    text.parse().map_err(|_| ProbeError::Silent)
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}
