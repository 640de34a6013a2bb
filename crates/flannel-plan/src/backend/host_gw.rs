//! host-gw: plain routes between nodes of one segment, no device of our own.

use crate::backend::BackendError;
use crate::backend::vxlan::direct_route;
use crate::desired::Draft;
use crate::inputs::Inputs;
use crate::peers::{IgnoredLease, Peer, Why};
use crate::state::Item;
use crate::underlay::{Underlay, on_link};

/// Others route to the announced address, so it must be the interface's own.
pub(super) fn check(underlay: &Underlay) -> Result<(), BackendError> {
    for (family, public) in underlay.public.iter() {
        match underlay.addresses.get(family) {
            Some(own) if own != public => {
                return Err(BackendError::BehindNat { public: *public, own: *own, link: underlay.link });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds what the peers need: a route each, if they are on this segment.
pub(super) fn add_peers(inputs: &Inputs, peers: &[Peer<'_>], plan: &mut Draft) {
    for (peer, endpoint) in
        peers.iter().flat_map(|peer| peer.endpoints.iter().map(move |(_, endpoint)| (peer, endpoint)))
    {
        match on_link(&inputs.routes, endpoint.public) {
            Some(link) => plan.put(Item::Route(direct_route(endpoint, link))),
            None => plan.ignored.push(IgnoredLease {
                owner: peer.lease.owner.clone(),
                subnet: Some(endpoint.subnet),
                why: Why::NotOnLink(endpoint.public),
            }),
        }
    }
}
