//! The codes of findings, one row each: stable, so that alerts and runbooks may name them. A code that is given up is
//! never given to something else. docs/findings.md has an entry for each; a test compares the two.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Pods of this node, or to and from a peer, do without something: a person must act.
    Error,
    /// It works, but not as asked, or not for long.
    Warning,
    /// It is as it should be, and good to know.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $kind:literal $severity:ident,)*) => {
        /// Which of the things that can be wrong a finding is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its number, its kind and how bad it is.
            const fn row(self) -> (&'static str, &'static str, Severity) {
                match self { $(Self::$name => ($code, $kind, Severity::$severity),)* }
            }
        }
    };
}

codes! {
    /// A line without a code, by a flanneld of another version.
    Unlisted "FL-0000" "unlisted" Warning,

    // FL-01: the host.
    /// The kernel cannot make the device of the backend.
    KernelLacksBackend "FL-0101" "kernel-lacks-backend" Error,
    /// Packets over a bridge do not meet the rules of the host, or nobody can tell.
    BridgeNfOff "FL-0103" "bridge-nf-off" Warning,
    /// flanneld may not change the network.
    MissingCapability "FL-0105" "missing-capability" Error,
    /// No interface can carry the pod network.
    NoInterface "FL-0108" "no-interface" Error,
    /// The interface in use will not do any more, and is kept.
    InterfaceLost "FL-0109" "interface-lost" Warning,
    /// The kernel does not tell what is there.
    KernelUnreadable "FL-0110" "kernel-unreadable" Error,
    /// A file or setting cannot be written.
    FileRefused "FL-0111" "file-refused" Error,
    /// IPv6 is asked for and switched off on this host.
    NoIpv6 "FL-0112" "no-ipv6" Error,
    /// The system gives no random bytes.
    NoRandomness "FL-0113" "no-randomness" Error,
    /// A watch has failed: drift is found late.
    WatchFailed "FL-0114" "watch-failed" Warning,
    /// The interface is too small for a tunnel.
    MtuTooSmall "FL-0115" "mtu-too-small" Error,
    /// The net-conf asks for a larger MTU than the interface has.
    MtuTooLarge "FL-0116" "mtu-too-large" Warning,

    // FL-02: CNI, pods, addresses.
    /// Pods cannot be started: there is no subnet.env.
    NotReady "FL-0201" "not-ready" Error,
    /// A plugin that the network configuration names is not there.
    PluginMissing "FL-0202" "plugin-missing" Error,
    /// The bridge has the gateway of an earlier lease.
    StaleGateway "FL-0204" "stale-gateway" Warning,
    /// The bridge of the pods is down, or nothing leads to it.
    BridgeBroken "FL-0205" "bridge-broken" Error,
    /// Every address of the node's subnet is in use.
    RangeFull "FL-0207" "range-full" Error,
    /// Pods that run have another MTU than the tunnel.
    PodMtu "FL-0208" "pod-mtu" Warning,

    // FL-03: store, lease, identity.
    /// Nobody gives podCIDRs.
    NoAllocator "FL-0301" "no-allocator" Error,
    /// No subnet is left.
    RangeExhausted "FL-0302" "range-exhausted" Error,
    /// A subnet lies outside of the pod network.
    OutsideNetwork "FL-0303" "outside-network" Error,
    /// The store does not let this node do what it has to.
    Forbidden "FL-0304" "forbidden" Error,
    /// The store does not answer.
    StoreSilent "FL-0305" "store-silent" Warning,
    /// Two nodes announce one address.
    SamePublicAddress "FL-0306" "same-public-address" Error,
    /// Another node has taken this node's subnet.
    LeaseTaken "FL-0309" "lease-taken" Error,
    /// A node speaks another backend, or another setting of the same.
    OtherBackend "FL-0311" "other-backend" Warning,
    /// The store has said nothing so far.
    StoreAwaited "FL-0312" "store-awaited" Info,
    /// This node has no lease so far.
    LeaseAwaited "FL-0313" "lease-awaited" Info,
    /// Somebody else claims to be this node.
    Rival "FL-0314" "rival" Error,
    /// A lease overlaps another one.
    LeaseOverlaps "FL-0315" "lease-overlaps" Error,
    /// A lease announces an address that no node can have.
    BadPublicAddress "FL-0316" "bad-public-address" Error,
    /// Two nodes announce one hardware address.
    SameMac "FL-0317" "same-mac" Error,
    /// A lease has nothing that this node could use.
    LeaseUnusable "FL-0318" "lease-unusable" Error,
    /// Something in the store cannot be read.
    LeaseUnreadable "FL-0319" "lease-unreadable" Warning,
    /// The net-conf is missing or wrong.
    NetConfUnusable "FL-0320" "net-conf-unusable" Error,
    /// The net-conf of the store is not followed now.
    NetConfHeld "FL-0321" "net-conf-held" Warning,
    /// What is remembered of the store is in force.
    Remembered "FL-0322" "remembered" Warning,
    /// flanneld was told wrongly how to reach its store.
    StoreUnusable "FL-0323" "store-unusable" Error,
    /// The backend is not in this version.
    BackendMissing "FL-0324" "backend-missing" Error,
    /// The backend cannot work with the addresses of this node.
    BackendUnfit "FL-0325" "backend-unfit" Error,
    /// What the store says cannot be kept for a start without it.
    MemoryLost "FL-0326" "memory-lost" Warning,
    /// Kubernetes has no Node for this node.
    NoNode "FL-0327" "no-node" Error,
    /// The store answers, and does not do what was asked.
    StoreRefuses "FL-0328" "store-refuses" Error,
    /// This node's lease is gone, or does not fit any more.
    LeaseLost "FL-0329" "lease-lost" Warning,
    /// etcd has lost a part of its history, and leases with it.
    HistoryLost "FL-0330" "history-lost" Warning,

    // FL-04: the path.
    /// A peer is not on this segment, and the backend reaches no further.
    NotOnLink "FL-0408" "not-on-link" Error,

    // FL-05: what flanneld keeps.
    /// An object is not as it should be.
    Differs "FL-0501" "differs" Error,
    /// Something keeps undoing an object.
    Contested "FL-0502" "contested" Warning,
    /// A lease would take packets from this host's own networks.
    Overlap "FL-0505" "overlap" Error,
    /// A device of somebody else is in the place of ours.
    DeviceInTheWay "FL-0506" "device-in-the-way" Error,
    /// flanneld does not run.
    Daemon "FL-0508" "daemon" Error,
    /// The kernel refuses a change.
    ChangeRefused "FL-0509" "change-refused" Error,
    /// The blackhole route is left out.
    NoBlackhole "FL-0510" "no-blackhole" Info,
    /// flanneld and flannelctl are of different versions.
    VersionDiffers "FL-0511" "version-differs" Warning,
    /// state.json cannot be written.
    ReportLost "FL-0512" "report-lost" Warning,

    // FL-06: firewall, NAT.
    /// Tunnel packets stay in connection tracking.
    TunnelTracked "FL-0606" "tunnel-tracked" Info,
    /// Rules cannot be changed.
    RulesRefused "FL-0608" "rules-refused" Error,
    /// Rules cannot be looked at.
    RulesUnreadable "FL-0609" "rules-unreadable" Warning,
    /// Rules are kept elsewhere than the net-conf asks for.
    OtherFirewall "FL-0610" "other-firewall" Warning,
    /// This host can hold no rules.
    NoFirewall "FL-0611" "no-firewall" Error,
}

impl Code {
    /// Its stable form, such as `FL-0205`.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// What it is about, in one word.
    pub const fn kind(self) -> &'static str {
        self.row().1
    }

    /// How bad that is.
    pub const fn severity(self) -> Severity {
        self.row().2
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    /// One that a newer version has is read as none of ours.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let known = Self::ALL.iter().find(|code| code.as_str() == text);
        Ok(known.copied().unwrap_or(Self::Unlisted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_kinds_are_single_in_order_and_of_one_form() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].as_str() < pair[1].as_str(), "{pair:?}");
        }
        for code in Code::ALL {
            let digits = code.as_str().strip_prefix("FL-").unwrap();
            assert!(digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{code}");
            assert!(
                code.kind()
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit())
            );
            assert_eq!(Code::ALL.iter().filter(|other| other.kind() == code.kind()).count(), 1, "{code}");
        }
    }
}
