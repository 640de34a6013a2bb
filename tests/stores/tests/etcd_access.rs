//! An etcd that wants to know who asks: passwords, certificates, and that no secret is ever told.

use std::fs;
use std::time::Duration;

use cluster_tests::{VXLAN, is_ready, options, wait_until};
use flannel_lab::{Etcd, LabOptions, Node, Signal, Store, Topology};
use serde_json::json;
use store_tests::{Authority, Calm, Fleet, GoLease, Life, scenarios, tell, time_to};

scenarios! {
    &[] => a_password_that_becomes_wrong_and_right_again_costs_nothing_and_is_never_told,
        an_expired_certificate_is_named_and_its_successor_is_read, the_servers_certificate_expires_and_is_replaced,
        certificates_are_not_looked_at_where_nobody_asks_for_them;
}

const LONG: Duration = Duration::from_secs(60);
const PASSWORD: &str = "planted-Secret-4711";

fn stranger(number: u8) -> GoLease {
    GoLease::vxlan(
        &format!("10.244.{number}.0-24"),
        &format!("10.0.0.{number}"),
        &format!("02:00:00:00:01:{number:02x}"),
    )
}

/// Two users: root, and flannel with the rights that it needs. From here on nobody is let in without a password.
fn ask_for_passwords(etcd: &Etcd<'_>) {
    let end = "L2NvcmVvcy5jb20vbmV0d29yazA="; // of all keys below /coreos.com/network
    let rights = json!({"permType": "READWRITE", "key": "L2NvcmVvcy5jb20vbmV0d29yay8=", "range_end": end});
    for (path, body) in [
        ("/v3/auth/user/add", json!({"name": "root", "password": "root"})),
        ("/v3/auth/role/add", json!({"name": "root"})),
        ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
        ("/v3/auth/user/add", json!({"name": "flannel", "password": PASSWORD})),
        ("/v3/auth/role/add", json!({"name": "flannel"})),
        ("/v3/auth/role/grant", json!({"name": "flannel", "perm": rights})),
        ("/v3/auth/user/grant", json!({"user": "flannel", "role": "flannel"})),
        ("/v3/auth/enable", json!({})),
    ] {
        etcd.call(path, &body).unwrap();
    }
}

fn set_password(etcd: &Etcd<'_>, password: &str) {
    let root = etcd.log_in("root", "root").unwrap();
    root.call("/v3/auth/user/changepw", &json!({"name": "flannel", "password": password})).unwrap();
}

/// Everything that a node tells: its log, its files, its health and its figures.
fn everything_told(node: &Node) -> String {
    let mut told = node.log();
    for file in ["state.json", "subnet.env"] {
        told += &fs::read_to_string(node.path(&format!("/run/flannel/{file}"))).unwrap_or_default();
    }
    for path in ["/readyz", "/healthz", "/metrics"] {
        told += &node.http_get(8081, path).map(|(_, body)| body).unwrap_or_default();
    }
    told
}

fn a_password_that_becomes_wrong_and_right_again_costs_nothing_and_is_never_told() {
    let words = ["--etcd-username", "flannel", "--etcd-password", PASSWORD, "-v", "10"];
    let options = LabOptions {
        topology: Topology::flat(2).unwrap(),
        store: Store::etcd(1),
        flanneld_args: words.map(str::to_owned).to_vec(),
        flanneld_env: vec![("RUST_LOG".to_owned(), "trace".to_owned())],
        ..options(VXLAN)
    };
    let fleet = Fleet::up("etcd-password", options);
    let etcd = fleet.etcd().unwrap();
    ask_for_passwords(&etcd);
    let fleet = fleet.running();
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    set_password(&etcd, "another");
    // A restart takes all tokens away.
    let member = &etcd.members()[0];
    member.service("etcd").stop(Signal::KILL).unwrap();
    etcd.start(member).unwrap();
    etcd.wait_healthy(member).unwrap();
    let refused = |node: &Node| node.log().contains("invalid user ID or password");
    time_to("the nodes to say that they are not let in", LONG, || fleet.nodes().iter().all(refused));
    set_password(&etcd, PASSWORD);
    let lease = stranger(250);
    etcd.log_in("root", "root").unwrap().put(&lease.path(), &lease.value).unwrap();
    tell(format!("a new peer is followed after {:?}", fleet.wait_route(&lease.subnet())));
    calm.held();
    for node in fleet.nodes() {
        let told = everything_told(node);
        assert!(told.contains("TRACE") || told.contains("DEBUG"), "it told much");
        let line = told.lines().find(|line| line.contains(PASSWORD));
        assert_eq!(line, None, "{} told the password", node.name());
    }
}

/// An etcd that speaks TLS to its nodes, whose certificates are in an authority's folder; with a client's certificate
/// it wants to see one.
fn secured(name: &str, authority: &Authority, client: Option<&str>) -> Fleet {
    let [ca, certificate, key] = ["ca.crt", "client.crt", "client.key"].map(|file| authority.path(file));
    let shown =
        ["--etcd-certfile", &certificate, "--etcd-keyfile", &key].into_iter().filter(|_| client.is_some());
    let trusted = client.map(|_| format!("--trusted-ca-file={ca}"));
    let flags = [
        ("--listen-client-urls", "https://10.0.0.11:2379,http://127.0.0.1:2379"),
        ("--advertise-client-urls", "https://10.0.0.11:2379"),
        ("--cert-file", &authority.path("server.crt")),
        ("--key-file", &authority.path("server.key")),
    ];
    let arguments = flags.map(|(flag, value)| format!("{flag}={value}")).into_iter().chain(trusted).collect();
    let words = ["--etcd-endpoints", "https://10.0.0.11:2379", "--etcd-cafile", &ca];
    let words = words.into_iter().chain(shown).map(str::to_owned);
    let store = Store::Etcd { members: 1, program: None, arguments };
    let topology = Topology::flat(2).unwrap();
    Fleet::up(name, LabOptions { topology, store, flanneld_args: words.collect(), ..options(VXLAN) })
}

fn an_expired_certificate_is_named_and_its_successor_is_read() {
    let authority = Authority::new();
    authority.issue("server", "10.0.0.11", Life::Good);
    authority.issue("client", "127.0.0.1", Life::Expired);
    let fleet = secured("etcd-client-tls", &authority, Some("client"));
    fleet.nodes().iter().for_each(|node| node.start_flanneld([""; 0]).unwrap());
    for node in fleet.nodes() {
        wait_until("the trouble to be named", || {
            let log = node.log();
            if log.contains("ertificate") && node.flanneld().lives() { Ok(()) } else { Err(log) }
        });
    }
    authority.issue("client", "127.0.0.1", Life::Good);
    let took =
        time_to("the nodes to be ready", LONG, || fleet.nodes().iter().all(|node| node.readiness().is_ok()));
    tell(format!("ready {took:?} after a good certificate"));
    fleet.settled();
    // A certificate that changes while all is well is not worth a packet.
    let calm = Calm::begin(&fleet);
    authority.issue("client", "127.0.0.1", Life::Good);
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    calm.held();
}

fn the_servers_certificate_expires_and_is_replaced() {
    let authority = Authority::new();
    authority.issue("server", "10.0.0.11", Life::Good);
    let fleet = secured("etcd-server-tls", &authority, None).running();
    let (etcd, calm) = (fleet.etcd().unwrap(), Calm::begin(&fleet));
    let restart = || {
        let member = &etcd.members()[0];
        member.service("etcd").stop(Signal::KILL).unwrap();
        etcd.start(member).unwrap();
        etcd.wait_healthy(member).unwrap();
    };
    authority.issue("server", "10.0.0.11", Life::Expired);
    restart();
    for node in fleet.nodes() {
        wait_until("the trouble to be named", || {
            let log = node.log();
            if log.contains("xpired") { Ok(()) } else { Err(log) }
        });
    }
    authority.issue("server", "10.0.0.11", Life::Good);
    restart();
    tell(format!("a new peer is followed after {:?}", fleet.time_to_follow(&stranger(250))));
    calm.held();
    fleet.nodes().iter().for_each(is_ready);
}

/// As Go's own test of etcd has it.
fn certificates_are_not_looked_at_where_nobody_asks_for_them() {
    let fleet = Fleet::etcd("etcd-plain", 1, 1, VXLAN);
    let node = fleet.node("master1");
    let files = [
        "--etcd-cafile",
        "/nowhere/ca.crt",
        "--etcd-certfile",
        "/nowhere/a.crt",
        "--etcd-keyfile",
        "/nowhere/a.key",
    ];
    node.start_flanneld(files).unwrap();
    is_ready(node);
}
