//! The subnets that Kubernetes gave a node, from the two fields in which a Node object says so.
//!
//! Takes `spec.podCIDR` and `spec.podCIDRs`, gives at most one subnet of each family, and tells whether they are
//! what the net-conf asks for.

use ipnet::IpNet;

use crate::config::NetworkConfig;
use crate::family::{ByFamily, Family};
use crate::quoted::quoted;

/// Pod CIDRs of a node that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodCidrError {
    #[error("podCIDR \"{}\" is not a network such as 10.244.1.0/24", quoted(.0))]
    Unreadable(String),
    #[error("podCIDRs are {}, expected at most one of IPv4 and one of IPv6", quoted(&format!("{:?}", .0)))]
    TooMany(Vec<String>),
}

/// The subnets of a node; none if Kubernetes has not given it any. `podCIDRs` is right where both are set.
pub fn subnets(pod_cidr: &str, pod_cidrs: &[String]) -> Result<ByFamily<IpNet>, PodCidrError> {
    let alone = [pod_cidr.to_owned()];
    let stated = if pod_cidrs.is_empty() && !pod_cidr.is_empty() { &alone[..] } else { pod_cidrs };
    let mut subnets = ByFamily::default();
    for text in stated {
        let subnet: IpNet = text.parse().map_err(|_| PodCidrError::Unreadable(text.clone()))?;
        if subnets.slot(Family::of_net(subnet)).replace(subnet.trunc()).is_some() {
            return Err(PodCidrError::TooMany(stated.to_vec()));
        }
    }
    Ok(subnets)
}

/// Why the subnets of a node do not serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The net-conf asks for a family that it has no subnet of.
    Missing(Family),
    /// A subnet is not part of the network.
    Outside { subnet: IpNet, network: IpNet },
}

/// The subnets of the families that are switched on, if there is one of each and all are part of their network.
pub fn fitting(subnets: &ByFamily<IpNet>, config: &NetworkConfig) -> Result<ByFamily<IpNet>, Misfit> {
    let mut fitting = ByFamily::default();
    for (family, network) in config.networks.iter() {
        let network = network.network;
        let subnet = *subnets.get(family).ok_or(Misfit::Missing(family))?;
        if !network.contains(&subnet) {
            return Err(Misfit::Outside { subnet, network });
        }
        *fitting.slot(family) = Some(subnet);
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn read(pod_cidr: &str, pod_cidrs: &[&str]) -> Result<ByFamily<IpNet>, PodCidrError> {
        subnets(pod_cidr, &pod_cidrs.iter().map(|&cidr| cidr.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn one_or_two_cidrs_are_a_subnet_of_each_family_in_any_order() {
        let both = ByFamily { v4: Some(net("10.244.1.0/24")), v6: Some(net("fd00:244:1::/64")) };
        assert_eq!(read("10.244.1.0/24", &["10.244.1.0/24", "fd00:244:1::/64"]), Ok(both));
        assert_eq!(read("fd00:244:1::/64", &["fd00:244:1::/64", "10.244.1.0/24"]), Ok(both));
        let v4 = ByFamily { v4: Some(net("10.244.1.0/24")), v6: None };
        assert_eq!(read("10.244.1.0/24", &[]), Ok(v4));
        assert_eq!(read("", &["10.244.1.7/24"]), Ok(v4));
        assert_eq!(read("", &[]), Ok(ByFamily::default()));
    }

    #[test]
    fn two_cidrs_of_a_family_and_what_is_no_cidr_are_refused() {
        let two = ["10.244.1.0/24", "10.244.2.0/24"];
        assert_eq!(read("", &two), Err(PodCidrError::TooMany(two.map(str::to_owned).to_vec())));
        assert_eq!(read("10.244.1.0", &[]), Err(PodCidrError::Unreadable("10.244.1.0".to_owned())));
    }

    #[test]
    fn what_the_net_conf_asks_for_must_be_there_and_lie_inside_and_the_rest_is_left_out() {
        let config = |text| NetworkConfig::parse_without_subnets(text).unwrap();
        let v4 = config(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#);
        let dual = config(
            r#"{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}"#,
        );
        let only_v4 = ByFamily { v4: Some(net("10.244.1.0/24")), v6: None };
        let both = ByFamily { v6: Some(net("fd00:244:0:1::/64")), ..only_v4 };
        assert_eq!(fitting(&both, &dual), Ok(both));
        assert_eq!(fitting(&both, &v4), Ok(only_v4));
        assert_eq!(fitting(&only_v4, &dual), Err(Misfit::Missing(Family::V6)));
        let outside = ByFamily { v4: Some(net("10.42.1.0/24")), v6: None };
        let expected = Misfit::Outside { subnet: net("10.42.1.0/24"), network: net("10.244.0.0/16") };
        assert_eq!(fitting(&outside, &v4), Err(expected));
        assert!(fitting(&ByFamily { v4: Some(net("10.244.0.0/16")), v6: None }, &v4).is_ok());
    }
}
