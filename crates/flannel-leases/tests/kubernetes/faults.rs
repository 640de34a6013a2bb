//! What goes wrong around a store: connections, the API server, tokens, and what other people write on nodes.

use std::time::{Duration, Instant};

use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};
use flannel_leases::{LeaseStore, Snapshot};
use flannel_plan::lease::Announcement;
use serde_json::{Value, json};

use crate::cluster::{Cluster, FLANNEL};
use crate::proxy::Proxy;
use crate::stage::{DUAL, Stage, V4, announcement, next, peers, shared, soon, until};

/// A peer as Go flannel would have made it.
fn add_peer(stage: &Stage<'_>, node: &str, n: u8) {
    let annotations = flannel_plan::annotations::to_annotations(
        &announcement(n),
        &stage.prefix(),
        &flannel_plan::family::ByFamily::default(),
    );
    stage.add_annotated(node, &[&format!("10.244.{n}.0/24")], &json!(annotations));
}

fn through(stage: &Stage<'_>, node: &str, proxy: &Proxy) -> Kubernetes {
    let options = KubernetesOptions { api_url: Some(proxy.url()), ..stage.options(node) };
    Kubernetes::open(options).unwrap()
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn what_others_spoil_on_their_nodes_is_named_and_what_they_said_before_stays() {
    let stage = Stage::new(shared(), DUAL);
    stage.add("w1", &["10.244.1.0/24", "fd00:244:0:1::/64"]);
    for (n, node) in [(2, "w2"), (3, "w3")] {
        add_peer(&stage, node, n);
    }
    let mut store = stage.store("w1");
    let before = next(&mut store).await.unwrap();
    assert_eq!(peers(&before), ["w2", "w3"]);
    let garbage = [
        ("backend-data", "{\"VNI\":", announcement(2).detail.v4.unwrap().as_str().to_owned()),
        ("public-ip", "10.0.0.256", "10.0.0.2".to_owned()),
        ("public-ip", "fd00::1", "10.0.0.2".to_owned()),
        ("public-ipv6", "10.0.0.2", String::new()),
        ("backend-v6-data", "\u{0}\u{7f}ÿ", String::new()),
    ];
    for (suffix, wrong, right) in garbage {
        stage.annotate("w2", suffix, wrong);
        let spoilt = until(&mut store, |snapshot| !snapshot.faults.is_empty()).await;
        let fault = spoilt.faults[0].to_string();
        assert!(fault.contains(&stage.name("w2")) && fault.contains(suffix), "{fault}");
        assert_eq!(spoilt.peers, before.peers);
        // Peers are shared with the snapshot before, not copied.
        assert!(std::sync::Arc::ptr_eq(&spoilt.peers[1], &before.peers[1]));
        // Nobody else has to wait for it.
        add_peer(&stage, "w4", 4);
        until(&mut store, |snapshot| peers(snapshot) == ["w2", "w3", "w4"]).await;
        stage.remove("w4");
        stage.annotate("w2", suffix, right);
        let is_healed = |snapshot: &Snapshot| snapshot.faults.is_empty() && snapshot.peers.len() == 2;
        assert_eq!(until(&mut store, is_healed).await.peers, before.peers);
    }
    stage.annotate("w2", "kube-subnet-manager", Value::Null);
    until(&mut store, |snapshot| peers(snapshot) == ["w3"]).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_watch_that_is_cut_a_hundred_times_loses_nothing() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    add_peer(&stage, "stays", 2);
    let proxy = Proxy::start(stage.cluster.port);
    let mut store = through(&stage, "w1", &proxy);
    next(&mut store).await.unwrap();
    let mut slowest = Duration::ZERO;
    for n in 0..100_u8 {
        proxy.cut();
        let begun = Instant::now();
        let changed = Announcement { public: announcement(n).public, ..announcement(2) };
        stage.annotate("stays", "public-ip", format!("10.0.0.{n}"));
        loop {
            // What is cut while it begins may be told; that is no reason to lose anybody.
            let Ok(snapshot) = next(&mut store).await else { continue };
            assert_eq!(peers(&snapshot), ["stays"], "cut {n}");
            if snapshot.peers[0].announcement == changed {
                break;
            }
        }
        slowest = slowest.max(begun.elapsed());
    }
    println!("watch cut 100 times: the change after it is known within {slowest:?}");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn an_api_server_that_is_killed_is_told_once_and_what_it_says_next_is_known_within_two_seconds() {
    let mut cluster = Cluster::start();
    let net = tempfile::TempDir::new().unwrap();
    let (mut store, prefix) = {
        let stage = Stage::new(&cluster, V4);
        std::fs::copy(stage.net_conf(), net.path().join("net-conf.json")).unwrap();
        stage.add("w1", &["10.244.1.0/24"]);
        add_peer(&stage, "w2", 2);
        add_peer(&stage, "w3", 3);
        let options = stage.options("w1");
        let prefix = options.prefix.clone();
        let options = KubernetesOptions { net_conf: net.path().join("net-conf.json"), ..options };
        (Kubernetes::open(options).unwrap(), prefix)
    };
    assert_eq!(peers(&next(&mut store).await.unwrap()), ["w2", "w3"]);
    cluster.kill_server();
    // The last words of a server that dies may be others.
    let lost = async {
        loop {
            let Err(lost) = store.next().await else { panic!("it should be missed") };
            if lost.to_string().contains("cannot be reached: Connection refused") {
                return;
            }
        }
    };
    soon(lost).await;
    // It is told once: nothing more is said while it is away.
    let silence = tokio::time::timeout(Duration::from_secs(3), store.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    cluster.start_server();
    let back = Instant::now();
    let stage = Stage::again(&cluster, V4, &prefix);
    add_peer(&stage, "w4", 4);
    stage.remove("w2");
    until(&mut store, |snapshot| peers(snapshot) == ["w3", "w4"]).await;
    println!("API server restarted: a new node is known {:?} after it was ready", back.elapsed());
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_version_that_is_too_old_leads_to_a_new_list_of_metadata_only() {
    let mut cluster = Cluster::start();
    let proxy = Proxy::start(cluster.port);
    let net = tempfile::TempDir::new().unwrap();
    let stage = Stage::new(&cluster, V4);
    std::fs::copy(stage.net_conf(), net.path().join("net-conf.json")).unwrap();
    stage.add("w1", &["10.244.1.0/24"]);
    for n in 2..=4 {
        add_peer(&stage, &format!("w{n}"), n);
    }
    let options = KubernetesOptions {
        net_conf: net.path().join("net-conf.json"),
        api_url: Some(proxy.url()),
        ..stage.options("w1")
    };
    let mut store = Kubernetes::open(options).unwrap();
    let first = next(&mut store).await.unwrap();
    assert_eq!(peers(&first), ["w2", "w3", "w4"]);
    // The store is away while nodes change, and what changed is compacted away.
    proxy.block(true);
    proxy.cut();
    assert!(next(&mut store).await.is_err());
    stage.remove("w3");
    stage.add_annotated("w3", &["10.244.33.0/24"], &json!({}));
    stage.remove("w4");
    add_peer(&stage, "w5", 5);
    drop(stage);
    cluster.kill_server();
    cluster.start_server();
    proxy.block(false);
    let after = until(&mut store, |_| true).await;
    assert_eq!(peers(&after), ["w2", "w5"]);
    assert!(std::sync::Arc::ptr_eq(&after.peers[0], &first.peers[0]));
    let is_list = |verb: &str, path: &str| verb == "list" && !path.contains("limit=1");
    let lists = cluster.asked_by_flannel().into_iter().filter(|(verb, path, _)| is_list(verb, path)).count();
    let reads = cluster.asked_by_flannel().into_iter().filter(|(verb, _, _)| verb == "get").count();
    assert_eq!((lists, reads), (2, 1), "one list at the start, one after, and the new node read whole");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_token_that_is_refused_is_named_and_a_new_one_in_its_file_is_used_at_once() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let token = stage.dir.path().join("token");
    let kubeconfig =
        stage.cluster.kubeconfig("token-in-a-file.yaml", &format!("tokenFile: {}", token.display()));
    let proxy = Proxy::start(stage.cluster.port);
    let options =
        KubernetesOptions { kubeconfig: Some(kubeconfig), api_url: Some(proxy.url()), ..stage.options("w1") };
    let mut store = Kubernetes::open(options).unwrap();
    let Err(missing) = next(&mut store).await else { panic!("there is no token yet") };
    assert!(missing.to_string().starts_with("token "), "{missing}");
    std::fs::write(&token, "planted-secret-token-that-has-expired\n").unwrap();
    let Err(refused) = next(&mut store).await else { panic!("the token is wrong") };
    assert!(refused.to_string().contains("answers 401"), "{refused}");
    std::fs::write(&token, format!("{FLANNEL}\n")).unwrap();
    next(&mut store).await.unwrap();
    soon(store.publish(&announcement(1))).await.unwrap();
    // It expires while a watch goes on: known when that has ended.
    std::fs::write(&token, "planted-secret-token-that-has-expired").unwrap();
    proxy.cut();
    let refused = async {
        loop {
            if let Err(refused) = store.next().await {
                return refused;
            }
        }
    };
    assert!(soon(refused).await.to_string().contains("answers 401"));
    std::fs::write(&token, FLANNEL).unwrap();
    add_peer(&stage, "w2", 2);
    until(&mut store, |snapshot| peers(snapshot) == ["w2"]).await;
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_config_map_that_is_swapped_is_followed_and_a_bad_one_is_a_fault() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    // As the kubelet mounts one: the file is a link through a link to a folder, which is swapped.
    let mount = stage.dir.path().join("mount");
    let swap = |generation: &str, text: &str| {
        std::fs::create_dir_all(mount.join(generation)).unwrap();
        std::fs::write(mount.join(generation).join("net-conf.json"), text).unwrap();
        std::os::unix::fs::symlink(generation, mount.join("..data_tmp")).unwrap();
        std::fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    swap("..1", V4);
    std::os::unix::fs::symlink("..data/net-conf.json", mount.join("net-conf.json")).unwrap();
    let options = KubernetesOptions { net_conf: mount.join("net-conf.json"), ..stage.options("w1") };
    let mut store = Kubernetes::open(options).unwrap();
    let first = next(&mut store).await.unwrap();
    assert!(first.config.is_ok());
    swap("..2", "{\"Network\": 7}");
    let bad = until(&mut store, |snapshot| !snapshot.faults.is_empty()).await;
    assert_eq!(bad.config, first.config);
    assert_eq!(bad.faults[0].file, mount.join("net-conf.json"));
    swap("..3", DUAL);
    let dual = until(&mut store, |snapshot| snapshot.faults.is_empty()).await;
    assert_eq!(dual.config.unwrap().families().len(), 2);
    // The node has no IPv6 subnet, so it has no lease that fits any more.
    assert!(soon(store.publish(&announcement(1))).await.is_err());
}
