//! User and password: let in, kept out, and never printed.

use std::io;
use std::sync::{Arc, Mutex};

use flannel_leases::LeaseStore;
use flannel_leases::etcd::{Etcd, EtcdOptions, Secret};
use tracing_subscriber::fmt::MakeWriter;

use crate::stage::{self, Daemon, PREFIX, Stage, V4, alone, announcement, publish, run, soon};

const PASSWORD: &str = "planted-Secret-4711";

/// An etcd that lets in only who has the password.
fn locked() -> Stage {
    let mut stage = Stage::new(V4);
    let ctl = |words: &[&str]| drop(stage.cluster.ctl(words));
    ctl(&["user", "add", "root:root-Secret-0815"]);
    ctl(&["user", "grant-role", "root", "root"]);
    ctl(&["role", "add", "flannel"]);
    ctl(&["role", "grant-permission", "--prefix=true", "flannel", "readwrite", PREFIX]);
    ctl(&["role", "add", "reader"]);
    ctl(&["role", "grant-permission", "reader", "read", &format!("{PREFIX}/config")]);
    ctl(&["user", "add", &format!("flannel:{PASSWORD}")]);
    ctl(&["user", "grant-role", "flannel", "flannel"]);
    ctl(&["user", "add", &format!("reader:{PASSWORD}")]);
    ctl(&["user", "grant-role", "reader", "reader"]);
    ctl(&["auth", "enable"]);
    stage.cluster.ctl_flags = vec!["--user".to_owned(), "root:root-Secret-0815".to_owned()];
    stage
}

fn options(stage: &Stage, user: &str, password: &str) -> EtcdOptions {
    EtcdOptions { username: user.to_owned(), password: Secret::new(password), ..stage.options() }
}

fn open(stage: &Stage, user: &str, password: &str) -> Etcd {
    stage::open(options(stage, user, password))
}

#[test]
fn a_user_with_the_right_password_is_let_in_and_others_are_told_why_not() {
    let stage = locked();
    run(async { publish(&mut open(&stage, "flannel", PASSWORD), &announcement(1)).await });
    let says = |user: &str, password: &str| {
        run(async { soon(open(&stage, user, password).publish(&announcement(2))).await })
            .unwrap_err()
            .to_string()
    };
    let endpoint = stage.cluster.endpoint(0);
    assert_eq!(
        says("flannel", "wrong-Secret-1234"),
        format!(
            "etcd at {endpoint} does not let user \"flannel\" in: etcdserver: authentication failed, invalid user ID or \
             password: correct --etcd-username or --etcd-password"
        )
    );
    assert_eq!(
        says("", ""),
        format!(
            "etcd at {endpoint} does not give the leases: etcdserver: user name is empty: set --etcd-username and \
             --etcd-password"
        )
    );
    assert_eq!(
        says("reader", PASSWORD),
        format!(
            "etcd at {endpoint} does not give the leases: etcdserver: permission denied: grant the user the right to read \
             and write below --etcd-prefix"
        )
    );
}

#[test]
fn a_user_that_nobody_asks_for_does_no_harm() {
    let stage = Stage::new(V4);
    run(async { publish(&mut open(&stage, "flannel", PASSWORD), &announcement(1)).await });
}

#[test]
fn a_token_that_etcd_forgot_is_had_anew() {
    let mut stage = locked();
    let mut node = Daemon::start(open(&stage, "flannel", PASSWORD), announcement(1));
    let lease = node.lease();
    // Tokens live in memory: a new etcd knows none of them.
    stage.cluster.kill(0);
    stage.cluster.start(0);
    stage.cluster.wait_until_healthy(0);
    stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    let told = node.until("followed", |snapshot| snapshot.peers.len() == 1);
    assert_eq!(told.own.as_deref(), Some(&lease));
}

#[test]
fn a_token_that_ended_between_two_calls_is_had_anew() {
    let stage = locked();
    run(async {
        let mut node = open(&stage, "flannel", PASSWORD);
        publish(&mut node, &announcement(1)).await;
        // A new password ends the tokens that were had by the old one; the same one again is as good.
        stage.cluster.ctl(&["user", "revoke-role", "flannel", "flannel"]);
        stage.cluster.ctl(&["user", "grant-role", "flannel", "flannel"]);
        publish(&mut node, &announcement(1)).await;
    });
}

#[test]
fn a_wrong_password_that_is_corrected_in_etcd_is_let_in_at_the_next_try() {
    let stage = locked();
    let mut node = Daemon::start(open(&stage, "flannel", "new-Secret-99"), announcement(1));
    node.until_error(|why| why.contains("does not let user \"flannel\" in"));
    stage.cluster.ctl_with_input(&["user", "passwd", "--interactive=false", "flannel"], "new-Secret-99\n");
    node.lease();
}

/// Everything that is logged, at every level.
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

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn no_password_and_no_token_is_in_any_log_error_or_debug_text() {
    // Alone in a program: what is logged is decided for all threads of a program at once.
    alone("login::look_for_secrets_in_everything_that_is_printed", &[]);
}

#[test]
#[ignore = "run by the test above, alone in its program"]
fn look_for_secrets_in_everything_that_is_printed() {
    let mut stage = locked();
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut texts = vec![format!("{:?}", options(&stage, "flannel", PASSWORD))];
    run(async {
        let mut node = open(&stage, "flannel", PASSWORD);
        publish(&mut node, &announcement(1)).await;
        node.next().await.unwrap();
        stage.cluster.kill(0);
        texts.push(format!("{:?}", soon(node.publish(&announcement(1))).await.unwrap_err()));
        stage.cluster.start(0);
        stage.cluster.wait_until_healthy(0);
        publish(&mut node, &announcement(1)).await;
        let wrong =
            soon(open(&stage, "flannel", "wrong-Secret-1234").publish(&announcement(1))).await.unwrap_err();
        texts.push(format!("{wrong} {wrong:?}"));
    });
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("etcd is away") && log.contains("etcd answers again"));
    texts.push(log);
    for text in &texts {
        assert!(!text.contains("Secret-"), "a password is in: {text}");
    }
    // A token of etcd is 16 letters, a dot, and the number of a revision.
    let token = regex::Regex::new(r"\b[A-Za-z]{16}\.\d+\b").unwrap();
    for text in &texts {
        assert_eq!(token.find(text), None);
    }
}
