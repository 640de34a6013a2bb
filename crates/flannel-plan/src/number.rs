//! Addresses as numbers: the arithmetic that both families share. Takes and gives addresses and networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::family::Family;

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of a number; none if the family has no such address.
pub(crate) fn address(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
        Family::V6 => Some(IpAddr::V6(number.into())),
    }
}

/// The first and the last address of a network, as numbers.
pub(crate) fn span(net: IpNet) -> (u128, u128) {
    (number(net.network()), number(net.broadcast()))
}

/// How much the last address of a network of this length is above its first; none if there is no such length.
pub(crate) fn reach(family: Family, prefix_len: u8) -> Option<u128> {
    match family.bits().checked_sub(prefix_len)? {
        0 => Some(0),
        host_bits => Some(u128::MAX >> (128 - u32::from(host_bits))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_reaches_from_its_first_to_its_last_address() {
        for net in ["0.0.0.0/0", "10.3.0.0/16", "10.3.1.4/32", "::/0", "fc00::/48", "fc00::1/128"] {
            let net: IpNet = net.parse().unwrap();
            let (first, last) = span(net);
            assert_eq!(reach(Family::of_net(net), net.prefix_len()), Some(last - first), "{net}");
            assert_eq!(address(Family::of_net(net), last), Some(net.broadcast()), "{net}");
        }
    }

    #[test]
    fn there_is_no_address_after_the_last() {
        assert_eq!(address(Family::V4, 1 << 32), None);
        assert_eq!(reach(Family::V4, 33), None);
    }
}
