use super::*;
use crate::config::NetworkConfig;
use crate::family::ByFamily;
use crate::firewall::Firewall;
use crate::inputs::NodeOptions;
use crate::lease::{Announcement, BackendData};
use crate::underlay::Underlay;

fn lease(node: u8, mac: u8) -> Lease {
    let text = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac:02x}"}}"#);
    let announcement = Announcement {
        public: ByFamily { v4: Some([10, 0, 0, node].into()), v6: None },
        backend: "vxlan".into(),
        detail: ByFamily { v4: BackendData::from_json(&text).unwrap(), v6: None },
    };
    let subnet = format!("10.244.{node}.0/24").parse().unwrap();
    Lease {
        owner: format!("node{node}"),
        subnets: ByFamily { v4: Some(subnet), v6: None },
        announcement,
        since: node.into(),
    }
}

fn inputs(peers: Vec<Arc<Lease>>) -> Inputs {
    let families = ByFamily { v4: Some([10, 0, 0, 1].into()), v6: None };
    Inputs {
        node: NodeOptions { subnet_file: "/run/flannel/subnet.env".into(), ..NodeOptions::default() },
        config: NetworkConfig::parse(r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#).unwrap(),
        underlay: Underlay {
            link: "eth0".parse().unwrap(),
            mtu: 1500,
            addresses: families,
            public: families,
        },
        own: lease(1, 1),
        peers,
        routes: Vec::new(),
        newcomers: Vec::new(),
        firewall: Firewall::default(),
    }
}

fn nodes(numbers: std::ops::Range<u8>) -> Vec<Arc<Lease>> {
    numbers.map(|node| Arc::new(lease(node, node))).collect()
}

/// The news, in words.
fn told(before: Vec<Arc<Lease>>, after: &[Arc<Lease>]) -> Option<Vec<String>> {
    let inputs = inputs(before);
    let plan = desired::plan(&inputs).unwrap();
    let news = of_peers(&plan, &inputs, after)?;
    Some(news.changes().iter().map(ToString::to_string).collect())
}

#[test]
fn one_peer_of_many_that_changes_its_device_is_told_alone() {
    let before = nodes(2..200);
    let mut after = before.clone();
    after[7] = Arc::new(lease(9, 222));
    assert_eq!(
        told(before, &after).unwrap(),
        [
            "+ fdb 02:00:00:00:00:de dev flannel.1 to 10.0.0.9",
            "~ neighbour 10.244.9.0 dev flannel.1 mac 02:00:00:00:00:09 -> neighbour 10.244.9.0 dev flannel.1 mac 02:00:00:00:00:de",
            "- fdb 02:00:00:00:00:09 dev flannel.1 to 10.0.0.9",
        ]
    );
}

#[test]
fn a_peer_that_claims_what_another_has_needs_the_whole_plan() {
    let before = nodes(2..10);
    for (node, mac) in [(9, 100), (100, 9)] {
        let mut after = before.clone();
        after.push(Arc::new(lease(node, mac)));
        assert_eq!(told(before.clone(), &after), None, "{node} {mac}");
        // And so it does when it goes, since the other may have been ignored for it.
        assert_eq!(told(after, &before), None, "{node} {mac}");
    }
    let mut after = before.clone();
    let mut nat = lease(100, 100);
    nat.announcement.public = before[0].announcement.public;
    after.push(Arc::new(nat));
    assert_eq!(told(before, &after), None);
}

#[test]
fn many_at_once_are_planned_with_all_others() {
    assert_eq!(told(nodes(2..10), &nodes(2..100)), None);
    assert_eq!(told(nodes(2..10), &nodes(2..20)).unwrap().len(), 30);
    assert_eq!(told(nodes(2..10), &nodes(2..10)), Some(vec![]));
}
