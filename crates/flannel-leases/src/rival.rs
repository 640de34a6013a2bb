//! Somebody else who claims to be this node: what both write, what the other one says there, and the way out.

use std::borrow::Cow;
use std::fmt;

use flannel_plan::backend;
use flannel_plan::lease::Announcement;

/// Somebody else who writes what the store says of this node.
///
/// A store that finds one says so in [`crate::Snapshot::rival`], for as long as it is a reason to act, and where it
/// therefore refuses to write, by [`crate::StoreError::Rival`]. Whoever runs the store makes a node that yields
/// unready, and names the rival in `/readyz`, `state.json` and a metric either way. A store that cannot tell needs
/// not try: that the same correction is needed again and again is found by whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// What both write, as people find it in the store: `/coreos.com/network/subnets/10.244.1.0-24`, `node worker1`.
    pub object: String,
    /// What the other one says there; see [`said`].
    pub says: String,
    /// What a person can do about it, as an order.
    pub way_out: Cow<'static, str>,
    pub stand: Stand,
}

/// Where a node stands against a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It holds its lease, and has put right what the other one wrote: it may be ready.
    Holds,
    /// It may not be ready: the other one holds the lease, or neither does.
    Yields,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, says, way_out, stand } = self;
        let verdict = match stand {
            Stand::Holds => "is written by another flanneld as well, which this node has put right",
            Stand::Yields => "is written by another flanneld as well, so that this node must not use it",
        };
        write!(f, "{object} {verdict}: the other says {says}; {way_out}")
    }
}

/// What somebody says of itself, in words that hold nothing but addresses.
pub fn said(announcement: &Announcement) -> String {
    let public = announcement.public.iter().map(|(_, address)| address.to_string());
    let identity = backend::identity(announcement);
    let words: Vec<String> = public.chain(identity.iter().map(|(_, one)| one.to_string())).collect();
    if words.is_empty() { "no address".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_told_with_the_object_what_it_says_and_the_way_out() {
        let value = r#"{"PublicIP":"10.0.0.1","PublicIPv6":"fd00::1","BackendType":"vxlan",
            "BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}}"#;
        let says = said(&Announcement::from_etcd("", value).unwrap());
        let rival = Rival {
            object: "node worker1".to_owned(),
            says,
            way_out: "stop one of them".into(),
            stand: Stand::Yields,
        };
        assert_eq!(
            rival.to_string(),
            "node worker1 is written by another flanneld as well, so that this node must not use it: the other says \
             10.0.0.1, fd00::1, MAC 02:00:00:00:00:01; stop one of them"
        );
        assert_eq!(said(&Announcement::from_etcd("", "{}").unwrap()), "no address");
    }
}
