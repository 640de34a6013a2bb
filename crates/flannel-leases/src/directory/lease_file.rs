//! One lease as a file: its name is the subnets, its content what Go flannel keeps in etcd, an owner and an age.
//!
//! Takes a [`Lease`] and gives name and text, and the reverse.

use flannel_plan::lease::{Announcement, Lease, subnet_key, subnets_from_key};
use flannel_plan::quoted::{is_name, quoted};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::StoreError;

const ENDING: &str = ".json";

/// The file that holds the lease of these subnets: the file system itself makes a subnet unique.
pub(super) fn name(lease: &Lease) -> String {
    format!("{}{ENDING}", subnet_key(&lease.subnets))
}

/// The key that a file's name stands for, if it may be a lease at all; hidden files are never.
pub(super) fn key(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(ENDING).filter(|key| !key.starts_with('.'))
}

/// What a file holds, of which all but the first two are what Go flannel writes. Every value of those is as it was
/// written, so that backend data stays the same to the byte.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Written<'a> {
    #[serde(skip_deserializing)]
    owner: &'a str,
    #[serde(skip_deserializing)]
    since: u64,
    #[serde(rename = "PublicIP", borrow)]
    public_ip: &'a RawValue,
    #[serde(rename = "PublicIPv6", borrow)]
    public_ipv6: &'a RawValue,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend_type: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend_data: Option<&'a RawValue>,
    #[serde(rename = "BackendV6Data", borrow, default, skip_serializing_if = "Option::is_none")]
    backend_v6_data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    owner: Option<String>,
    #[serde(default = "age_unknown")]
    since: u64,
}

/// What a lease without an age counts as: younger than all others, so that it displaces nobody.
pub(super) const AGE_UNKNOWN: u64 = u64::MAX;

fn age_unknown() -> u64 {
    AGE_UNKNOWN
}

/// The content of a lease's file.
pub(super) fn text(lease: &Lease) -> Result<String, StoreError> {
    let json = || {
        let go = lease.announcement.to_etcd()?;
        let written: Written<'_> = serde_json::from_str(&go)?;
        serde_json::to_string_pretty(&Written { owner: &lease.owner, since: lease.since, ..written })
    };
    let unwritable = |cause| StoreError::Unwritable { owner: lease.owner.clone(), cause };
    Ok(json().map_err(unwritable)? + "\n")
}

/// The lease that a file holds, or what is wrong with it.
pub(super) fn read(key: &str, text: &str) -> Result<Lease, String> {
    let subnets = subnets_from_key(key).map_err(|wrong| format!("is not a lease: {wrong}"))?;
    let canonical = subnet_key(&subnets);
    if canonical != key {
        return Err(format!("is not the name of a subnet: should it be {canonical}{ENDING}?"));
    }
    let claim: Claim = serde_json::from_str(text)
        .map_err(|wrong| format!("holds no lease: {}", quoted(&wrong.to_string())))?;
    let announcement =
        Announcement::from_etcd(key, text).map_err(|wrong| format!("holds no lease: {wrong}"))?;
    let owner = claim.owner.filter(|owner| !owner.is_empty()).or_else(|| address(&announcement));
    let owner = owner.ok_or("holds no lease: it names neither Owner nor PublicIP")?;
    if !is_name(&owner) {
        return Err(format!("holds no lease: its owner \"{}\" is no name", quoted(&owner)));
    }
    Ok(Lease { owner, subnets, announcement, since: claim.since })
}

/// Whether a lease has no owner but an address: Go flannel knows no names.
pub(super) fn is_nameless(lease: &Lease) -> bool {
    address(&lease.announcement).is_some_and(|address| address == lease.owner)
}

fn address(announcement: &Announcement) -> Option<String> {
    announcement.public.iter().next().map(|(_, address)| address.to_string())
}
