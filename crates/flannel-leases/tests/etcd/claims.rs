//! How subnets are claimed, kept and given up.

use flannel_plan::lease::Lease;

use crate::stage::{Stage, V4, announcement, next, publish};

#[tokio::test]
async fn a_lease_is_stored_as_go_flannel_stores_it() {
    let stage = Stage::new(V4);
    let mut node = stage.node();
    let lease = publish(&mut node, &announcement(1)).await;
    let names = stage.names();
    let subnet = lease.subnets.v4.unwrap();
    assert_eq!(names, [format!("{}-24", subnet.network())]);
    assert_eq!(
        stage.value(&names[0]),
        r#"{"PublicIP":"10.0.0.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:01"}}"#
    );
    let (left, granted) = stage.seconds(&stage.life(&names[0]).unwrap());
    assert!(left > 86_390 && granted == 86_400, "{left} of {granted}");
    let expected = Lease { owner: "10.0.0.1".to_owned(), announcement: announcement(1), ..lease.clone() };
    assert_eq!(lease, expected);
    let snapshot = next(&mut node).await;
    assert_eq!(snapshot.own.as_deref(), Some(&lease));
    assert_eq!((snapshot.peers, snapshot.faults), (vec![], vec![]));
}
