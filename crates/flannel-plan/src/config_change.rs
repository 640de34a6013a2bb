//! What becomes of a new net-conf while flanneld runs: whether it can be followed at once, and what a person
//! should know of it. Takes the one in force and the new one, gives a [`Verdict`].

use ipnet::IpNet;

use crate::allocate::fits;
use crate::config::{NetworkConfig, PodNetwork};
use crate::family::{ByFamily, Family};
use crate::finding::{Code, Finding};

/// Whether a new net-conf is followed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is; each line is a consequence that a person should know.
    Follow(Vec<Finding>),
    /// Not before flanneld starts again; each line says why, and what to do.
    Restart(Vec<Finding>),
}

/// Judges a new net-conf for a node that holds these subnets. Pods keep the addresses they have, so what their
/// addresses depend on cannot change below them; all else can.
pub fn judge(old: &NetworkConfig, new: &NetworkConfig, own: &ByFamily<IpNet>) -> Verdict {
    let obstacles: Vec<Finding> = own
        .iter()
        .filter_map(|(family, subnet)| {
            let why = left_behind(*subnet, old.networks.get(family)?, new.networks.get(family))?;
            let network = old.network(family)?;
            let finding = Finding::new(Code::NetConfHeld, subnet, why).because(format!(
                "pods that run have addresses of {subnet}, so the {family} network {network} stays in force here"
            ));
            Some(finding.or_do("drain this node and restart flanneld to follow"))
        })
        .collect();
    if obstacles.is_empty() {
        Verdict::Follow(old.backend.consequences(&new.backend))
    } else {
        Verdict::Restart(obstacles)
    }
}

/// Why a subnet has no place in a new network.
fn left_behind(subnet: IpNet, old: &PodNetwork, new: Option<&PodNetwork>) -> Option<String> {
    let Some(new) = new else { return Some(format!("{} was switched off", Family::of_net(subnet))) };
    if !new.network.contains(&subnet) {
        return Some(format!("the pod network changed from {} to {}", old.network, new.network));
    }
    (!fits(new, subnet)).then(|| {
        let PodNetwork { subnet_len, subnet_min, subnet_max, .. } = new;
        format!("subnets are now /{subnet_len} from {subnet_min} to {subnet_max}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::texts;

    fn net_conf(network: &str, rest: &str) -> NetworkConfig {
        NetworkConfig::parse(&format!(r#"{{"Network":"{network}"{rest}}}"#)).unwrap()
    }

    fn own() -> ByFamily<IpNet> {
        ByFamily { v4: Some("10.244.7.0/24".parse().unwrap()), v6: None }
    }

    #[test]
    fn what_pods_do_not_depend_on_is_followed() {
        let old = net_conf("10.244.0.0/16", r#","Backend":{"Type":"vxlan"}"#);
        let direct = net_conf("10.244.0.0/16", r#","Backend":{"Type":"vxlan","DirectRouting":true}"#);
        assert_eq!(judge(&old, &direct, &own()), Verdict::Follow(vec![]));
        let larger = net_conf("10.240.0.0/12", r#","Backend":{"Type":"vxlan"}"#);
        assert_eq!(judge(&old, &larger, &own()), Verdict::Follow(vec![]));
        let dual = net_conf(
            "10.244.0.0/16",
            r#","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}"#,
        );
        assert_eq!(judge(&old, &dual, &own()), Verdict::Follow(vec![]));
    }

    #[test]
    fn a_new_mtu_or_tunnel_is_followed_and_its_price_told() {
        let old = net_conf("10.244.0.0/16", r#","Backend":{"Type":"vxlan"}"#);
        for (rest, code, beginning) in [
            (r#"{"Type":"vxlan","MTU":1400}"#, Code::PodMtu, "the MTU changed"),
            (r#"{"Type":"vxlan","VNI":7}"#, Code::OtherBackend, "the tunnel changed"),
            (r#"{"Type":"host-gw"}"#, Code::OtherBackend, "the backend changed"),
        ] {
            let new = net_conf("10.244.0.0/16", &format!(r#","Backend":{rest}"#));
            let Verdict::Follow(told) = judge(&old, &new, &own()) else { panic!("{rest}") };
            assert!(told.len() == 1 && told[0].code == code, "{told:?}");
            assert!(told[0].text.starts_with(beginning), "{told:?}");
        }
    }

    #[test]
    fn a_network_that_leaves_pods_behind_waits_for_a_restart() {
        let old = net_conf("10.244.0.0/16", r#","Backend":{"Type":"vxlan"}"#);
        let end = ": pods that run have addresses of 10.244.7.0/24, so the IPv4 network 10.244.0.0/16 stays in force \
                   here; drain this node and restart flanneld to follow";
        let cases = [
            (r#"{"Network":"10.10.0.0/16"}"#, "the pod network changed from 10.244.0.0/16 to 10.10.0.0/16"),
            (r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48"}"#, "IPv4 was switched off"),
            (
                r#"{"Network":"10.244.0.0/16","SubnetLen":25}"#,
                "subnets are now /25 from 10.244.0.128 to 10.244.255.128",
            ),
        ];
        for (text, why) in cases {
            let new = NetworkConfig::parse(&text.replace('}', r#","Backend":{"Type":"vxlan"}}"#)).unwrap();
            let Verdict::Restart(held) = judge(&old, &new, &own()) else { panic!("{text}") };
            assert_eq!(texts(&held), [format!("{why}{end}")]);
            assert_eq!((held[0].code, held[0].object.as_str()), (Code::NetConfHeld, "10.244.7.0/24"));
        }
    }

    #[test]
    fn where_others_give_out_subnets_only_the_network_counts() {
        let of = |text| NetworkConfig::parse_without_subnets(text).unwrap();
        let old = of(r#"{"Network":"10.244.7.0/24","SubnetLen":20,"Backend":{"Type":"alloc"}}"#);
        let new = of(r#"{"Network":"10.244.0.0/16","SubnetLen":28,"Backend":{"Type":"alloc"}}"#);
        assert_eq!(judge(&old, &new, &own()), Verdict::Follow(vec![]));
        assert!(matches!(
            judge(&new, &of(r#"{"Network":"10.9.0.0/16","Backend":{"Type":"alloc"}}"#), &own()),
            Verdict::Restart(_)
        ));
    }
}
