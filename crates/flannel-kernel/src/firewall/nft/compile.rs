//! From what a rule says to the instructions that the kernel runs: the very ones that `nft` makes, so that
//! `nft list` shows the rule as it was meant.

use std::net::IpAddr;

use flannel_plan::family::Family;
use flannel_plan::rules::ports::PortRange;
use flannel_plan::rules::{Action, Expression, Is, Match, Rule, SetMark, Side, SourcePorts};
use ipnet::IpNet;

use super::TableFamily;
use super::instruction::Instruction;
use super::object::nfproto;
use crate::firewall::abi::*;

const NAME: usize = 16;

/// The instructions of a rule in a table of this family.
pub(crate) fn compile(family: TableFamily, rule: &Rule) -> Vec<Instruction> {
    let mut compiler = Compiler { family, network: None, transport: None, out: Vec::with_capacity(8) };
    rule.matches.iter().for_each(|it| compiler.test(it));
    compiler.out.extend(rule.set_mark.into_iter().flat_map(set_mark));
    compiler.act(&rule.action);
    compiler.out
}

/// Knows what earlier parts of the rule have made sure of: nothing is asked twice.
struct Compiler {
    family: TableFamily,
    network: Option<Family>,
    transport: Option<u8>,
    out: Vec<Instruction>,
}

impl Compiler {
    fn test(&mut self, it: &Match) {
        match it {
            Match::Source(is, network) => self.address(Side::Source, *is, network),
            Match::Destination(is, network) => self.address(Side::Destination, *is, network),
            Match::Range(side, is, first, last) => self.range(*side, *is, *first, *last),
            Match::Set(side, is, set) => self.set(*side, *is, set),
            Match::EtherSource(is, mac) => {
                self.out.push(Instruction::Payload(NFT_PAYLOAD_LL_HEADER, 6, 6));
                self.compare(*is, &mac.0);
            }
            Match::InLink(is, name) => self.meta(NFT_META_IIFNAME, *is, &device(name)),
            Match::OutLink(is, name) => self.meta(NFT_META_OIFNAME, *is, &device(name)),
            Match::Family(is, family) => {
                self.meta(NFT_META_NFPROTO, *is, &[nfproto(*family)]);
                self.network = (*is == Is::Equal).then_some(*family);
            }
            Match::Protocol(Is::Equal, number) if self.transport == Some(*number) => {}
            Match::Protocol(is, number) => {
                self.meta(NFT_META_L4PROTO, *is, &[*number]);
                self.transport = (*is == Is::Equal).then_some(*number);
            }
            Match::DestinationPort(is, port) => {
                self.out.push(Instruction::Payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2));
                self.compare(*is, &port.to_be_bytes());
            }
            Match::Mark { is, value, mask } => self.mark(*is, *value, *mask),
            Match::PacketType(is, kind) => self.meta(NFT_META_PKTTYPE, *is, &[*kind]),
            Match::DestinationLocal(is) => {
                self.out.push(Instruction::DestinationType);
                self.compare(*is, &RTN_LOCAL.to_ne_bytes());
            }
            Match::Vxlan(_, vni) => self.vxlan(*vni),
            Match::Chance { part, of } => self.chance(*part, *of),
            Match::Counter => self.out.push(Instruction::Counter),
            Match::Comment => {}
            Match::Expression(it) => self.out.push(unknown(it)),
            // The kernel refuses it by name: rules of ours for nftables never have such a part.
            Match::DestinationPorts(..) => self.out.push(Instruction::Unknown("multiport".into(), vec![])),
            Match::Other(text) => self.out.push(Instruction::Unknown(text.to_string(), vec![])),
        }
    }

    fn act(&mut self, action: &Action) {
        let verdict = |code, chain: Option<&str>| Instruction::Verdict(code, chain.map(str::to_owned));
        self.out.push(match action {
            Action::Accept => verdict(NF_ACCEPT, None),
            Action::Drop => verdict(NF_DROP, None),
            Action::Return => verdict(NFT_RETURN, None),
            Action::Jump(chain) => verdict(NFT_JUMP, Some(chain)),
            Action::Goto(chain) => verdict(NFT_GOTO, Some(chain)),
            Action::Masquerade(ports, None) => Instruction::Masquerade(flags(*ports), None),
            Action::Masquerade(ports, Some(range)) => return self.masquerade_to(*ports, *range),
            Action::Dnat(address, port) => return self.dnat(*address, *port),
            Action::Untrack => Instruction::NoTrack,
            Action::Expression(it) => unknown(it),
            Action::OtherSource(text) | Action::Other(text) => Instruction::Unknown(text.to_string(), vec![]),
            Action::Nothing => return,
        });
    }

    fn address(&mut self, side: Side, is: Is, network: &IpNet) {
        let octets = octets(network.network());
        let prefix = network.prefix_len();
        // A prefix of whole bytes is compared by loading fewer of them.
        let is_whole = prefix.is_multiple_of(8) && prefix > 0;
        let length = if is_whole { prefix / 8 } else { network.max_prefix_len() / 8 };
        self.load_address(side, Family::of_net(*network), length);
        if !is_whole {
            let flip = vec![0; octets.len()];
            self.out.push(Instruction::Bitwise(self::octets(network.netmask()), flip));
        }
        self.compare(is, &octets[..length.into()]);
    }

    fn range(&mut self, side: Side, is: Is, first: IpAddr, last: IpAddr) {
        let family = Family::of(first);
        self.load_address(side, family, family.bits() / 8);
        let (first, last) = (octets(first), octets(last));
        match is {
            Is::Equal => {
                self.out.push(Instruction::Compare(NFT_CMP_GTE, first));
                self.out.push(Instruction::Compare(NFT_CMP_LTE, last));
            }
            Is::Different => self.out.push(Instruction::Range(NFT_RANGE_NEQ, first, last)),
        }
    }

    /// In a table of several families nothing says which one the set is about; ours are in tables of one.
    fn set(&mut self, side: Side, is: Is, set: &str) {
        let family = match self.family {
            TableFamily::Ip6 => Family::V6,
            TableFamily::Ip | TableFamily::Inet | TableFamily::Bridge => Family::V4,
        };
        self.load_address(side, family, family.bits() / 8);
        self.out.push(Instruction::Lookup(set.to_owned(), is == Is::Different));
    }

    fn load_address(&mut self, side: Side, family: Family, length: u8) {
        self.ensure_network(family);
        let at = offset(side, family);
        self.out.push(Instruction::Payload(NFT_PAYLOAD_NETWORK_HEADER, at, length.into()));
    }

    /// In a table of several families the family of the packet has to be asked for first.
    fn ensure_network(&mut self, family: Family) {
        if self.network == Some(family) {
            return;
        }
        match self.family {
            TableFamily::Inet => self.meta(NFT_META_NFPROTO, Is::Equal, &[nfproto(family)]),
            TableFamily::Bridge => self.meta(NFT_META_PROTOCOL, Is::Equal, &ether_type(family)),
            TableFamily::Ip | TableFamily::Ip6 => {}
        }
        self.network = Some(family);
    }

    fn mark(&mut self, is: Is, value: u32, mask: u32) {
        self.out.push(Instruction::Meta(NFT_META_MARK));
        if mask != u32::MAX {
            self.out.push(Instruction::Bitwise(mask.to_ne_bytes().into(), vec![0; 4]));
        }
        self.compare(is, &value.to_ne_bytes());
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

    fn masquerade_to(&mut self, ports: SourcePorts, PortRange { first, last }: PortRange) {
        let register = if last == first { NFT_REG_1 } else { NFT_REG_2 };
        self.out.push(Instruction::Load(NFT_REG_1, first.to_be_bytes().into()));
        if last != first {
            self.out.push(Instruction::Load(register, last.to_be_bytes().into()));
        }
        let flags = flags(ports) | NF_NAT_RANGE_PROTO_SPECIFIED;
        self.out.push(Instruction::Masquerade(flags, Some(register)));
    }

    fn dnat(&mut self, address: IpAddr, port: Option<u16>) {
        self.out.push(Instruction::Load(NFT_REG_1, octets(address)));
        if let Some(port) = port {
            self.out.push(Instruction::Load(NFT_REG_2, port.to_be_bytes().into()));
        }
        let family = nfproto(Family::of(address));
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

fn unknown(expression: &Expression) -> Instruction {
    Instruction::Unknown(expression.name.to_string(), expression.data.to_vec())
}

fn set_mark(SetMark { value, mask }: SetMark) -> [Instruction; 3] {
    [
        Instruction::Meta(NFT_META_MARK),
        Instruction::Bitwise((!mask).to_ne_bytes().into(), value.to_ne_bytes().into()),
        Instruction::MetaSet(NFT_META_MARK),
    ]
}

/// The name of a device: padded with zeros if it is whole, else the beginning of one.
fn device(name: &str) -> Vec<u8> {
    match name.strip_suffix('*') {
        Some(beginning) => beginning.into(),
        None => {
            let mut padded = name.as_bytes().to_vec();
            padded.resize(NAME, 0);
            padded
        }
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
pub(super) fn offset(side: Side, family: Family) -> u32 {
    match (side, family) {
        (Side::Source, Family::V4) => 12,
        (Side::Destination, Family::V4) => 16,
        (Side::Source, Family::V6) => 8,
        (Side::Destination, Family::V6) => 24,
    }
}

/// The type of the frames that carry a family.
pub(super) fn ether_type(family: Family) -> [u8; 2] {
    match family {
        Family::V4 => [0x08, 0x00],
        Family::V6 => [0x86, 0xdd],
    }
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
