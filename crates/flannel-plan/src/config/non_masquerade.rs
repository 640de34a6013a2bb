//! One entry of a list of networks that are not masqueraded, in a net-conf or in ip-masq-agent's file. Takes its text, gives the network or what is wrong.

use std::net::Ipv6Addr;

use ipnet::IpNet;

/// Why a text is no network that can be left out of masquerade.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrFault {
    #[error("a network such as 10.0.0.0/8 or fd00::/8")]
    NoNetwork,
    /// It has bits behind its prefix: was this network meant, or only that address?
    #[error("{0}, the network that it is inside of, or the single address {1}")]
    NotAligned(IpNet, IpNet),
    /// It is IPv4 in IPv6 dress, which no rule of either family matches.
    #[error("an IPv4 network written as one, without ::ffff:")]
    Mapped,
    /// It is of a family that ip-masq-agent does not look after.
    #[error("an IPv4 network: IPv6 is off; switch it on with --enable-ipv6")]
    Ipv6Off,
}

/// Reads one network.
pub fn network(text: &str) -> Result<IpNet, CidrFault> {
    let network = parsed(text).ok_or(CidrFault::NoNetwork)?;
    let is_mapped = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
    if matches!(network, IpNet::V6(net) if is_mapped(net.addr()) && net.prefix_len() >= 96) {
        return Err(CidrFault::Mapped);
    }
    if network.trunc() != network {
        return Err(CidrFault::NotAligned(network.trunc(), IpNet::from(network.addr())));
    }
    Ok(network)
}

/// As Go reads it: numbers without leading zeros, as those are octal to some and decimal to others.
fn parsed(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    IpNet::new(address.parse().ok()?, length.parse().ok().filter(|_| digits)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_read_if_it_begins_where_it_says() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/32", "fd00::/8", "::/0"] {
            assert_eq!(network(text).map(|found| found.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_network_is_told_with_what_was_meant() {
        let cases = [
            ("abcdefg", "a network such as 10.0.0.0/8 or fd00::/8"),
            ("10.256.0.0/16", "a network such as 10.0.0.0/8 or fd00::/8"),
            ("10.0.0.0", "a network such as 10.0.0.0/8 or fd00::/8"),
            ("10.0.0.0/33", "a network such as 10.0.0.0/8 or fd00::/8"),
            (" 10.0.0.0/8", "a network such as 10.0.0.0/8 or fd00::/8"),
            ("010.0.0.0/8", "a network such as 10.0.0.0/8 or fd00::/8"),
            ("10.0.0.1/8", "10.0.0.0/8, the network that it is inside of, or the single address 10.0.0.1/32"),
            ("fd00::1/8", "fd00::/8, the network that it is inside of, or the single address fd00::1/128"),
            ("::ffff:10.0.0.0/104", "an IPv4 network written as one, without ::ffff:"),
        ];
        for (text, expected) in cases {
            assert_eq!(network(text).map_err(|fault| fault.to_string()), Err(expected.to_owned()), "{text}");
        }
    }
}
