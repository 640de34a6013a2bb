//! What is asked about a packet, as words of the command line.

use std::str::FromStr;

/// The protocols that have ports, by the names that people use.
const PROTOCOLS: [(&str, u8); 3] = [("tcp", 6), ("udp", 17), ("sctp", 132)];

/// A port and its protocol: `443` is TCP's, `53/udp` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub number: u16,
    /// The number of the protocol.
    pub protocol: u8,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, name) = text.split_once('/').unwrap_or((text, "tcp"));
        let number = number.parse().map_err(|_| format!("{number} is no port: say 443, or 53/udp"))?;
        let known = || PROTOCOLS.map(|(name, _)| name).join(", ");
        let found = PROTOCOLS.iter().find(|(known, _)| *known == name);
        let (_, protocol) = found.ok_or_else(|| format!("{name} is none of {}", known()))?;
        Ok(Self { number, protocol: *protocol })
    }
}

/// A mark, in decimal or behind 0x.
pub fn fwmark(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text} is no mark: say 0x4000, or 16384"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_protocol_is_of_tcp() {
        assert_eq!("443".parse(), Ok(Port { number: 443, protocol: 6 }));
        assert_eq!("53/udp".parse(), Ok(Port { number: 53, protocol: 17 }));
        let refused = |text: &str| text.parse::<Port>().unwrap_err();
        assert_eq!(refused("70000"), "70000 is no port: say 443, or 53/udp");
        assert_eq!(refused("53/icmp"), "icmp is none of tcp, udp, sctp");
    }

    #[test]
    fn a_mark_may_be_written_as_iptables_writes_it() {
        assert_eq!(["0x4000", "16384"].map(fwmark), [Ok(0x4000), Ok(0x4000)]);
        assert_eq!(fwmark("4000h"), Err("4000h is no mark: say 0x4000, or 16384".to_owned()));
    }
}
