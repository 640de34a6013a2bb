//! The backend and its settings. Takes the fields of a net-conf and the families that are on, gives a
//! [`Backend`] or notes the faults.

use super::fields::{Fields, Noted};
use super::{Backend, DEFAULT_VXLAN_PORT, VxlanConfig};
use crate::family::Family;

const EXPECTED: &str = "one of vxlan, host-gw, alloc (or, in Go flannel only: udp, ipip, wireguard, ipsec, extension, tencent-vpc)";

/// Reads the key `Backend`.
pub(super) fn read(fields: &mut Fields<'_>, families: &[Family]) -> Result<Backend, Noted> {
    if !fields.has("Backend") {
        return Ok(Backend::Missing("udp".to_owned())); // what Go flannel takes, whatever its documents say
    }
    let Some(mut settings) = fields.of_object("Backend") else {
        return Err(fields.note("Backend", format!("an object with the key Type: {EXPECTED}")));
    };
    let backend = of_type(&mut settings, families);
    fields.add_faults(settings.into_faults());
    backend
}

fn of_type(settings: &mut Fields<'_>, families: &[Family]) -> Result<Backend, Noted> {
    let name = settings.text("Type", EXPECTED)?.unwrap_or_default().to_lowercase();
    match name.as_str() {
        "vxlan" => vxlan(settings, families).map(Backend::Vxlan),
        "host-gw" => Ok(Backend::HostGw),
        "alloc" => Ok(Backend::Alloc),
        "udp" | "ipip" | "wireguard" | "ipsec" | "extension" | "tencent-vpc" => Ok(Backend::Missing(name)),
        _ => Err(settings.note("Type", EXPECTED)),
    }
}

fn vxlan(settings: &mut Fields<'_>, families: &[Family]) -> Result<VxlanConfig, Noted> {
    let vni = vni(settings, families);
    let port = settings.number("Port", "a whole number up to 65535", |_: u16| true);
    let mtu = mtu(settings, families);
    let (gbp, learning) = (settings.flag("GBP", false), settings.flag("Learning", false));
    let direct_routing = settings.flag("DirectRouting", false);
    Ok(VxlanConfig {
        vni: vni?,
        port: port?.filter(|port| *port > 0).unwrap_or(DEFAULT_VXLAN_PORT),
        mtu: mtu?,
        gbp,
        learning,
        direct_routing,
    })
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
