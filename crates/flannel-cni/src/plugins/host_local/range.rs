//! Ranges of addresses, and sets of them from which one address is given: what is written, checked, and the
//! order in which addresses are tried. Pure; the order is Go's.

use std::fmt;
use std::net::IpAddr;

use flannel_plan::family::Family;
use ipnet::IpNet;

use crate::error::CniError;

/// A range as the configuration writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawRange {
    pub subnet: Option<IpNet>,
    /// The first address to give.
    pub start: Option<IpAddr>,
    /// The last address to give.
    pub end: Option<IpAddr>,
    /// The router, which is never given.
    pub gateway: Option<IpAddr>,
}

/// A range of addresses of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub subnet: IpNet,
    /// The first address to give.
    pub start: IpAddr,
    /// The last address to give; never before the first.
    pub end: IpAddr,
    /// The router, which is never given; it may be outside of the range.
    pub gateway: IpAddr,
}

impl RawRange {
    /// Fills in what is not said, and refuses what makes no sense.
    pub fn check(self) -> Result<Range, CniError> {
        let subnet = self.checked_subnet()?;
        let second = successor(subnet.network());
        let refuse =
            |what: &str, address| CniError::internal(format!("{what} {address} not in network {subnet}"));
        let start = match self.start {
            Some(start) if !subnet.contains(&start) || self.end.is_some_and(|end| end < start) => {
                return Err(refuse("RangeStart", start));
            }
            start => start.unwrap_or(second),
        };
        let end = match self.end {
            Some(end) if !subnet.contains(&end) || end < start => return Err(refuse("RangeEnd", end)),
            // Only the broadcast address can be a start that is behind the last usual address.
            end => end.unwrap_or_else(|| usual_end(subnet).max(start)),
        };
        Ok(Range { subnet, start, end, gateway: self.gateway.unwrap_or(second) })
    }

    fn checked_subnet(self) -> Result<IpNet, CniError> {
        let subnet = self.subnet.ok_or_else(|| CniError::internal("IP <nil> not v4 nor v6"))?;
        let (length, network) = (subnet.prefix_len(), subnet.network());
        if length > Family::of_net(subnet).bits() - 2 {
            return Err(CniError::internal(format!("Network {subnet} too small to allocate from")));
        }
        if subnet.addr().to_canonical().is_ipv4() && subnet.addr().is_ipv6() {
            return Err(CniError::internal("IPNet IP and Mask version mismatch"));
        }
        if subnet.addr() != network {
            return Err(CniError::internal(format!(
                "Network has host bits set. For a subnet mask of length {length} the network address is {network}"
            )));
        }
        Ok(subnet)
    }
}

impl Range {
    /// Whether an address is one of the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        // The order of addresses puts the families one after the other, so the families need no look.
        (self.start..=self.end).contains(&address)
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.contains(other.start) || other.contains(self.start)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

/// Ranges of one family of which one address is given; there is at least one, and none share an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range>,
}

impl RangeSet {
    /// Checks each range, and that they fit together.
    pub fn check(raw: &[RawRange]) -> Result<Self, CniError> {
        let mut ranges: Vec<Range> = Vec::with_capacity(raw.len());
        for range in raw {
            let range = range.check()?;
            if ranges.first().is_some_and(|first| Family::of(first.start) != Family::of(range.start)) {
                return Err(CniError::internal("mixed address families"));
            }
            ranges.push(range);
        }
        if ranges.is_empty() {
            return Err(CniError::internal("empty range set"));
        }
        for (place, one) in ranges.iter().enumerate() {
            if let Some(other) = ranges.iter().skip(place + 1).find(|other| one.overlaps(other)) {
                return Err(CniError::internal(format!("subnets {one} and {other} overlap")));
            }
        }
        Ok(Self { ranges })
    }

    /// The range that an address is of.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.ranges.iter().find(|range| range.contains(address))
    }

    /// Whether two sets share an address.
    pub fn overlaps(&self, other: &RangeSet) -> bool {
        self.ranges.iter().any(|one| other.ranges.iter().any(|two| one.overlaps(two)))
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        self.ranges.first().map_or(Family::V4, |range| Family::of(range.start))
    }

    /// The addresses to try, the one after `last` first, `last` itself at the end, routers left out.
    pub fn candidates(&self, last: Option<IpAddr>) -> Candidates<'_> {
        let current = last.filter(|last| self.range_of(*last).is_some());
        let place = current.and_then(|last| self.ranges.iter().position(|range| range.contains(last)));
        Candidates { ranges: &self.ranges, place: place.unwrap_or(0), current, first: None }
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.ranges.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

/// The addresses of a set, each once.
#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    ranges: &'a [Range],
    place: usize,
    current: Option<IpAddr>,
    /// The first address that was looked at, router or not: there the round ends.
    first: Option<IpAddr>,
}

impl<'a> Iterator for Candidates<'a> {
    type Item = (IpAddr, &'a Range);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut range = self.ranges.get(self.place)?;
            let next = match self.current {
                None => range.start,
                Some(current) if current == range.end => {
                    self.place = (self.place + 1) % self.ranges.len();
                    range = self.ranges.get(self.place)?;
                    range.start
                }
                Some(current) => successor(current),
            };
            match self.first {
                None => self.first = Some(next),
                Some(first) if first == next => {
                    self.ranges = &[]; // once at its end, always at its end
                    return None;
                }
                Some(_) => {}
            }
            self.current = Some(next);
            if next != range.gateway {
                return Some((next, range));
            }
        }
    }
}

/// The address after this one; the last of all has none after it, and no range reaches beyond it.
fn successor(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(u32::from(address).saturating_add(1).into()),
        IpAddr::V6(address) => IpAddr::V6(u128::from(address).saturating_add(1).into()),
    }
}

/// The last address of a network, without the broadcast address that IPv4 has.
fn usual_end(subnet: IpNet) -> IpAddr {
    match subnet {
        IpNet::V4(subnet) => IpAddr::V4(u32::from(subnet.broadcast()).saturating_sub(1).into()),
        IpNet::V6(subnet) => IpAddr::V6(subnet.broadcast()),
    }
}

#[cfg(test)]
mod tests;
