//! Puts together what a decision depends on, from the store's last word and one look at the kernel.

use std::collections::BTreeSet;
use std::sync::Arc;

use flannel_leases::Snapshot;
use flannel_plan::backend::BackendError;
use flannel_plan::config::NetworkConfig;
use flannel_plan::lease::{Announcement, Lease};
use flannel_plan::link_name::LinkName;
use flannel_plan::look::Look;
use flannel_plan::underlay::{self, Choice, NoUnderlay, Pattern, Underlay, Wishes};
use regex::Regex;

use crate::options::Options;

/// Why nothing can be decided yet.
#[derive(Debug, thiserror::Error)]
pub enum NotYet {
    /// The store has said nothing.
    #[error("waiting for the lease store{}", because(.0))]
    NoWord(Option<String>),
    /// The net-conf cannot be used.
    #[error("{0}")]
    Config(String),
    /// There is nothing to send packets through.
    #[error("{0}; {hint}", hint = .0.hint())]
    Underlay(#[from] NoUnderlay),
    /// The backend cannot work here.
    #[error("{0}")]
    Backend(#[from] BackendError),
    /// No randomness for a new hardware address.
    #[error("no hardware address can be made: {0}")]
    Identity(#[from] std::io::Error),
    /// The store has no lease for this node.
    #[error("waiting for a lease{}", because(.0))]
    NoLease(Option<String>),
    /// The kernel does not answer.
    #[error("the kernel cannot be looked at: {0}")]
    Look(#[from] flannel_kernel::LookError),
}

fn because(trouble: &Option<String>) -> String {
    trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default()
}

/// Chooses the external interface, anew at every pass: it may have moved. An address that is in use stays.
pub fn choose_underlay(
    options: &Options,
    config: &NetworkConfig,
    look: &Look,
    links: &[LinkName],
    current: Option<&Underlay>,
) -> Result<Choice, NoUnderlay> {
    let wishes = Wishes {
        families: config.families(),
        ifaces: options.ifaces.clone(),
        patterns: options.iface_regexes.iter().map(|regex| matches(regex, look)).collect(),
        can_reach: options.iface_can_reach,
        public: options.public,
    };
    match current {
        Some(current) => underlay::choose_again(&wishes, look, links, current),
        None => underlay::choose(&wishes, look, links),
    }
}

fn matches(regex: &Regex, look: &Look) -> Pattern {
    let names = look.links.iter().map(|fact| fact.link.name.to_string());
    let texts = names.chain(look.addresses.iter().map(|fact| fact.address.addr().to_string()));
    let matches: BTreeSet<String> = texts.filter(|text| regex.is_match(text)).collect();
    Pattern { text: regex.to_string(), matches }
}

/// The lease whose identity this node goes on with: its own, or one that Go flannel made for its address, which
/// the store hands over at the first announcement.
pub fn inherited_lease<'a>(snapshot: &'a Snapshot, underlay: &Underlay) -> Option<&'a Lease> {
    let is_ours =
        |lease: &&Arc<Lease>| underlay.public.iter().any(|(_, public)| lease.owner == public.to_string());
    snapshot.own.as_ref().or_else(|| snapshot.peers.iter().find(is_ours)).map(|lease| &**lease)
}

/// This node's lease under its present announcement: what the store has may be a moment old.
pub fn own_lease(snapshot: &Snapshot, announcement: &Announcement) -> Option<Lease> {
    let own = snapshot.own.as_deref()?;
    let config = snapshot.config.as_ref().ok()?;
    let whole = config.networks.iter().all(|(family, _)| own.subnets.get(family).is_some());
    whole.then(|| Lease { announcement: announcement.clone(), ..own.clone() })
}
