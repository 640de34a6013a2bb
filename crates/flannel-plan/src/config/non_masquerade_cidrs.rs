//! `NonMasqueradeCIDRs`: where pods keep their address although it is outside of the pod network. Takes the fields of
//! a net-conf, gives the networks or notes each entry that is none.

use ipnet::IpNet;

use super::faults::ConfigFault;
use super::fields::Fields;
use crate::masq_agent::cidr;

const KEY: &str = "NonMasqueradeCIDRs";
/// Nobody means more; in iptables mode each is a rule on every node.
const MOST: usize = 4096;

/// Reads the key; a list with faults is as good as none, as the whole net-conf is refused then.
pub(super) fn read(fields: &mut Fields<'_>) -> Vec<IpNet> {
    let Ok(Some(entries)) = fields.list(KEY, "a list of networks such as [\"10.0.0.0/8\"]") else {
        return Vec::new();
    };
    if entries.len() > MOST {
        let expected = format!("at most {MOST} networks");
        fields.add_faults(vec![fault(KEY.to_owned(), format!("a list of {}", entries.len()), expected)]);
        return Vec::new();
    }
    let mut networks = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry.as_str().map_or(Err(cidr::CidrFault::NoNetwork), cidr::network) {
            Ok(network) => networks.push(network),
            Err(why) => {
                fields.add_faults(vec![fault(format!("{KEY}[{at}]"), entry.to_string(), why.to_string())])
            }
        }
    }
    networks
}

fn fault(key: String, value: String, expected: String) -> ConfigFault {
    ConfigFault::Key { key, value, expected }
}
