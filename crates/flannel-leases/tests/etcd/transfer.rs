//! Moving everything from one place to another.

use std::time::Duration;

use flannel_leases::etcd::{Contents, Etcd, EtcdOptions, StoredLease};
use flannel_plan::family::ByFamily;

use crate::stage::{DUAL, Stage, announcement, dual_announcement, publish, soon};

#[tokio::test]
async fn what_is_read_in_one_place_can_be_written_in_another() {
    let stage = Stage::new(DUAL);
    stage.put("10.244.40.0-24&fd00:244:0:40::-64", r#"{"PublicIP":"10.0.0.4","PublicIPv6":"fd00::4"}"#);
    stage.put("10.244.41.0-24", "garbage");
    publish(&mut stage.node(), &dual_announcement(1)).await;
    let here = soon(stage.node().read_all()).await.unwrap();
    assert_eq!((here.config.as_deref(), here.leases.len(), here.faults.len()), (Some(DUAL), 2, 1));
    let lives: Vec<_> = here.leases.iter().map(|stored| stored.time_to_live).collect();
    assert!(
        lives.contains(&None) && lives.iter().flatten().all(|life| *life > Duration::from_secs(86_000)),
        "{lives:?}"
    );

    let there = EtcdOptions { prefix: "/elsewhere".to_owned(), ..stage.options() };
    let mut other = Etcd::open(there, ByFamily::default()).unwrap();
    for _ in 0..2 {
        soon(other.write(here.config.as_deref(), &here.leases)).await.unwrap(); // the second time is no mistake
    }
    let again = soon(other.read_all()).await.unwrap();
    let without_age = |contents: &Contents| -> Vec<_> {
        let leases = contents.leases.iter();
        leases
            .map(|stored| {
                (stored.lease.subnets, stored.lease.announcement.clone(), stored.time_to_live.is_some())
            })
            .collect()
    };
    assert_eq!(without_age(&again), without_age(&here));
    assert_eq!((again.config, again.faults), (here.config, vec![]));
    let mut changed: Vec<StoredLease> = here.leases;
    changed[0].lease.announcement = announcement(77);
    let wrong = soon(other.write(None, &changed)).await.unwrap_err().to_string();
    assert!(wrong.ends_with(
        "is there already, and says something else: delete it first, or choose another --etcd-prefix"
    ));
    assert!(wrong.starts_with("/elsewhere/subnets/10.244."), "{wrong}");
}
