//! The instructions that a rule is made of in the kernel, one by one: to bytes and back.
//!
//! Registers: what is loaded lies in 1, the port of a translation in 2; the verdict is 0.

use std::borrow::Cow;

use crate::firewall::abi::*;
use crate::firewall::netfilter::{be32, text};
use crate::netlink::{Attributes, Writer};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    Meta(u32),
    MetaSet(u32),
    /// Load bytes of the packet: header, offset, length.
    Payload(u32, u32, u32),
    /// Keep the bits of the first, then turn those of the second.
    Bitwise(Vec<u8>, Vec<u8>),
    Compare(u32, Vec<u8>),
    Range(u32, Vec<u8>, Vec<u8>),
    /// Load the type of the destination address.
    DestinationType,
    Load(u32, Vec<u8>),
    Verdict(i32, Option<String>),
    /// Masquerade with these flags: to any port, or to one from that in register 1 to that in this one.
    Masquerade(u32, Option<u32>),
    /// Load a number below this one, by chance.
    Random(u32),
    /// Turn the number that was loaded into the order of bytes in packets.
    ToNetworkOrder,
    /// Translate the destination of this family; with a port or without.
    Dnat {
        family: u32,
        port: bool,
    },
    Counter,
    NoTrack,
    /// Go on only if what was loaded is in a set; or only if it is not.
    Lookup(String, bool),
    Unknown(String, Vec<u8>),
}

impl Instruction {
    /// Writes it as an element of a rule's list.
    pub(crate) fn write(&self, list: &mut Writer) {
        list.nest(NFTA_LIST_ELEM, |element| {
            element.text(NFTA_EXPR_NAME, self.name());
            match self {
                Self::Unknown(_, bytes) => element.attribute(NFTA_EXPR_DATA, bytes),
                _ => element.nest(NFTA_EXPR_DATA, |data| self.write_data(data)),
            }
        });
    }

    fn name(&self) -> &str {
        match self {
            Self::Meta(_) | Self::MetaSet(_) => "meta",
            Self::Payload(..) => "payload",
            Self::Bitwise(..) => "bitwise",
            Self::Compare(..) => "cmp",
            Self::Range(..) => "range",
            Self::DestinationType => "fib",
            Self::Load(..) | Self::Verdict(..) => "immediate",
            Self::Masquerade(..) => "masq",
            Self::Random(_) => "numgen",
            Self::ToNetworkOrder => "byteorder",
            Self::Dnat { .. } => "nat",
            Self::Counter => "counter",
            Self::NoTrack => "notrack",
            Self::Lookup(..) => "lookup",
            Self::Unknown(name, _) => name,
        }
    }

    fn write_data(&self, data: &mut Writer) {
        match self {
            Self::Meta(key) => be(data, &[(NFTA_META_KEY, *key), (NFTA_META_DREG, NFT_REG_1)]),
            Self::MetaSet(key) => be(data, &[(NFTA_META_KEY, *key), (NFTA_META_SREG, NFT_REG_1)]),
            Self::Payload(base, offset, length) => {
                be(data, &[(NFTA_PAYLOAD_DREG, NFT_REG_1), (NFTA_PAYLOAD_BASE, *base)]);
                be(data, &[(NFTA_PAYLOAD_OFFSET, *offset), (NFTA_PAYLOAD_LEN, *length)]);
            }
            Self::Bitwise(mask, flip) => write_bitwise(data, mask, flip),
            Self::Compare(operator, value) => {
                be(data, &[(NFTA_CMP_SREG, NFT_REG_1), (NFTA_CMP_OP, *operator)]);
                write_value(data, NFTA_CMP_DATA, value);
            }
            Self::Range(operator, first, last) => {
                be(data, &[(NFTA_RANGE_SREG, NFT_REG_1), (NFTA_RANGE_OP, *operator)]);
                write_value(data, NFTA_RANGE_FROM_DATA, first);
                write_value(data, NFTA_RANGE_TO_DATA, last);
            }
            Self::DestinationType => be(data, &DESTINATION_TYPE),
            Self::Load(register, value) => {
                be(data, &[(NFTA_IMMEDIATE_DREG, *register)]);
                write_value(data, NFTA_IMMEDIATE_DATA, value);
            }
            Self::Verdict(code, chain) => write_verdict(data, *code, chain.as_deref()),
            Self::Masquerade(0, None) | Self::Counter | Self::NoTrack | Self::Unknown(..) => {}
            Self::Lookup(set, inverted) => write_lookup(data, set, *inverted),
            Self::Masquerade(flags, last) => {
                be(data, &[(NFTA_MASQ_FLAGS, *flags)]);
                if let Some(last) = last {
                    be(data, &[(NFTA_MASQ_REG_PROTO_MIN, NFT_REG_1), (NFTA_MASQ_REG_PROTO_MAX, *last)]);
                }
            }
            Self::Random(below) => {
                be(data, &RANDOM);
                be(data, &[(NFTA_NG_MODULUS, *below), (NFTA_NG_OFFSET, 0)]);
            }
            Self::ToNetworkOrder => be(data, &TO_NETWORK_ORDER),
            Self::Dnat { family, port } => write_dnat(data, *family, *port),
        }
    }

    /// Reads one by its name; none if we do not know what it means, as with another register than ours.
    fn read(name: &str, data: Attributes) -> Option<Self> {
        let number = |kind| find_number(data, kind);
        let value = |kind| find_value(data, kind);
        let uses = |kind| number(kind) == Some(NFT_REG_1);
        Some(match name {
            "meta" if uses(NFTA_META_SREG) => Self::MetaSet(number(NFTA_META_KEY)?),
            "meta" if uses(NFTA_META_DREG) => Self::Meta(number(NFTA_META_KEY)?),
            "payload" if uses(NFTA_PAYLOAD_DREG) => {
                let (base, offset) = (number(NFTA_PAYLOAD_BASE)?, number(NFTA_PAYLOAD_OFFSET)?);
                Self::Payload(base, offset, number(NFTA_PAYLOAD_LEN)?)
            }
            "bitwise" if uses(NFTA_BITWISE_SREG) && uses(NFTA_BITWISE_DREG) => {
                Self::Bitwise(value(NFTA_BITWISE_MASK)?, value(NFTA_BITWISE_XOR)?)
            }
            "cmp" if uses(NFTA_CMP_SREG) => Self::Compare(number(NFTA_CMP_OP)?, value(NFTA_CMP_DATA)?),
            "range" if uses(NFTA_RANGE_SREG) => {
                let (first, last) = (value(NFTA_RANGE_FROM_DATA)?, value(NFTA_RANGE_TO_DATA)?);
                Self::Range(number(NFTA_RANGE_OP)?, first, last)
            }
            "fib" if has(data, &DESTINATION_TYPE) => Self::DestinationType,
            "numgen" if has(data, &RANDOM) && number(NFTA_NG_OFFSET).unwrap_or(0) == 0 => {
                Self::Random(number(NFTA_NG_MODULUS)?)
            }
            "byteorder" if has(data, &TO_NETWORK_ORDER) => Self::ToNetworkOrder,
            "lookup" if uses(NFTA_LOOKUP_SREG) => read_lookup(data)?,
            "immediate" => read_immediate(data)?,
            "masq" => read_masquerade(data)?,
            "nat" => read_dnat(data)?,
            "counter" => Self::Counter,
            "notrack" => Self::NoTrack,
            _ => return None,
        })
    }
}

/// The name and the data of an instruction, as the kernel tells them.
pub(super) type Told<'a> = (Cow<'a, str>, &'a [u8]);

/// Reads the list of a rule.
pub(super) fn read_list(list: &[u8]) -> (Vec<Instruction>, Vec<Told<'_>>) {
    let element = |(_, bytes)| {
        let name = Attributes(bytes).get(NFTA_EXPR_NAME).unwrap_or_default();
        let name = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name));
        let data = Attributes(bytes).get(NFTA_EXPR_DATA).unwrap_or_default();
        let unknown = || Instruction::Unknown(name.to_string(), data.to_owned());
        (Instruction::read(&name, Attributes(data)).unwrap_or_else(unknown), (name, data))
    };
    Attributes(list).filter(|(kind, _)| *kind == NFTA_LIST_ELEM).map(element).unzip()
}

fn be(data: &mut Writer, numbers: &[(u16, u32)]) {
    for (kind, value) in numbers {
        data.attribute(*kind, &value.to_be_bytes());
    }
}

fn write_value(data: &mut Writer, kind: u16, value: &[u8]) {
    data.nest(kind, |inner| inner.attribute(NFTA_DATA_VALUE, value));
}

fn write_bitwise(data: &mut Writer, mask: &[u8], flip: &[u8]) {
    let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
    be(data, &[(NFTA_BITWISE_SREG, NFT_REG_1), (NFTA_BITWISE_DREG, NFT_REG_1), (NFTA_BITWISE_LEN, length)]);
    write_value(data, NFTA_BITWISE_MASK, mask);
    write_value(data, NFTA_BITWISE_XOR, flip);
}

fn write_verdict(data: &mut Writer, code: i32, chain: Option<&str>) {
    be(data, &[(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)]);
    data.nest(NFTA_IMMEDIATE_DATA, |inner| {
        inner.nest(NFTA_DATA_VERDICT, |verdict| {
            verdict.attribute(NFTA_VERDICT_CODE, &code.to_be_bytes());
            if let Some(chain) = chain {
                verdict.text(NFTA_VERDICT_CHAIN, chain);
            }
        });
    });
}

fn write_lookup(data: &mut Writer, set: &str, inverted: bool) {
    data.text(NFTA_LOOKUP_SET, set);
    be(data, &[(NFTA_LOOKUP_SREG, NFT_REG_1)]);
    if inverted {
        be(data, &[(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV)]);
    }
}

const DESTINATION_TYPE: [(u16, u32); 3] = [
    (NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR),
    (NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE),
    (NFTA_FIB_DREG, NFT_REG_1),
];

const RANDOM: [(u16, u32); 2] = [(NFTA_NG_DREG, NFT_REG_1), (NFTA_NG_TYPE, NFT_NG_RANDOM)];

/// What turns a number of four bytes.
const TO_NETWORK_ORDER: [(u16, u32); 5] = [
    (NFTA_BYTEORDER_SREG, NFT_REG_1),
    (NFTA_BYTEORDER_DREG, NFT_REG_1),
    (NFTA_BYTEORDER_OP, NFT_BYTEORDER_HTON),
    (NFTA_BYTEORDER_LEN, 4),
    (NFTA_BYTEORDER_SIZE, 4),
];

fn write_dnat(data: &mut Writer, family: u32, port: bool) {
    be(data, &[(NFTA_NAT_TYPE, NFT_NAT_DNAT), (NFTA_NAT_FAMILY, family)]);
    be(data, &[(NFTA_NAT_REG_ADDR_MIN, NFT_REG_1)]);
    if port {
        be(data, &[(NFTA_NAT_REG_PROTO_MIN, NFT_REG_2), (NFTA_NAT_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED)]);
    }
}

fn find_number(data: Attributes, kind: u16) -> Option<u32> {
    be32(data.get(kind)?)
}

fn find_value(data: Attributes, kind: u16) -> Option<Vec<u8>> {
    Attributes(data.get(kind)?).get(NFTA_DATA_VALUE).map(<[u8]>::to_owned)
}

/// Whether all these attributes have these numbers.
fn has(data: Attributes, wanted: &[(u16, u32)]) -> bool {
    wanted.iter().all(|(kind, value)| find_number(data, *kind) == Some(*value))
}

fn read_lookup(data: Attributes) -> Option<Instruction> {
    let flags = find_number(data, NFTA_LOOKUP_FLAGS).unwrap_or(0);
    // A lookup of a map puts what it finds into a register, which ours never does.
    let plain = flags & !NFT_LOOKUP_F_INV == 0 && data.get(NFTA_LOOKUP_DREG).is_none();
    let set = data.get(NFTA_LOOKUP_SET).filter(|_| plain)?;
    Some(Instruction::Lookup(text(set), flags != 0))
}

fn read_immediate(data: Attributes) -> Option<Instruction> {
    let register = find_number(data, NFTA_IMMEDIATE_DREG)?;
    if register != NFT_REG_VERDICT {
        return Some(Instruction::Load(register, find_value(data, NFTA_IMMEDIATE_DATA)?));
    }
    let verdict = Attributes(Attributes(data.get(NFTA_IMMEDIATE_DATA)?).get(NFTA_DATA_VERDICT)?);
    let code = find_number(verdict, NFTA_VERDICT_CODE)?.cast_signed();
    Some(Instruction::Verdict(code, verdict.get(NFTA_VERDICT_CHAIN).map(text)))
}

fn read_masquerade(data: Attributes) -> Option<Instruction> {
    let flags = find_number(data, NFTA_MASQ_FLAGS).unwrap_or(0);
    let first = find_number(data, NFTA_MASQ_REG_PROTO_MIN);
    let last = find_number(data, NFTA_MASQ_REG_PROTO_MAX).or(first);
    let known = matches!((first, last), (None, None) | (Some(NFT_REG_1), Some(NFT_REG_1 | NFT_REG_2)));
    known.then_some(Instruction::Masquerade(flags, last))
}

fn read_dnat(data: Attributes) -> Option<Instruction> {
    // The kernel adds flags and the upper ends by itself.
    let flags = find_number(data, NFTA_NAT_FLAGS).unwrap_or(0);
    let same = |min: u16, max: u16| data.get(max).is_none_or(|max| Some(max) == data.get(min));
    let plain = has(data, &[(NFTA_NAT_TYPE, NFT_NAT_DNAT), (NFTA_NAT_REG_ADDR_MIN, NFT_REG_1)])
        && flags & !(NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED) == 0
        && same(NFTA_NAT_REG_ADDR_MIN, NFTA_NAT_REG_ADDR_MAX)
        && same(NFTA_NAT_REG_PROTO_MIN, NFTA_NAT_REG_PROTO_MAX);
    let port = find_number(data, NFTA_NAT_REG_PROTO_MIN);
    let known = plain && port.is_none_or(|register| register == NFT_REG_2);
    let family = find_number(data, NFTA_NAT_FAMILY)?;
    known.then_some(Instruction::Dnat { family, port: port.is_some() })
}
