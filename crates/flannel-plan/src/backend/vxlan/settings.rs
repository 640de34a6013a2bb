//! The settings of the vxlan backend: read from a net-conf, and what a change of them means.

use serde::{Deserialize, Serialize};

use crate::backend::out_of_reach;
use crate::config::fields::{Fields, Noted};
use crate::family::Family;
use crate::finding::{Code, Finding};

/// The UDP port that Linux gives a vxlan device when nobody chooses one, and so that of Go flannel.
pub const DEFAULT_VXLAN_PORT: u16 = 8472;

/// The settings of the vxlan backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanConfig {
    /// The network number in every packet.
    pub vni: u32,
    pub port: u16,
    /// The MTU of the lower device, where it is not the device's own.
    pub mtu: Option<u32>,
    /// Whether packets carry the group policy extension.
    pub gbp: bool,
    /// Whether devices learn FDB entries from packets.
    pub learning: bool,
    /// Whether peers on the same segment are reached without the tunnel.
    pub direct_routing: bool,
}

impl VxlanConfig {
    pub(in crate::backend) fn read(settings: &mut Fields<'_>, families: &[Family]) -> Result<Self, Noted> {
        let vni = vni(settings, families);
        let port = settings.number("Port", "a whole number up to 65535", |_: u16| true);
        let mtu = mtu(settings, families);
        let (gbp, learning) = (settings.flag("GBP", false), settings.flag("Learning", false));
        let direct_routing = settings.flag("DirectRouting", false);
        Ok(Self {
            vni: vni?,
            port: port?.filter(|port| *port > 0).unwrap_or(DEFAULT_VXLAN_PORT),
            mtu: mtu?,
            gbp,
            learning,
            direct_routing,
        })
    }

    pub(in crate::backend) fn consequences(&self, new: &Self) -> Vec<Finding> {
        let mtu = || {
            let cause = "pods that run keep theirs until they are started anew";
            Finding::new(Code::PodMtu, "net-conf", "the MTU changed").because(cause)
        };
        let has_new_tunnel = (self.vni, self.port, self.gbp) != (new.vni, new.port, new.gbp);
        let tunnel = has_new_tunnel.then(|| out_of_reach("the tunnel"));
        (self.mtu != new.mtu).then(mtu).into_iter().chain(tunnel).collect()
    }
}

/// A VNI has 24 bits, but the device is named after it and the kernel takes 15 characters: that is less.
fn vni(settings: &mut Fields<'_>, families: &[Family]) -> Result<u32, Noted> {
    let (most, expected) = if families.contains(&Family::V6) {
        (9_999, "a whole number up to 9999: with IPv6 on, the name flannel-v6.VNI must fit in 15 characters")
    } else {
        (9_999_999, "a whole number up to 9999999: the name flannel.VNI must fit in 15 characters")
    };
    Ok(settings.number("VNI", expected, |vni| vni <= most)?.unwrap_or(1))
}

/// Only what the kernel would refuse is a fault, everything else worked with Go flannel: an IPv4 device has
/// an MTU of at least 68, one with IPv6 of at least 1280, and the tunnel takes 50 or 70 bytes of what is below.
fn mtu(settings: &mut Fields<'_>, families: &[Family]) -> Result<Option<u32>, Noted> {
    let (least, expected) = if families.contains(&Family::V6) {
        (
            1350,
            "0 for the interface's own, or 1350 to 65535: IPv6 needs 1280 above the tunnel, which takes 70",
        )
    } else {
        (118, "0 for the interface's own, or 118 to 65535: IPv4 needs 68 above the tunnel, which takes 50")
    };
    let mtu = settings.number("MTU", expected, |mtu| mtu == 0 || (least..=65_535).contains(&mtu))?;
    Ok(mtu.filter(|mtu| *mtu > 0))
}

#[cfg(test)]
mod tests {
    use crate::link_name::LinkName;

    #[test]
    fn the_largest_vni_is_the_last_whose_device_has_a_name() {
        let fits = |name: String| name.parse::<LinkName>().is_ok();
        assert_eq!([9_999, 10_000].map(|vni| fits(format!("flannel-v6.{vni}"))), [true, false]);
        assert_eq!([9_999_999, 10_000_000].map(|vni| fits(format!("flannel.{vni}"))), [true, false]);
    }
}
