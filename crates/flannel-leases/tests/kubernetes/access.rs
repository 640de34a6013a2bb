//! How a store shows who it is, and that what it shows is never told.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};
use flannel_leases::{LeaseStore, Readiness, StoreError};
use serde_json::json;

use crate::cluster::FLANNEL;
use crate::proxy::connect_proxy;
use crate::stage::{Stage, V4, announcement, next, shared, soon, wait_until};

fn open(stage: &Stage<'_>, name: &str, credentials: &str) -> Result<Kubernetes, StoreError> {
    let kubeconfig = Some(stage.cluster.kubeconfig(name, credentials));
    Kubernetes::open(KubernetesOptions { kubeconfig, ..stage.options("w1") })
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn client_certificates_are_taken_from_files_and_from_inside_the_kubeconfig() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let user = "flannel-by-certificate";
    let by_file = format!("client-certificate: {user}.crt\n    client-key: {user}.key");
    let data = |name: &str| STANDARD.encode(std::fs::read(stage.cluster.path(name)).unwrap());
    let inside = format!(
        "client-certificate-data: {}\n    client-key-data: {}",
        data(&format!("{user}.crt")),
        data(&format!("{user}.key"))
    );
    for (name, credentials) in [("certificate-in-files.yaml", by_file), ("certificate-inside.yaml", inside)] {
        let mut store = open(&stage, name, &credentials).unwrap();
        next(&mut store).await.unwrap();
        soon(store.publish(&announcement(1))).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn the_api_server_is_reached_by_the_proxy_of_the_kubeconfig() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let (port, opened) = connect_proxy();
    let kubeconfig = stage.cluster.kubeconfig("proxy.yaml", &format!("token: {FLANNEL}"));
    let direct = std::fs::read_to_string(&kubeconfig).unwrap();
    let cluster = format!("  cluster:\n    proxy-url: http://127.0.0.1:{port}\n");
    std::fs::write(&kubeconfig, direct.replacen("  cluster:\n", &cluster, 1)).unwrap();
    let options = KubernetesOptions { kubeconfig: Some(kubeconfig), ..stage.options("w1") };
    let mut store = Kubernetes::open(options).unwrap();
    next(&mut store).await.unwrap();
    soon(store.publish(&announcement(1))).await.unwrap();
    assert!(opened.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_server_that_nobody_vouches_for_is_not_believed() {
    let stage = Stage::new(shared(), V4);
    let options =
        KubernetesOptions { kubeconfig: None, api_url: Some(stage.cluster.url()), ..stage.options("w1") };
    let mut store = Kubernetes::open(options).unwrap();
    let stranger = next(&mut store).await.unwrap_err().to_string();
    assert!(stranger.contains("UnknownIssuer") && stranger.contains("signed by the CA"), "{stranger}");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn a_user_without_rights_hears_what_is_missing() {
    let stage = Stage::new(shared(), V4);
    stage.cluster.client_certificate("nobody");
    let nobody = "client-certificate: nobody.crt\n    client-key: nobody.key";
    let mut store = open(&stage, "nobody.yaml", nobody).unwrap();
    let refused = next(&mut store).await.unwrap_err().to_string();
    let expected = "403: nodes is forbidden: User \"nobody\" cannot list resource \"nodes\" in API group \"\" at the \
                    cluster scope: the ClusterRole of flannel's manifest allows it";
    assert!(refused.contains(expected), "{refused}");
}

/// All that is logged, at any level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn no_token_password_or_key_is_ever_told() {
    let stage = Stage::new(shared(), V4);
    stage.add_annotated("w1", &["10.42.1.0/24"], &json!({}));
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let key = std::fs::read_to_string(stage.cluster.path("flannel-by-certificate.key")).unwrap();
    let broken_key =
        format!("client-certificate: ca.crt\n    client-key-data: {}", STANDARD.encode(&key[20..]));
    let mut told = Vec::new();
    for (name, credentials) in [
        ("secret-1.yaml", format!("token: {FLANNEL}")),
        ("secret-2.yaml", "token: planted-secret-token-that-is-wrong".to_owned()),
        ("secret-3.yaml", "username: me\n    password: planted-secret-password".to_owned()),
        ("secret-4.yaml", broken_key),
        ("secret-5.yaml", "token: [planted-secret".to_owned()),
    ] {
        match open(&stage, name, &credentials) {
            Err(error) => told.push(format!("{error} {error:?}")),
            Ok(mut store) => {
                store.tell(&Readiness::Ready);
                let error = soon(store.publish(&announcement(1))).await.unwrap_err();
                told.push(format!("{error} {error:?}"));
                if let Err(error) = next(&mut store).await {
                    told.push(format!("{error} {error:?}"));
                }
            }
        }
    }
    wait_until("something is logged", || !log.0.lock().unwrap().is_empty()).await;
    drop(guard);
    let everything = [told.join("\n"), String::from_utf8(log.0.lock().unwrap().clone()).unwrap()].concat();
    let lines_of_the_key = key.lines().filter(|line| !line.contains("---"));
    for secret in lines_of_the_key.chain(["planted-secret", &STANDARD.encode("me:planted-secret-password")]) {
        assert!(!everything.contains(secret), "{secret} in:\n{everything}");
    }
    assert!(everything.contains("401") && everything.contains("outside of Network"), "{everything}");
}

#[tokio::test]
#[ignore = "needs a Kubernetes API server"]
async fn the_node_is_that_of_the_daemons_pod_where_it_is_not_named() {
    let stage = Stage::new(shared(), V4);
    stage.add("w1", &["10.244.1.0/24"]);
    let container = json!({ "name": "flanneld", "image": "flannel" });
    let pod = json!({
        "metadata": { "name": stage.name("pod") },
        "spec": { "nodeName": stage.name("w1"), "containers": [container] },
    });
    stage.cluster.api("POST", "/api/v1/namespaces/default/pods", Some(&pod));
    let pod = Some((stage.name("pod"), "default".to_owned()));
    let mut store =
        Kubernetes::open(KubernetesOptions { node_name: None, pod, ..stage.options("w1") }).unwrap();
    next(&mut store).await.unwrap();
    assert_eq!(soon(store.publish(&announcement(1))).await.unwrap().owner, stage.name("w1"));
}
