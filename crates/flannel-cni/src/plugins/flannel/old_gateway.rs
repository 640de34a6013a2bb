//! The gateway of a subnet that the node had before. It stays on the bridge for the pods that use it, and goes with
//! the last of them: while the bridge is connected to the subnet, the node that has it now cannot be reached.

use std::io::Write;

use flannel_kernel::NetlinkError;
use flannel_kernel::stack::Stack;
use flannel_plan::link_name::LinkName;
use flannel_plan::subnet_env::SubnetEnv;
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::{kind, subnet};
use crate::json::Object;
use crate::plugins::bridge;

/// Removes the gateways of a pod that is gone, as far as neither the node nor another pod needs them. Takes what the
/// delegate of each was told.
///
/// What fails keeps no pod from being deleted: flanneld names the address that is left.
pub(super) fn leave(
    subnet_file: &str,
    gone: &Map<String, Value>,
    others: &dyn Fn() -> Vec<Map<String, Value>>,
) {
    let Ok(today) = subnet::load(subnet_file) else { return };
    let old = old_subnets(gone, &today);
    // Hardly ever is there one: the others are not read for nothing.
    if old.is_empty() || kind(gone) != "bridge" {
        return;
    }
    let unused = unused(old, &others());
    if let Ok(bridge) = bridge::name(Object::new(gone))
        && let Err(why) = remove(bridge, &unused)
    {
        let _ = writeln!(std::io::stderr(), "flannel: an old gateway stays on {bridge}: {why}");
    }
}

/// The subnets of a pod that are not the node's any more.
fn old_subnets(gone: &Map<String, Value>, today: &SubnetEnv) -> Vec<IpNet> {
    let is_todays = |subnet: &IpNet| today.subnets.iter().any(|(_, today)| today == subnet);
    subnets(gone).filter(|subnet| !is_todays(subnet)).collect()
}

/// The subnets that no other pod has.
fn unused(mut old: Vec<IpNet>, others: &[Map<String, Value>]) -> Vec<IpNet> {
    old.retain(|subnet| !others.iter().any(|other| subnets(other).any(|used| used == *subnet)));
    old
}

/// The subnets that a delegate was told.
fn subnets(delegate: &Map<String, Value>) -> impl Iterator<Item = IpNet> {
    let sets = delegate.get("ipam").and_then(|ipam| ipam.get("ranges")).and_then(Value::as_array);
    let ranges = sets.into_iter().flatten().filter_map(Value::as_array).flatten();
    ranges.filter_map(|range| range.get("subnet")?.as_str()?.parse().ok())
}

fn remove(bridge: LinkName, subnets: &[IpNet]) -> Result<(), NetlinkError> {
    let mut host = Stack::open()?;
    let Some(bridge) = host.device(bridge)?.filter(|found| &*found.kind == "bridge") else { return Ok(()) };
    for found in host.addresses(bridge.index)? {
        if subnets.contains(&found.address.trunc()) {
            host.remove_address(bridge.index, found.address)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delegate(subnets: &[&str]) -> Map<String, Value> {
        let ranges: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
        json!({"type": "bridge", "ipam": {"ranges": ranges}}).as_object().unwrap().clone()
    }

    #[test]
    fn only_what_neither_the_node_nor_a_pod_has_is_left() {
        let today = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.4.1/24\nFLANNEL_MTU=1450\n\
                     FLANNEL_IPMASQ=true\n";
        let today = SubnetEnv::parse(today).unwrap();
        let gone = delegate(&["10.244.3.0/24", "fd00:244:0:3::/64", "10.244.4.0/24"]);
        let others = [delegate(&["10.244.9.0/24"]), delegate(&["fd00:244:0:3::/64"]), Map::new()];
        let old = old_subnets(&gone, &today);
        assert_eq!(old, ["10.244.3.0/24".parse().unwrap(), "fd00:244:0:3::/64".parse().unwrap()]);
        assert_eq!(unused(old, &others), ["10.244.3.0/24".parse().unwrap()]);
        assert_eq!(old_subnets(&Map::new(), &today), []);
    }
}
