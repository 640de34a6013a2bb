//! Puts together what a decision depends on, from the store's last word and one look at the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use flannel_leases::Snapshot;
use flannel_plan::backend::BackendError;
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::lease::{Lease, is_same_node};
use flannel_plan::observation::Observation;
use flannel_plan::underlay::{self, Choice, Host, NoUnderlay, Pattern, Underlay, UnderlayOptions};
use regex::Regex;

use crate::options::Options;

/// Why nothing can be decided yet.
#[derive(Debug, thiserror::Error)]
pub enum NotYet {
    #[error("waiting for the lease store")]
    NoSnapshot(Option<Box<Finding>>),
    #[error("{0}")]
    Config(Box<Finding>),
    #[error("{0}; {hint}", hint = .0.hint)]
    Underlay(#[from] NoUnderlay),
    #[error("{0}")]
    Backend(#[from] BackendError),
    #[error("no hardware address can be made: {0}")]
    Identity(#[from] std::io::Error),
    #[error("waiting for a lease")]
    NoLease(Option<Box<Finding>>),
    #[error("the kernel cannot be looked at: {0}")]
    Observation(#[from] flannel_kernel::ObserveError),
}

impl NotYet {
    /// Whether a look was only ended for something more urgent.
    pub fn gave_way(&self) -> bool {
        matches!(self, Self::Observation(error) if error.gave_way())
    }

    /// The trouble of the store that is told with it.
    pub fn trouble(&self) -> Option<&Finding> {
        match self {
            Self::NoSnapshot(trouble) | Self::NoLease(trouble) => trouble.as_deref(),
            _ => None,
        }
    }

    /// The same to be told.
    pub fn finding(&self) -> Finding {
        match self {
            Self::NoSnapshot(None) => Finding::new(Code::StoreAwaited, "lease store", self),
            Self::NoLease(None) => Finding::new(Code::LeaseAwaited, "lease", self),
            Self::NoSnapshot(Some(trouble)) | Self::NoLease(Some(trouble)) => {
                (**trouble).clone().within(&format!("{self}: "), "")
            }
            Self::Config(fault) => (**fault).clone(),
            Self::Underlay(none) => none.finding(),
            Self::Backend(error) => error.finding(),
            Self::Identity(error) => {
                let cause = Some(error.to_string());
                Finding::new(Code::NoRandomness, "hardware address", self).with_parts(cause, None)
            }
            Self::Observation(error) => {
                let cause = Some(error.to_string());
                Finding::new(Code::KernelUnreadable, &error.what, self).with_parts(cause, None)
            }
        }
    }
}

/// Chooses the external interface, anew at every pass. The one in use stays while it can. The addresses that the store
/// gives this node come before the flags.
pub fn choose_underlay(
    options: &Options,
    config: &NetworkConfig,
    public: &ByFamily<IpAddr>,
    host: Host<'_>,
    current: Option<&Underlay>,
) -> Result<Choice, NoUnderlay> {
    let texts = texts(host.observation, current);
    let wanted = UnderlayOptions {
        families: config.families(),
        ifaces: options.ifaces.clone(),
        patterns: options.iface_regexes.iter().map(|pattern| matches(&pattern.0, &texts)).collect(),
        can_reach: options.iface_can_reach,
        public: ByFamily { v4: public.v4.or(options.public.v4), v6: public.v6.or(options.public.v6) },
    };
    underlay::choose(&wanted, host, current)
}

/// All that a pattern may match: what the host has, and what it had when the interface was chosen.
fn texts(observation: &Observation, current: Option<&Underlay>) -> BTreeSet<String> {
    let there = observation.links.iter().map(|fact| fact.link.name.to_string());
    let there = there.chain(observation.addresses.iter().map(|fact| fact.address.addr().to_string()));
    let was = current.into_iter().flat_map(|current| {
        let addresses = current.addresses.iter().map(|(_, address)| address.to_string());
        addresses.chain([current.link.to_string()])
    });
    there.chain(was).collect()
}

fn matches(regex: &Regex, texts: &BTreeSet<String>) -> Pattern {
    let matches = texts.iter().filter(|text| regex.is_match(text)).cloned().collect();
    Pattern { text: regex.to_string(), matches }
}

/// A lease that was made for this node's address, by Go flannel or by an earlier run: the store hands it over at
/// the first announcement, and this node goes on with its identity.
pub fn inherited_lease<'a>(snapshot: &'a Snapshot, underlay: &Underlay) -> Option<&'a Lease> {
    let is_ours = |lease: &&Arc<Lease>| {
        let public = &lease.announcement.public;
        let is_nameless = public.iter().any(|(_, address)| lease.owner == address.to_string());
        is_nameless && is_same_node(public, &underlay.public)
    };
    snapshot.peers.iter().find(is_ours).map(|lease| &**lease)
}
