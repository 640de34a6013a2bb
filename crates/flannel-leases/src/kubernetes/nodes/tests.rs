//! What becomes of news about nodes, one by one.

use flannel_plan::annotations::to_annotations;
use flannel_plan::lease::{Announcement, BackendData};

use super::*;
use crate::kubernetes::wire::NodeSpec;

fn announcement(n: u8) -> Announcement {
    Announcement {
        public: ByFamily { v4: Some([10, 0, 0, n].into()), v6: None },
        backend: "vxlan".to_owned(),
        detail: ByFamily { v4: BackendData::from_json(&format!(r#"{{"VNI":{n}}}"#)).unwrap(), v6: None },
    }
}

fn metadata(name: &str, uid: &str, n: u8) -> Node {
    Node {
        name: name.to_owned(),
        uid: uid.to_owned(),
        version: "1".to_owned(),
        since: 7,
        annotations: to_annotations(&announcement(n), &AnnotationPrefix::default(), &ByFamily::default()),
        spec: None,
        may_have_subnets: true,
    }
}

fn whole(name: &str, uid: &str, n: u8) -> Node {
    let cidr = format!("10.244.{n}.0/24");
    Node { spec: Some(NodeSpec { pod_cidr: cidr.clone(), pod_cidrs: vec![cidr] }), ..metadata(name, uid, n) }
}

fn lease(name: &str, n: u8) -> Lease {
    let subnets = ByFamily { v4: Some(format!("10.244.{n}.0/24").parse().unwrap()), v6: None };
    Lease { owner: name.to_owned(), subnets, announcement: announcement(n), since: 7 }
}

fn nodes() -> Nodes {
    Nodes::new("own", AnnotationPrefix::default(), Memory::default())
}

fn leases(nodes: &Nodes) -> Vec<Lease> {
    nodes.peers().iter().map(|lease| (**lease).clone()).collect()
}

#[test]
fn metadata_is_enough_for_a_node_that_was_read_whole() {
    let mut nodes = nodes();
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Incomplete);
    assert_eq!(nodes.put(whole("a", "1", 1)), NodeChange::Changed);
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Nothing);
    assert_eq!(leases(&nodes), [lease("a", 1)]);
    let before = nodes.peers();
    assert_eq!(nodes.put(metadata("a", "1", 2)), NodeChange::Changed);
    assert_eq!(leases(&nodes), [Lease { announcement: announcement(2), ..lease("a", 1) }]);
    assert_eq!(nodes.put(whole("b", "2", 3)), NodeChange::Changed);
    assert!(!Arc::ptr_eq(&before[0], &nodes.peers()[0]));
    let gone = metadata("a", "1", 2);
    assert_eq!((nodes.remove(&gone), nodes.remove(&gone)), (NodeChange::Changed, NodeChange::Nothing));
    assert_eq!(leases(&nodes), [lease("b", 3)]);
}

#[test]
fn a_node_that_never_got_a_subnet_is_not_read_whole_for_its_heartbeats() {
    let mut nodes = nodes();
    let without = |name: &str| Node { may_have_subnets: false, ..metadata(name, "1", 1) };
    assert_eq!(
        (nodes.put(without("a")), nodes.put(without("a"))),
        (NodeChange::Nothing, NodeChange::Nothing)
    );
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Incomplete);
    // This node itself is read once, and then when it has got one.
    assert_eq!(nodes.put(without("own")), NodeChange::Incomplete);
    let none = Some(NodeSpec::default());
    assert_eq!(nodes.put(Node { spec: none, ..without("own") }), NodeChange::Changed);
    assert_eq!(nodes.put(without("own")), NodeChange::Nothing);
    assert_eq!(nodes.put(metadata("own", "1", 1)), NodeChange::Incomplete);
}

#[test]
fn a_node_without_flannel_is_nobodys_business() {
    let mut nodes = nodes();
    let foreign = || Node { annotations: BTreeMap::new(), ..metadata("a", "1", 1) };
    assert_eq!(nodes.put(foreign()), NodeChange::Nothing);
    // It joins later: only then it has to be read.
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Incomplete);
    assert_eq!(nodes.put(whole("a", "1", 1)), NodeChange::Changed);
    // It leaves: that is a proof.
    assert_eq!(nodes.put(foreign()), NodeChange::Changed);
    assert_eq!(leases(&nodes), []);
}

#[test]
fn a_node_that_is_made_anew_is_read_anew_and_stays_what_it_was_until_then() {
    let mut nodes = nodes();
    nodes.put(whole("a", "1", 1));
    assert_eq!(nodes.put(metadata("a", "2", 1)), NodeChange::Incomplete);
    assert_eq!(leases(&nodes), [lease("a", 1)]);
    assert_eq!(nodes.put(whole("a", "2", 9)), NodeChange::Changed);
    assert_eq!(leases(&nodes), [lease("a", 9)]);
    // Without our annotations there is nothing left of the old one.
    assert_eq!(nodes.put(Node { annotations: BTreeMap::new(), ..whole("a", "3", 1) }), NodeChange::Changed);
    assert_eq!(leases(&nodes), []);
}

#[test]
fn what_cannot_be_read_is_a_fault_and_what_was_said_before_stays() {
    let mut nodes = nodes();
    nodes.put(whole("a", "1", 1));
    let mut spoilt = metadata("a", "1", 1);
    spoilt.annotations.insert(AnnotationPrefix::default().key("public-ip"), "here".to_owned());
    assert_eq!((nodes.put(spoilt.clone()), nodes.put(spoilt)), (NodeChange::Changed, NodeChange::Nothing));
    assert_eq!(leases(&nodes), [lease("a", 1)]);
    let faults: Vec<_> = nodes.faults().map(|fault| fault.to_string()).collect();
    let expected = "node a cannot be read: annotation flannel.alpha.coreos.com/public-ip is \"here\", expected an \
                    IPv4 address";
    assert_eq!(faults, [expected]);
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Changed);
    assert_eq!(nodes.faults().count(), 0);
    let mut three = whole("b", "2", 2);
    three.spec = Some(NodeSpec {
        pod_cidr: String::new(),
        pod_cidrs: vec!["10.0.0.0/24".into(), "10.1.0.0/24".into()],
    });
    assert_eq!(nodes.put(three), NodeChange::Changed);
    assert_eq!((leases(&nodes), nodes.faults().count()), (vec![lease("a", 1)], 1));
}

#[test]
fn only_a_whole_list_proves_that_a_node_is_gone() {
    let mut nodes = nodes();
    for (name, n) in [("a", 1), ("b", 2), ("own", 3)] {
        nodes.put(whole(name, name, n));
    }
    nodes.begin_list();
    nodes.put(metadata("b", "b", 2));
    assert_eq!(leases(&nodes), [lease("a", 1), lease("b", 2)]);
    nodes.retain(|name| name == "b");
    assert_eq!((leases(&nodes), nodes.own.is_none()), (vec![lease("b", 2)], true));
}

#[test]
fn subnets_that_are_remembered_need_not_be_read_unless_the_node_is_another_one() {
    let remembered = |node: &str, n| ((node.into(), 7), lease(node, n).subnets);
    let subnets = BTreeMap::from([remembered("a", 1), remembered("b", 2)]);
    let memory = Memory { subnets, ..Memory::default() };
    let mut nodes = Nodes::new("own", AnnotationPrefix::default(), memory);
    assert_eq!(nodes.put(metadata("a", "1", 1)), NodeChange::Changed);
    assert_eq!(nodes.put(Node { since: 8, ..metadata("b", "2", 2) }), NodeChange::Incomplete);
    assert_eq!(leases(&nodes), [lease("a", 1)]);
    nodes.retain(|_| true);
    assert_eq!(nodes.put(metadata("b", "2", 2)), NodeChange::Incomplete);
}

#[test]
fn what_was_read_is_not_undone_by_what_the_watch_tells_of_the_time_before() {
    let mut nodes = nodes();
    let at = |version: &str, node: Node| Node { version: version.to_owned(), ..node };
    assert_eq!(nodes.put(at("12", whole("a", "2", 2))), NodeChange::Changed);
    assert_eq!(nodes.put(at("11", metadata("a", "2", 1))), NodeChange::Nothing);
    assert_eq!(nodes.remove(&at("10", metadata("a", "1", 1))), NodeChange::Nothing);
    assert_eq!(leases(&nodes), [lease("a", 2)]);
    nodes.begin_list();
    assert_eq!(nodes.put(at("5", metadata("a", "2", 1))), NodeChange::Changed);
}

#[test]
fn an_old_word_about_this_node_does_not_undo_what_we_wrote_since() {
    let mut nodes = nodes();
    let at = |version: &str, n| Node { version: version.to_owned(), ..whole("own", "1", n) };
    assert_eq!(nodes.put(at("10", 1)), NodeChange::Changed);
    assert_eq!(nodes.put(at("9", 2)), NodeChange::Nothing);
    assert_eq!(nodes.put(at("11", 2)), NodeChange::Changed);
    // A list after the store of the API server went back in time is believed.
    nodes.begin_list();
    assert_eq!(nodes.put(at("5", 1)), NodeChange::Changed);
    let own = nodes.own.as_ref().unwrap().lease(None, None, &AnnotationPrefix::default());
    assert_eq!(own.lease.as_deref(), Some(&lease("own", 1)));
}

#[test]
fn backend_data_that_no_file_can_hold_is_refused_and_what_the_node_said_before_stays() {
    let key = AnnotationPrefix::default().key("backend-data");
    let mut nodes = nodes();
    nodes.put(whole("a", "1", 1));
    for poison in ["[".repeat(200) + &"]".repeat(200), "1e999".to_owned(), r#""\ud800""#.to_owned()] {
        for name in ["a", "b"] {
            let mut node = whole(name, name, 2);
            node.uid = if name == "a" { "1".to_owned() } else { "2".to_owned() };
            node.annotations.insert(key.clone(), poison.clone());
            nodes.put(node);
        }
        assert_eq!(leases(&nodes), [lease("a", 1)]);
        let faults: Vec<_> = nodes.faults().map(|fault| fault.to_string()).collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        let is_named =
            |(fault, name): (&String, &str)| fault.starts_with(&format!("node {name} cannot be read: "));
        assert!(faults.iter().zip(["a", "b"]).all(is_named), "{faults:?}");
    }
}
