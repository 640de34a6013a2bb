//! The store against a server that answers as a real one does only in its worst hours.

use flannel_plan::lease::Lease;

use super::fake::{Answer, Asked, Fake, event, gzip, list, node, object};
use super::wire::{Node, Status};
use super::*;

const NET_CONF: &str = r#"{"Network":"10.0.0.0/8","Backend":{"Type":"host-gw"}}"#;

struct Stage {
    fake: Fake,
    store: Kubernetes,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new(answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(Fake::start(answer))
    }

    fn on(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let net_conf = dir.path().join("net-conf.json");
        std::fs::write(&net_conf, NET_CONF).unwrap();
        let store = Kubernetes::open(KubernetesOptions {
            api_url: Some(format!("http://127.0.0.1:{}", fake.port)),
            kubeconfig: None,
            node_name: Some("n0".to_owned()),
            pod: None,
            prefix: AnnotationPrefix::default(),
            net_conf,
            set_condition: false,
        });
        Self { fake, store: store.unwrap(), _dir: dir }
    }

    async fn next(&mut self) -> Result<Snapshot, StoreError> {
        tokio::time::timeout(Duration::from_secs(20), self.store.next())
            .await
            .expect("it should not take so long")
    }

    async fn peers(&mut self) -> Vec<String> {
        owners(&self.next().await.unwrap())
    }

    async fn trouble(&mut self) -> String {
        self.next().await.unwrap_err().to_string()
    }

    fn count(&self, is_one: impl Fn(&Asked) -> bool) -> usize {
        self.fake.asked().iter().filter(|asked| is_one(asked)).count()
    }
}

fn owners(snapshot: &Snapshot) -> Vec<String> {
    snapshot.peers.iter().map(|lease| lease.owner.clone()).collect()
}

fn nothing_more() -> Answer {
    Answer::Stream(Vec::new())
}

fn refusal(code: u16, message: &str) -> Answer {
    Answer::Whole(code, object(&Status { message: message.to_owned(), code: code.into() }))
}

fn nodes<const N: usize>(asked: &Asked, nodes: [Node; N], version: &str) -> Answer {
    Answer::Whole(200, list(asked, nodes, version))
}

fn whole(n: usize) -> Answer {
    Answer::Whole(200, object(&node(n, "7")))
}

#[tokio::test]
async fn a_list_that_ends_too_early_proves_nothing() {
    let mut stage = Stage::new(|asked, before| match asked {
        asked if asked.is_list() && !asked.is_of_metadata() => {
            Answer::Whole(200, list(asked, (0..4).map(|n| node(n, "1")), "9"))
        }
        asked if asked.is_list() => {
            let mut nodes = list(asked, (0..4).map(|n| node(n, "1")), "10");
            if before < 2 {
                nodes.truncate(nodes.len() * (before + 1) / 3);
            }
            Answer::Whole(200, nodes)
        }
        _ => gone(),
    });
    assert_eq!(stage.peers().await, ["n1", "n2", "n3"]);
    assert!(stage.trouble().await.contains("cannot list nodes"));
    assert_eq!(stage.peers().await, ["n1", "n2", "n3"]);
}

/// The end of a watch whose version is too old.
fn gone() -> Answer {
    Answer::Stream(event("ERROR", &Status { message: "too old resource version".to_owned(), code: 410 }))
}

#[tokio::test]
async fn a_watch_that_cannot_go_on_leads_to_a_list_of_metadata_and_only_new_nodes_are_read() {
    let mut stage = Stage::new(|asked, before| match asked.path.as_str() {
        _ if asked.is_list() && !asked.is_of_metadata() => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        _ if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "1"), node(2, "11")], "12"),
        path if path.contains("resourceVersion=9&") && before == 0 => gone(),
        "/api/v1/nodes/n2" => whole(2),
        _ => nothing_more(),
    });
    let mut seen = stage.peers().await;
    while seen != ["n1", "n2"] {
        seen = stage.peers().await;
    }
    let reads: Vec<_> =
        stage.fake.asked().into_iter().filter(|asked| asked.path.contains("/nodes/")).collect();
    assert_eq!(reads.iter().map(|asked| asked.path.as_str()).collect::<Vec<_>>(), ["/api/v1/nodes/n2"]);
    assert_eq!(stage.count(|asked| asked.is_list() && asked.is_of_metadata()), 1);
}

#[tokio::test]
async fn what_is_remembered_makes_the_first_list_small_and_too_much_that_is_new_makes_it_whole() {
    let all = || (0..300).map(|n| node(n, "1")).collect::<Vec<_>>();
    let answer = move |asked: &Asked, _| match asked.path.as_str() {
        "/api/v1/nodes/n0" => whole(0),
        _ if asked.is_list() => Answer::Whole(200, list(asked, all(), "9")),
        _ => nothing_more(),
    };
    let mut stage = Stage::new(answer);
    let before = stage.next().await.unwrap();
    assert_eq!((before.peers.len(), before.origin.as_deref()), (299, Some("uid-0")));
    assert_eq!(stage.count(|asked| asked.is_of_metadata() && asked.is_list()), 0);

    let remembered = |count: usize| {
        let peers = before.peers.iter().take(count).cloned().collect();
        let mut again = Stage::new(answer);
        again.store = again.store.remembering(&Snapshot { peers, ..before.clone() });
        again
    };
    let mut again = remembered(299);
    assert_eq!(again.next().await.unwrap().peers, before.peers);
    assert_eq!(again.count(|asked| !asked.is_of_metadata() && asked.is_list()), 0);
    let mut nearly_new = remembered(150);
    assert_eq!(nearly_new.next().await.unwrap().peers, before.peers);
    assert_eq!(nearly_new.count(|asked| !asked.is_of_metadata() && asked.is_list()), 1);
    let reads = |asked: &Asked| asked.path.starts_with("/api/v1/nodes/");
    assert_eq!(nearly_new.count(reads), 1, "of this node, which is asked first who it is");
}

#[tokio::test]
async fn what_is_remembered_of_another_node_of_the_same_name_is_not_used() {
    let mut stage = Stage::new(|asked, _| match asked.path.as_str() {
        "/api/v1/nodes/n0" => whole(0),
        _ if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        _ => nothing_more(),
    });
    let before = stage.next().await.unwrap();
    let moved = |lease: &Arc<Lease>| {
        Arc::new(Lease { subnets: before.own.as_ref().unwrap().subnets, ..(**lease).clone() })
    };
    let wrong = Snapshot {
        origin: Some("uid-x".into()),
        peers: before.peers.iter().map(moved).collect(),
        ..before.clone()
    };
    let mut again = Stage::new(|asked, _| match asked.path.as_str() {
        "/api/v1/nodes/n0" => whole(0),
        _ if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        _ => nothing_more(),
    });
    again.store = again.store.remembering(&wrong);
    assert_eq!(again.next().await.unwrap().peers, before.peers);
    assert_eq!(again.count(|asked| asked.is_of_metadata() && asked.is_list()), 0);
}

#[tokio::test]
async fn the_first_list_is_asked_of_the_servers_memory_and_comes_packed() {
    let all = || (0..300).map(|n| node(n, "1")).collect::<Vec<_>>();
    let mut stage = Stage::new(move |asked, _| match asked.path.as_str() {
        "/api/v1/nodes?resourceVersion=0" if asked.encoding == "gzip" => {
            Answer::Packed(gzip(&list(asked, all(), "9")))
        }
        _ => nothing_more(),
    });
    let snapshot = stage.next().await.unwrap();
    assert_eq!((snapshot.peers.len(), snapshot.is_stale), (299, false));
    assert_eq!(snapshot.version.as_deref(), Some("9"));
}

#[tokio::test]
async fn a_list_that_is_older_than_the_store_is_no_proof_before_the_watch_has_caught_up() {
    let late = |version| event("MODIFIED", &Node { spec: None, ..node(1, version) });
    let fake = Fake::start_at("20", move |asked, _| match asked.path.as_str() {
        _ if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "8")], "9"),
        path if path.contains("resourceVersion=9&") => Answer::Stream([late("19"), late("21")].concat()),
        _ => nothing_more(),
    });
    let mut stage = Stage::on(fake);
    let first = stage.next().await.unwrap();
    assert_eq!((owners(&first), first.is_stale), (vec!["n1".to_owned()], true));
    let second = stage.next().await.unwrap();
    assert_eq!((owners(&second), second.is_stale), (vec!["n1".to_owned()], false));
    assert_eq!(second.version.as_deref(), Some("21"));
}

#[tokio::test]
async fn a_list_is_as_new_as_what_is_remembered_or_as_the_store_if_that_was_set_back() {
    let answer = |asked: &Asked, _| match asked.path.as_str() {
        "/api/v1/nodes/n0" => whole(0),
        "/api/v1/nodes?resourceVersion=9" => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        "/api/v1/nodes?resourceVersion=5000" => refusal(504, "Too large resource version: 5000, current: 9"),
        "/api/v1/nodes" | "/api/v1/nodes?resourceVersion=0" => {
            nodes(asked, [node(0, "1"), node(1, "1")], "9")
        }
        _ => nothing_more(),
    };
    let before = Stage::new(answer).next().await.unwrap();
    for (version, expected) in [("9", "/api/v1/nodes?resourceVersion=9"), ("5000", "/api/v1/nodes")] {
        let mut stage = Stage::new(answer);
        stage.store = stage.store.remembering(&Snapshot { version: Some(version.into()), ..before.clone() });
        let again = stage.next().await.unwrap();
        assert_eq!((owners(&again), again.is_stale), (owners(&before), false));
        let lists: Vec<_> = stage.fake.asked().into_iter().filter(Asked::is_list).collect();
        assert_eq!(lists.last().unwrap().path, expected);
        assert_eq!(stage.count(|asked| asked.path.contains("resourceVersion=0")), 0);
    }
}

#[tokio::test]
async fn a_packed_list_that_is_cut_or_spoilt_is_an_error() {
    let packed = |asked: &Asked| gzip(&list(asked, (0..40).map(|n| node(n, "1")), "9"));
    let spoils: [fn(&mut Vec<u8>); 2] =
        [|packed| packed.truncate(packed.len() / 2), |packed| packed[30] ^= 0xff];
    for spoil in spoils {
        let mut stage = Stage::new(move |asked, _| {
            let mut body = packed(asked);
            spoil(&mut body);
            Answer::Packed(body)
        });
        let trouble = stage.trouble().await;
        assert!(trouble.starts_with("cannot list nodes: the answer of"), "{trouble}");
    }
}

#[tokio::test]
async fn a_new_node_that_cannot_be_read_at_once_is_not_forgotten() {
    let mut stage = Stage::new(|asked, before| match asked.path.as_str() {
        _ if asked.is_list() => nodes(asked, [node(0, "1")], "9"),
        "/api/v1/nodes/n1" if before < 2 => refusal(500, "etcd has no leader"),
        "/api/v1/nodes/n1" => whole(1),
        path if path.contains("resourceVersion=9&") => {
            Answer::Stream(event("ADDED", &Node { spec: None, ..node(1, "10") }))
        }
        _ => nothing_more(),
    });
    assert_eq!(stage.peers().await, Vec::<String>::new());
    assert_eq!(stage.peers().await, ["n1"]);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_told_once() {
    let mut stage = Stage::new(|asked, _| match asked {
        asked if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        _ => Answer::Stream(b"\0\0\0\x05hello".to_vec()),
    });
    assert_eq!(stage.peers().await, ["n1"]);
    let trouble = stage.trouble().await;
    assert!(
        trouble.starts_with("cannot watch nodes: the answer of the API server http://127.0.0.1:"),
        "{trouble}"
    );
    let silence = tokio::time::timeout(Duration::from_secs(1), stage.store.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test]
async fn a_watch_that_says_nothing_for_long_leads_to_a_new_list_even_if_that_is_older() {
    let mut stage = Stage::new(|asked, _| match asked {
        asked if asked.is_list() && !asked.is_of_metadata() => {
            nodes(asked, [node(0, "1"), node(1, "8")], "9")
        }
        asked if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "3")], "5"),
        asked if asked.path.contains("resourceVersion=5&") => {
            Answer::Stream(event("DELETED", &Node { spec: None, ..node(1, "6") }))
        }
        _ => nothing_more(),
    });
    stage.store.silence = Duration::from_millis(400);
    assert_eq!(stage.peers().await, ["n1"]);
    let mut seen = stage.peers().await;
    while !seen.is_empty() {
        seen = stage.peers().await;
    }
}

#[tokio::test]
async fn refusals_are_told_in_the_servers_words_whatever_form_they_have() {
    let json = r#"{"kind":"Status","message":"nodes is forbidden"}"#;
    for (code, body, expected) in [
        (
            403,
            json.as_bytes().to_vec(),
            "answers 403: nodes is forbidden: the ClusterRole of flannel's manifest",
        ),
        (502, b"<html>Bad gateway</html>\n".to_vec(), "answers 502: <html>Bad gateway</html>"),
        (
            401,
            object(&Status { message: "Unauthorized".to_owned(), code: 401 }),
            "answers 401: Unauthorized: the tok",
        ),
    ] {
        let mut stage = Stage::new(move |_, _| Answer::Whole(code, body.clone()));
        let trouble = stage.trouble().await;
        assert!(trouble.starts_with("cannot list nodes: ") && trouble.contains(expected), "{trouble}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_meanwhile_is_opened_again() {
    let mut stage = Stage::new(|asked, before| match asked.path.as_str() {
        _ if asked.is_list() => nodes(asked, [node(0, "1")], "9"),
        "/api/v1/nodes/n0" if before == 1 => Answer::Close,
        "/api/v1/nodes/n0" => whole(0),
        _ => nothing_more(),
    });
    stage.next().await.unwrap();
    let announcement = node_announcement(0);
    for _ in 0..2 {
        let published: Lease = stage.store.publish(&announcement).await.unwrap();
        assert_eq!(published.announcement, announcement);
    }
    assert_eq!(stage.count(|asked| asked.path == "/api/v1/nodes/n0"), 3);
    assert_eq!(stage.count(|asked| asked.method == "PATCH"), 0, "it says so already");
}

#[tokio::test]
async fn what_we_wrote_never_hides_what_another_has_written_since() {
    // The watch may tell of a change sooner than we note what we wrote before it.
    let mut stage = Stage::new(|asked, _| match asked.path.as_str() {
        _ if asked.is_list() => nodes(asked, [node(0, "1")], "9"),
        "/api/v1/nodes/n0" => Answer::Whole(200, object(&node(9, "10").named("n0"))),
        "/api/v1/nodes/n0/status" => Answer::Whole(200, object(&node(0, "11"))),
        _ => Answer::Stream(event("MODIFIED", &Node { spec: None, ..node(7, "12").named("n0") })),
    });
    let is_anothers = |snapshot: &Snapshot| {
        snapshot.own.as_ref().is_some_and(|own| own.announcement == node_announcement(7))
    };
    while !is_anothers(&stage.next().await.unwrap()) {}
    stage.store.published = Some(node_announcement(0));
    stage.store.publish(&node_announcement(0)).await.unwrap();
    assert_eq!(stage.count(|asked| asked.method == "PATCH"), 1);
    assert!(is_anothers(&stage.next().await.unwrap()), "the correction must be seen to be lost");
}

fn node_announcement(n: u8) -> Announcement {
    Announcement {
        public: flannel_plan::family::ByFamily { v4: Some([192, 0, 0, n].into()), v6: None },
        backend: "host-gw".to_owned(),
        detail: flannel_plan::family::ByFamily::default(),
    }
}

#[tokio::test]
async fn the_node_is_found_by_the_pod_of_the_daemon() {
    use super::wire::{Pod, PodSpec};
    let pod = |node: &str| Pod { spec: Some(PodSpec { node_name: node.to_owned() }) };
    let mut stage = Stage::new(move |asked, before| match asked.path.as_str() {
        "/api/v1/namespaces/kube-flannel/pods/ds-1" => {
            Answer::Whole(200, object(&pod(if before < 2 { "" } else { "n1" })))
        }
        _ if asked.is_list() => nodes(asked, [node(0, "1"), node(1, "1")], "9"),
        _ => nothing_more(),
    });
    let pod = Some(("ds-1".to_owned(), "kube-flannel".to_owned()));
    stage.store.identity = Arc::new(Identity::new(Some(String::new()), pod).unwrap());
    assert!(stage.trouble().await.starts_with("pod kube-flannel/ds-1 is on no node yet"));
    assert_eq!(stage.peers().await, ["n0"]);
}

#[test]
fn a_node_must_have_a_name_that_kubernetes_knows() {
    let wrong = |node: Option<&str>, pod: Option<(&str, &str)>| {
        let pod = pod.map(|(pod, namespace)| (pod.to_owned(), namespace.to_owned()));
        Identity::new(node.map(str::to_owned), pod).unwrap_err().to_string()
    };
    assert!(wrong(None, None).starts_with("this node's name is not known"));
    assert!(wrong(Some(""), Some(("pod", ""))).starts_with("this node's name is not known"));
    assert!(wrong(Some("../secrets"), None).starts_with("\"../secrets\" is no name"));
}
