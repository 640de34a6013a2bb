//! What the watch of the kernel is told to mind, as the loop learns what matters.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use flannel_kernel::watch::{Interest, OwnEntry};
use flannel_plan::diff::Change;
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::Scope;
use flannel_plan::state::Item;

/// The devices and networks of a scope, and the device below, if it is certain.
pub(super) fn scope(interest: &RwLock<Interest>, scope: &Scope, underlay: Option<LinkName>) {
    let mut interest = interest.write().unwrap_or_else(PoisonError::into_inner);
    interest.underlay = underlay;
    interest.own_entries.clear();
    if interest.links != scope.links || interest.networks != scope.networks {
        interest.links.clone_from(&scope.links);
        interest.networks.clone_from(&scope.networks);
    }
}

/// The devices of others that keep peers from being followed.
pub(super) fn obstacles(interest: &RwLock<Interest>, links: BTreeSet<LinkName>) {
    interest.write().unwrap_or_else(PoisonError::into_inner).obstacles = links.into_iter().collect();
}

/// The forwarding entries that these changes make and remove: what the kernel tells of them is no news.
pub(super) fn own_entries(interest: &RwLock<Interest>, changes: &[Change]) {
    let entry = |change: &Change| {
        let Item::Fdb(entry) = *change.item() else { return None };
        Some(OwnEntry { entry, is_there: !matches!(change, Change::Remove(_)) })
    };
    let entries = changes.iter().filter_map(entry).collect();
    interest.write().unwrap_or_else(PoisonError::into_inner).own_entries = entries;
}
