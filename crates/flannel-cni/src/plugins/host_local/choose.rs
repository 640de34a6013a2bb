//! Which address a container gets: takes sets, requested addresses and what is taken, gives an address or the reason
//! why not. Pure: everything is decided before anything is written, so an error leaves nothing to undo.

use std::net::IpAddr;

use super::range::{Range, RangeSet};
use crate::error::{CniError, finding};

/// Why a set gives no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAddress {
    /// The container has one of the set already.
    Duplicate(IpAddr),
    /// The address that is requested is the router's.
    Gateway(IpAddr),
    /// The address that is requested is somebody's.
    Taken(IpAddr),
    /// Every address is somebody's.
    Exhausted,
}

impl NoAddress {
    /// The error in the words that operators look for.
    pub fn explain(&self, set: &RangeSet, container_id: &str) -> CniError {
        CniError::internal(match self {
            Self::Duplicate(address) => {
                format!("{address} has been allocated to {container_id}, duplicate allocation is not allowed")
            }
            Self::Gateway(address) => format!("requested ip {address} is subnet's gateway"),
            Self::Taken(address) => {
                format!("requested IP address {address} is not available in range set {set}")
            }
            Self::Exhausted => {
                let text = format!("no IP addresses available in range set: {set}");
                return CniError::internal(text).found(finding::RANGE_FULL);
            }
        })
    }
}

/// What is known when a set is asked for an address.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub requested: Option<IpAddr>,
    /// The address that the set gave last.
    pub last: Option<IpAddr>,
    /// What the container has already, of any set.
    pub held: &'a [IpAddr],
}

/// The address that a set gives, and the range that it is of.
pub fn choose(
    set: &RangeSet,
    question: Question<'_>,
    is_taken: impl Fn(IpAddr) -> bool,
) -> Result<(IpAddr, Range), NoAddress> {
    // That a request cannot be met is the better answer where both are true, and the one that Go gives.
    let requested =
        question.requested.and_then(|requested| set.range_of(requested).map(|range| (requested, range)));
    match requested {
        Some((requested, range)) if requested == range.gateway => return Err(NoAddress::Gateway(requested)),
        Some((requested, _)) if is_taken(requested) => return Err(NoAddress::Taken(requested)),
        _ => {}
    }
    if let Some(held) = question.held.iter().find(|held| set.range_of(**held).is_some()) {
        return Err(NoAddress::Duplicate(*held));
    }
    let free = || set.candidates(question.last).find(|(address, _)| !is_taken(*address));
    let (address, range) = requested.or_else(free).ok_or(NoAddress::Exhausted)?;
    Ok((address, *range))
}

/// For each set the first requested address that is of it and of no set before it, and those that are left.
pub fn share_requested(sets: &[RangeSet], requested: &[IpAddr]) -> (Vec<Option<IpAddr>>, Vec<IpAddr>) {
    let mut left = requested.to_vec();
    let shares = sets
        .iter()
        .map(|set| {
            let place = left.iter().position(|requested| set.range_of(*requested).is_some())?;
            Some(left.remove(place))
        })
        .collect();
    (shares, left)
}

#[cfg(test)]
mod tests;
