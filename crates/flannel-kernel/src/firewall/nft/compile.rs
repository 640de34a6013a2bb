//! From what a rule says to the instructions that the kernel runs: the very ones that `nft` makes, so that
//! `nft list` shows the rule as it was meant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Family;
use super::instruction::Instruction;
use super::statement::{Direction, Is, Protocol, Side, SourcePorts, Statement, Verdict};
use crate::firewall::abi::*;

const NAME: usize = 16;

/// The instructions of a rule in a table of this family.
pub(super) fn compile(family: Family, statements: &[Statement]) -> Vec<Instruction> {
    let mut compiler = Compiler { family, network: None, transport: None, out: Vec::with_capacity(8) };
    for statement in statements {
        compiler.statement(statement);
    }
    compiler.out
}

/// Knows what earlier parts of the rule have made sure of: nothing is asked twice.
struct Compiler {
    family: Family,
    network: Option<u8>,
    transport: Option<Protocol>,
    out: Vec<Instruction>,
}

impl Compiler {
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Address(side, is, network) => self.address(*side, *is, network),
            Statement::AddressRange(side, is, first, last) => self.range(*side, *is, *first, *last),
            Statement::AddressIn(side, is, set) => self.address_in(*side, *is, set),
            Statement::EtherSource(is, mac) => {
                self.out.push(Instruction::Payload(NFT_PAYLOAD_LL_HEADER, 6, 6));
                self.compare(*is, &mac.0);
            }
            Statement::Device(direction, is, name) => self.device(*direction, *is, name),
            Statement::Protocol(is, protocol) => {
                self.meta(NFT_META_L4PROTO, *is, &[protocol.0]);
                self.transport = (*is == Is::Equal).then_some(*protocol);
            }
            Statement::Family(is, family) => {
                self.meta(NFT_META_NFPROTO, *is, &[*family]);
                self.network = (*is == Is::Equal).then_some(*family);
            }
            Statement::PacketType(is, kind) => self.meta(NFT_META_PKTTYPE, *is, &[*kind]),
            Statement::Mark(is, value, mask) => self.mark(*is, *value, *mask),
            Statement::DestinationPort(protocol, is, port) => self.port(*protocol, *is, *port),
            Statement::DestinationType(is, kind) => {
                self.out.push(Instruction::DestinationType);
                self.compare(*is, &kind.to_ne_bytes());
            }
            Statement::Vxlan(vni) => self.vxlan(*vni),
            Statement::Counter => self.out.push(Instruction::Counter),
            Statement::NoTrack => self.out.push(Instruction::NoTrack),
            Statement::SetMark(value, mask) => self.set_mark(*value, *mask),
            Statement::Chance(part, of) => self.chance(*part, *of),
            Statement::Masquerade(ports) => self.out.push(Instruction::Masquerade(flags(*ports))),
            Statement::MasqueradeTo(ports, first, last) => self.masquerade_to(*ports, *first, *last),
            Statement::Dnat(address, port) => self.dnat(*address, *port),
            Statement::Verdict(verdict) => self.out.push(verdict_instruction(verdict)),
            Statement::Unknown(name, bytes) => {
                self.out.push(Instruction::Unknown(name.clone(), bytes.clone()))
            }
        }
    }

    fn address(&mut self, side: Side, is: Is, network: &IpNet) {
        let octets = octets(network.network());
        let prefix = u32::from(network.prefix_len());
        let whole = prefix.div_ceil(8);
        // A prefix of whole bytes is compared by loading fewer of them.
        let length =
            if prefix % 8 == 0 && prefix > 0 { whole } else { u32::from(network.max_prefix_len()) / 8 };
        self.load_address(side, network.addr(), length);
        if prefix % 8 != 0 || prefix == 0 {
            let flip = vec![0; octets.len()];
            self.out.push(Instruction::Bitwise(self::octets(network.netmask()), flip));
        }
        let end = usize::try_from(length).unwrap_or(octets.len());
        self.compare(is, &octets[..end]);
    }

    fn range(&mut self, side: Side, is: Is, first: IpAddr, last: IpAddr) {
        let (first_octets, last_octets) = (octets(first), octets(last));
        self.load_address(side, first, u32::try_from(first_octets.len()).unwrap_or(0));
        match is {
            Is::Equal => {
                self.out.push(Instruction::Compare(NFT_CMP_GTE, first_octets));
                self.out.push(Instruction::Compare(NFT_CMP_LTE, last_octets));
            }
            Is::Different => self.out.push(Instruction::Range(NFT_RANGE_NEQ, first_octets, last_octets)),
        }
    }

    /// In a table of several families nothing says which one the set is about; ours are in tables of one.
    fn address_in(&mut self, side: Side, is: Is, set: &str) {
        let example: IpAddr = match self.family {
            Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
            Family::Ipv4 | Family::Inet | Family::Bridge => Ipv4Addr::UNSPECIFIED.into(),
        };
        self.load_address(side, example, u32::try_from(octets(example).len()).unwrap_or(0));
        self.out.push(Instruction::Lookup(set.to_owned(), is == Is::Different));
    }

    fn load_address(&mut self, side: Side, example: IpAddr, length: u32) {
        self.ensure_network(example);
        self.out.push(Instruction::Payload(NFT_PAYLOAD_NETWORK_HEADER, offset(side, example), length));
    }

    /// In a table of several families the family of the packet has to be asked for first.
    fn ensure_network(&mut self, example: IpAddr) {
        let family = if example.is_ipv4() { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
        if self.network == Some(family) {
            return;
        }
        match self.family {
            Family::Inet => self.meta(NFT_META_NFPROTO, Is::Equal, &[family]),
            Family::Bridge => self.meta(NFT_META_PROTOCOL, Is::Equal, &ether_type(family)),
            Family::Ipv4 | Family::Ipv6 => {}
        }
        self.network = Some(family);
    }

    fn device(&mut self, direction: Direction, is: Is, name: &str) {
        let key = match direction {
            Direction::In => NFT_META_IIFNAME,
            Direction::Out => NFT_META_OIFNAME,
        };
        match name.strip_suffix('*') {
            Some(beginning) => self.meta(key, is, beginning.as_bytes()),
            None => {
                let mut padded = name.as_bytes().to_vec();
                padded.resize(NAME, 0);
                self.meta(key, is, &padded);
            }
        }
    }

    fn mark(&mut self, is: Is, value: u32, mask: u32) {
        self.out.push(Instruction::Meta(NFT_META_MARK));
        if mask != u32::MAX {
            self.out.push(Instruction::Bitwise(mask.to_ne_bytes().into(), vec![0; 4]));
        }
        self.compare(is, &value.to_ne_bytes());
    }

    fn set_mark(&mut self, value: u32, mask: u32) {
        self.out.push(Instruction::Meta(NFT_META_MARK));
        self.out.push(Instruction::Bitwise((!mask).to_ne_bytes().into(), value.to_ne_bytes().into()));
        self.out.push(Instruction::MetaSet(NFT_META_MARK));
    }

    fn port(&mut self, protocol: Protocol, is: Is, port: u16) {
        if self.transport != Some(protocol) {
            self.meta(NFT_META_L4PROTO, Is::Equal, &[protocol.0]);
            self.transport = Some(protocol);
        }
        self.out.push(Instruction::Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2));
        self.compare(is, &port.to_be_bytes());
    }

    fn vxlan(&mut self, vni: u32) {
        self.out.push(Instruction::Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 8, 8));
        self.out.push(Instruction::Bitwise(VXLAN_MASK.into(), vec![0; 8]));
        self.compare(Is::Equal, &vxlan_header(vni));
    }

    fn chance(&mut self, part: u32, of: u32) {
        self.out.push(Instruction::Random(of));
        // Numbers are compared byte by byte, from the left.
        self.out.push(Instruction::ToNetworkOrder);
        self.out.push(Instruction::Compare(NFT_CMP_LT, part.to_be_bytes().into()));
    }

    fn masquerade_to(&mut self, ports: SourcePorts, first: u16, last: u16) {
        self.out.push(Instruction::Load(NFT_REG_1, first.to_be_bytes().into()));
        if last != first {
            self.out.push(Instruction::Load(NFT_REG_2, last.to_be_bytes().into()));
        }
        let flags = flags(ports) | NF_NAT_RANGE_PROTO_SPECIFIED;
        self.out.push(Instruction::MasqueradeTo { flags, range: last != first });
    }

    fn dnat(&mut self, address: IpAddr, port: Option<u16>) {
        self.out.push(Instruction::Load(NFT_REG_1, octets(address)));
        if let Some(port) = port {
            self.out.push(Instruction::Load(NFT_REG_2, port.to_be_bytes().into()));
        }
        let family = if address.is_ipv4() { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
        self.out.push(Instruction::Dnat { family: family.into(), port: port.is_some() });
    }

    fn meta(&mut self, key: u32, is: Is, value: &[u8]) {
        self.out.push(Instruction::Meta(key));
        self.compare(is, value);
    }

    fn compare(&mut self, is: Is, value: &[u8]) {
        let operator = match is {
            Is::Equal => NFT_CMP_EQ,
            Is::Different => NFT_CMP_NEQ,
        };
        self.out.push(Instruction::Compare(operator, value.into()));
    }
}

/// Of the header of vxlan: the flag that says that the number is valid, the number, and what is always zero.
pub(super) const VXLAN_MASK: [u8; 8] = [0x08, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// The header of vxlan under its mask.
pub(super) fn vxlan_header(vni: u32) -> [u8; 8] {
    let [_, high, middle, low] = vni.to_be_bytes();
    [0x08, 0, 0, 0, high, middle, low, 0]
}

/// Where an address stands in the header of its family.
pub(super) fn offset(side: Side, example: IpAddr) -> u32 {
    match (side, example) {
        (Side::Source, IpAddr::V4(_)) => 12,
        (Side::Destination, IpAddr::V4(_)) => 16,
        (Side::Source, IpAddr::V6(_)) => 8,
        (Side::Destination, IpAddr::V6(_)) => 24,
    }
}

/// The type of the frames that carry a family.
pub(super) fn ether_type(family: u8) -> [u8; 2] {
    if family == NFPROTO_IPV4 { [0x08, 0x00] } else { [0x86, 0xdd] }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

fn flags(ports: SourcePorts) -> u32 {
    match ports {
        SourcePorts::Kept => 0,
        SourcePorts::Randomised => NF_NAT_RANGE_PROTO_RANDOM_FULLY,
    }
}

fn verdict_instruction(verdict: &Verdict) -> Instruction {
    match verdict {
        Verdict::Accept => Instruction::Verdict(NF_ACCEPT, None),
        Verdict::Drop => Instruction::Verdict(NF_DROP, None),
        Verdict::Return => Instruction::Verdict(NFT_RETURN, None),
        Verdict::Jump(chain) => Instruction::Verdict(NFT_JUMP, Some(chain.clone())),
        Verdict::Goto(chain) => Instruction::Verdict(NFT_GOTO, Some(chain.clone())),
    }
}
