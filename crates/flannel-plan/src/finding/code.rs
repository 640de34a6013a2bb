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
    ($($name:ident $code:literal $kind:literal $severity:ident,)*) => {
        /// Which of the things that can be wrong a finding is about; docs/findings.md says what each means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($name,)*
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
    // A line without a code, by a flanneld of another version.
    Unlisted "FL-0000" "unlisted" Warning,

    // FL-01: the host.
    KernelLacksBackend "FL-0101" "kernel-lacks-backend" Error,
    BridgeNfOff "FL-0103" "bridge-nf-off" Warning,
    MissingCapability "FL-0105" "missing-capability" Error,
    NoInterface "FL-0108" "no-interface" Error,
    InterfaceLost "FL-0109" "interface-lost" Warning,
    KernelUnreadable "FL-0110" "kernel-unreadable" Error,
    FileRefused "FL-0111" "file-refused" Error,
    NoIpv6 "FL-0112" "no-ipv6" Error,
    NoRandomness "FL-0113" "no-randomness" Error,
    WatchFailed "FL-0114" "watch-failed" Warning,
    MtuTooSmall "FL-0115" "mtu-too-small" Error,
    MtuTooLarge "FL-0116" "mtu-too-large" Warning,

    // FL-02: CNI, pods, addresses.
    NotReady "FL-0201" "not-ready" Error,
    PluginMissing "FL-0202" "plugin-missing" Error,
    StaleGateway "FL-0204" "stale-gateway" Warning,
    BridgeBroken "FL-0205" "bridge-broken" Error,
    RangeFull "FL-0207" "range-full" Error,
    PodMtu "FL-0208" "pod-mtu" Warning,

    // FL-03: store, lease, identity.
    NoAllocator "FL-0301" "no-allocator" Error,
    RangeExhausted "FL-0302" "range-exhausted" Error,
    OutsideNetwork "FL-0303" "outside-network" Error,
    Forbidden "FL-0304" "forbidden" Error,
    StoreSilent "FL-0305" "store-silent" Warning,
    SamePublicAddress "FL-0306" "same-public-address" Error,
    LeaseTaken "FL-0309" "lease-taken" Error,
    OtherBackend "FL-0311" "other-backend" Warning,
    StoreAwaited "FL-0312" "store-awaited" Info,
    LeaseAwaited "FL-0313" "lease-awaited" Info,
    Rival "FL-0314" "rival" Error,
    LeaseOverlaps "FL-0315" "lease-overlaps" Error,
    BadPublicAddress "FL-0316" "bad-public-address" Error,
    SameMac "FL-0317" "same-mac" Error,
    LeaseUnusable "FL-0318" "lease-unusable" Error,
    LeaseUnreadable "FL-0319" "lease-unreadable" Warning,
    NetConfUnusable "FL-0320" "net-conf-unusable" Error,
    NetConfHeld "FL-0321" "net-conf-held" Warning,
    Remembered "FL-0322" "remembered" Warning,
    StoreUnusable "FL-0323" "store-unusable" Error,
    BackendMissing "FL-0324" "backend-missing" Error,
    BackendUnfit "FL-0325" "backend-unfit" Error,
    MemoryLost "FL-0326" "memory-lost" Warning,
    NoNode "FL-0327" "no-node" Error,
    StoreRefuses "FL-0328" "store-refuses" Error,
    LeaseLost "FL-0329" "lease-lost" Warning,
    HistoryLost "FL-0330" "history-lost" Warning,

    // FL-04: the path.
    NotOnLink "FL-0408" "not-on-link" Error,

    // FL-05: what flanneld keeps.
    Differs "FL-0501" "differs" Error,
    Contested "FL-0502" "contested" Warning,
    Overlap "FL-0505" "overlap" Error,
    DeviceInTheWay "FL-0506" "device-in-the-way" Error,
    Daemon "FL-0508" "daemon" Error,
    ChangeRefused "FL-0509" "change-refused" Error,
    NoBlackhole "FL-0510" "no-blackhole" Info,
    VersionDiffers "FL-0511" "version-differs" Warning,
    ReportLost "FL-0512" "report-lost" Warning,

    // FL-06: firewall, NAT.
    TunnelTracked "FL-0606" "tunnel-tracked" Info,
    RulesRefused "FL-0608" "rules-refused" Error,
    RulesUnreadable "FL-0609" "rules-unreadable" Warning,
    OtherFirewall "FL-0610" "other-firewall" Warning,
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
