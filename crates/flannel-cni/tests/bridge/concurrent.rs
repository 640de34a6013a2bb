//! Many pods at once on one host: one bridge, no two pods with the same address, nothing left afterwards.

use std::collections::BTreeSet;
use std::fs::File;

use flannel_kernel::netns::visit;
use serde_json::{Value, json};

use crate::stage::*;

const PODS: usize = 20;

/// Does something for each pod, all at once, on threads of the host.
fn at_once(pods: &[Pod], work: impl Fn(&Pod) -> Value + Sync) -> Vec<Value> {
    let (host, work) = (&File::open("/proc/thread-self/ns/net").unwrap(), &work);
    std::thread::scope(|scope| {
        let spawn = |pod| scope.spawn(move || visit(host, || work(pod)).unwrap());
        let running: Vec<_> = pods.iter().map(spawn).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn the_first_pods_of_a_host_come_all_at_once_and_go_all_at_once() {
    on_a_host(|stage| {
        let config = stage.network(json!({"hairpinMode": true}));
        let pods: Vec<_> = (0..PODS).map(|n| stage.pod(&format!("c0ffee{n:02}"))).collect();
        let said = at_once(&pods, |pod| stage.add(pod, &config).unwrap());
        let texts = |pointer: &str| -> BTreeSet<_> {
            said.iter().map(|result| result.pointer(pointer).unwrap().as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(texts("/ips/0/address").len(), PODS);
        assert_eq!(texts("/interfaces/1/name").len(), PODS);
        assert_eq!(texts("/interfaces/0/mac").len(), 1, "one bridge with one hardware address");
        assert_eq!(addresses("cni0"), ["10.22.0.1/16"]);
        for pod in &pods {
            pod.inside(|| sh("ping -c1 -W2 10.22.0.1"));
        }
        at_once(&pods, |pod| stage.del(pod, &config).unwrap());
        assert_eq!((devices(), stage.leased()), (vec!["cni0".into()], vec![]));
    });
}
