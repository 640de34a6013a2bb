//! Which firewall is used: the one that is asked for, else iptables where it works, as Go's plugins choose.

use flannel_kernel::firewall::iptables::Iptables;
use flannel_kernel::firewall::nft::Nft;
use flannel_plan::family::Family;

/// What holds the rules of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirewallBackend {
    /// By the programs of iptables.
    Iptables,
    /// By netlink.
    Nftables,
}

impl FirewallBackend {
    /// The backend of a name in a configuration.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Iptables, Self::Nftables].into_iter().find(|backend| backend.name() == name)
    }

    /// Its name in a configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }

    /// What is used where nothing is asked for: nftables only where iptables does not work and it does.
    pub(crate) fn of_this_host() -> Self {
        if !Self::Iptables.is_usable() && Self::Nftables.is_usable() {
            Self::Nftables
        } else {
            Self::Iptables
        }
    }

    /// Whether rules can be made by it on this host.
    pub(crate) fn is_usable(self) -> bool {
        match self {
            Self::Iptables => Iptables::find(Family::V4).is_some_and(|iptables| iptables.is_usable()),
            Self::Nftables => Nft::open().and_then(|mut nft| nft.generation()).is_ok(),
        }
    }
}
