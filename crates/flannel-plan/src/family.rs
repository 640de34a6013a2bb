//! The two address families as one value, so that v4 and v6 share every code path.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Both families, v4 first: the order of Go flannel's files and of our lists.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of a network.
    pub fn of_net(net: IpNet) -> Self {
        Self::of(net.addr())
    }

    /// The prefix length of a single address: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The network that holds every address: `0.0.0.0/0` or `::/0`.
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(Ipv4Net::default()),
            Self::V6 => IpNet::V6(Ipv6Net::default()),
        }
    }

    /// The address that means "none": `0.0.0.0` or `::`.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// At most one value for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByFamily<T> {
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub v4: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub v6: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> Default for ByFamily<T> {
    fn default() -> Self {
        Self { v4: None, v6: None }
    }
}

impl<T> ByFamily<T> {
    /// The value of one family.
    pub fn get(&self, family: Family) -> Option<&T> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// Where the value of one family is kept.
    pub fn slot(&mut self, family: Family) -> &mut Option<T> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// The families that have a value, with it, v4 first.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        Family::BOTH.into_iter().filter_map(|family| Some((family, self.get(family)?)))
    }

    /// The same families with other values.
    pub fn map<U>(&self, mut f: impl FnMut(Family, &T) -> U) -> ByFamily<U> {
        ByFamily {
            v4: self.v4.as_ref().map(|value| f(Family::V4, value)),
            v6: self.v6.as_ref().map(|value| f(Family::V6, value)),
        }
    }

    /// Whether neither family has a value.
    pub fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }
}

/// Of two values of a family the later one counts.
impl<T> FromIterator<(Family, T)> for ByFamily<T> {
    fn from_iter<I: IntoIterator<Item = (Family, T)>>(values: I) -> Self {
        let mut all = Self::default();
        values.into_iter().for_each(|(family, value)| *all.slot(family) = Some(value));
        all
    }
}

/// Two networks share an address.
pub fn overlap(a: IpNet, b: IpNet) -> bool {
    // Called for thousands of pairs: that the shorter of both has the same bits says it all.
    let bits = a.prefix_len().min(b.prefix_len());
    match (a.addr(), b.addr()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differ = u32::from(a) ^ u32::from(b);
            differ.leading_zeros() >= bits.into()
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differ = u128::from(a) ^ u128::from(b);
            differ.leading_zeros() >= bits.into()
        }
        _ => false,
    }
}
