//! The next free part of a pod network. Takes the network and what is taken, gives the lowest free subnet.

use ipnet::IpNet;

use crate::config::PodNetwork;
use crate::family::Family;
use crate::number::{address, number, reach, span};

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
