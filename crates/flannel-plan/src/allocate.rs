//! Which subnets a node gets of the pod networks, in every store that gives them out itself. Takes the net-conf, what the
//! node holds or had, and what others have; gives a subnet of each family.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::{NetworkConfig, PodNetwork};
use crate::family::{ByFamily, Family, overlap};
use crate::number::{address, number, reach, span};

/// What a node brings along when it claims subnets.
#[derive(Clone, Copy, Debug)]
pub struct SubnetClaim<'a> {
    /// Those it holds by right, the best first: it keeps them if they fit.
    pub kept: &'a [ByFamily<IpNet>],
    /// Those it had, the best first: it gets them again if they fit and are free.
    pub previous: &'a [ByFamily<IpNet>],
    pub taken: &'a [IpNet],
    /// From the subnet of which number on a free one is looked for, counted round and round: nodes that start together
    /// rarely want the same if that is random, and both families of one node begin at the same place.
    pub start: u64,
}

/// Every subnet of a pod network is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no /{subnet_len} is free in {network}, {taken} leases overlap it")]
pub struct NoFreeSubnet {
    pub network: IpNet,
    /// The prefix length of a node's part.
    pub subnet_len: u8,
    /// How many leases lie in it.
    pub taken: usize,
}

impl SubnetClaim<'_> {
    /// The subnets that the node gets, one for each family that is on.
    pub fn choose(&self, config: &NetworkConfig) -> Result<ByFamily<IpNet>, NoFreeSubnet> {
        let networks = config.networks.iter();
        networks.map(|(family, network)| Ok((family, self.choose_of(family, network)?))).collect()
    }

    fn choose_of(&self, family: Family, network: &PodNetwork) -> Result<IpNet, NoFreeSubnet> {
        let fitting = |subnets: &[ByFamily<IpNet>], is_given: &dyn Fn(IpNet) -> bool| {
            let mut subnets = subnets.iter().filter_map(|subnets| subnets.get(family)).map(IpNet::trunc);
            subnets.find(|subnet| fits(network, *subnet) && is_given(*subnet))
        };
        let is_free = |subnet| !self.taken.iter().any(|taken| overlap(*taken, subnet));
        let held = fitting(self.kept, &|_| true).or_else(|| fitting(self.previous, &is_free));
        held.or_else(|| self.any_free(network)).ok_or_else(|| NoFreeSubnet {
            network: network.network,
            subnet_len: network.subnet_len,
            taken: self.taken.iter().filter(|taken| overlap(**taken, network.network)).count(),
        })
    }

    fn any_free(&self, network: &PodNetwork) -> Option<IpNet> {
        let from =
            |subnet_min| free_subnet(&PodNetwork { subnet_min, ..*network }, self.taken.iter().copied());
        let start = nth(network, self.start).unwrap_or(network.subnet_min);
        from(start).or_else(|| from(network.subnet_min))
    }
}

/// The first address of the subnet of that number, counted round and round.
fn nth(network: &PodNetwork, n: u64) -> Option<IpAddr> {
    let family = Family::of_net(network.network);
    let size = reach(family, network.subnet_len)?.checked_add(1)?;
    let first = number(network.subnet_min);
    let count = (number(network.subnet_max).checked_sub(first)? / size).checked_add(1)?;
    address(family, first.checked_add((u128::from(n) % count) * size)?)
}

/// Whether a lease has exactly the families of the net-conf, each as the net-conf gives it out.
pub fn fits_config(config: &NetworkConfig, subnets: &ByFamily<IpNet>) -> bool {
    Family::BOTH.into_iter().all(|family| match (config.networks.get(family), subnets.get(family)) {
        (Some(network), Some(subnet)) => fits(network, *subnet),
        (network, subnet) => network.is_none() && subnet.is_none(),
    })
}

/// The lowest subnet from `subnet_min` to `subnet_max` that shares no address with a taken one.
///
/// Taken networks may have any length and order, and may overlap. Each is jumped over at once, so the work
/// depends on how many there are and not on the size of the network.
pub fn free_subnet(network: &PodNetwork, taken: impl IntoIterator<Item = IpNet>) -> Option<IpNet> {
    let family = Family::of_net(network.network);
    let reach = reach(family, network.subnet_len)?;
    let mut spans: Vec<_> =
        taken.into_iter().filter(|net| Family::of_net(*net) == family).map(span).collect();
    spans.sort_unstable();

    let last = number(network.subnet_max);
    let mut free = number(network.subnet_min);
    for (first_taken, last_taken) in spans {
        if free > last || first_taken > free.checked_add(reach)? {
            break;
        }
        if last_taken >= free {
            free = (last_taken | reach).checked_add(1)?;
        }
    }
    if free > last {
        return None;
    }
    IpNet::new(address(family, free)?, network.subnet_len).ok()
}

/// Whether a subnet is one that the network gives out: of the exact length, from `subnet_min` to `subnet_max`;
/// any part of it, where others give out the subnets.
pub fn fits(network: &PodNetwork, subnet: IpNet) -> bool {
    network.network.contains(&subnet)
        && (subnet.prefix_len() == network.subnet_len || network.is_given_out_elsewhere())
        && subnet.addr() == subnet.network()
        && (network.subnet_min..=network.subnet_max).contains(&subnet.addr())
}
