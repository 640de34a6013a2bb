//! The net-confs that labs are usually built with.

use std::fmt;
use std::str::FromStr;

/// How the nodes of a lab reach each other's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Through a vxlan tunnel, always.
    Vxlan,
    /// Through a vxlan tunnel only between racks.
    VxlanDirectRouting,
    /// By plain routes, only within a rack.
    HostGw,
    /// Not at all: leases alone.
    Alloc,
}

/// The address families of the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    #[default]
    V4,
    Dual,
}

impl Backend {
    /// All of them, in the order in which they are explained.
    pub const ALL: [Self; 4] = [Self::Vxlan, Self::VxlanDirectRouting, Self::HostGw, Self::Alloc];

    /// The name by which a person chooses it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::VxlanDirectRouting => "vxlan-directrouting",
            Self::HostGw => "host-gw",
            Self::Alloc => "alloc",
        }
    }

    /// The text of net-conf.json, on Go flannel's usual pod networks.
    pub fn net_conf(self, families: Families) -> String {
        let backend = match self {
            Self::Vxlan => r#"{"Type":"vxlan"}"#,
            Self::VxlanDirectRouting => r#"{"Type":"vxlan","DirectRouting":true}"#,
            Self::HostGw => r#"{"Type":"host-gw"}"#,
            Self::Alloc => r#"{"Type":"alloc"}"#,
        };
        let v6 = match families {
            Families::V4 => "",
            Families::Dual => r#""EnableIPv6":true,"IPv6Network":"fd00:244::/48","#,
        };
        format!(r#"{{"Network":"10.244.0.0/16",{v6}"Backend":{backend}}}"#)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| format!("the lab knows {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_confs_are_those_of_the_go_program() {
        assert_eq!(
            Backend::Vxlan.net_conf(Families::Dual),
            r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#
        );
        assert_eq!(
            Backend::HostGw.net_conf(Families::V4),
            r#"{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}"#
        );
    }

    #[test]
    fn every_backend_is_found_by_its_name() {
        assert!(Backend::ALL.iter().all(|backend| backend.name().parse() == Ok(*backend)));
        assert_eq!(
            "udp".parse::<Backend>(),
            Err("the lab knows vxlan, vxlan-directrouting, host-gw, alloc".to_owned())
        );
    }
}
