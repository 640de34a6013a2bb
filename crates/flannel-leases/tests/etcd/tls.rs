//! TLS: by a client certificate, by the authority alone, by the system's authorities; what is wrong is named, and
//! files that are replaced are read again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flannel_leases::LeaseStore;
use flannel_leases::etcd::{Etcd, EtcdOptions};
use flannel_plan::family::ByFamily;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};

use crate::server::Cluster;
use crate::stage::{Daemon, PREFIX, Stage, V4, alone, announcement, open, publish, run, soon};

// The reason before it differs: etcd may hang up before it is heard.
const NO_TRUST: &str = "set --etcd-certfile and --etcd-keyfile, or renew them";
const GOOD: i32 = 4000;
const LONG_OVER: i32 = 2001;

/// An authority, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate and its key; replaces both as a whole.
    fn sign(&self, dir: &Path, name: &str, last_year: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        replace(&cert_file, &cert.pem());
        replace(&key_file, &key.serialize_pem());
        (cert_file, key_file)
    }

    fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let file = dir.join(name);
        replace(&file, &self.pem);
        file
    }
}

fn replace(file: &Path, content: &str) {
    let unfinished = file.with_extension("new");
    fs::write(&unfinished, content).unwrap();
    fs::rename(unfinished, file).unwrap();
}

/// An etcd that speaks TLS, and asks for client certificates or not.
struct TlsStage {
    authority: Authority,
    stage: Stage,
    ca_file: PathBuf,
    client: (PathBuf, PathBuf),
}

impl TlsStage {
    fn new(asks_for_certificates: bool) -> Self {
        let authority = Authority::new("the authority of this test");
        let mut cluster = Cluster::prepared(1, "https");
        let dir = cluster.dir.path().to_owned();
        let (cert, key) = authority.sign(&dir, "server", GOOD);
        let ca_file = authority.write(&dir, "ca.pem");
        let client = authority.sign(&dir, "client", GOOD);
        let path = |file: &PathBuf| file.to_str().unwrap().to_owned();
        cluster.flags = vec!["--cert-file".to_owned(), path(&cert), "--key-file".to_owned(), path(&key)];
        cluster.ctl_flags = vec!["--cacert".to_owned(), path(&ca_file)];
        if asks_for_certificates {
            cluster.flags.extend([
                "--client-cert-auth".to_owned(),
                "--trusted-ca-file".to_owned(),
                path(&ca_file),
            ]);
            let admin = authority.sign(&dir, "admin", GOOD);
            cluster.ctl_flags.extend([
                "--cert".to_owned(),
                path(&admin.0),
                "--key".to_owned(),
                path(&admin.1),
            ]);
        }
        cluster.start_all();
        Self { authority, stage: Stage::on(cluster, V4), ca_file, client }
    }

    fn dir(&self) -> &Path {
        self.stage.cluster.dir.path()
    }

    /// How many connections etcd has taken so far.
    fn connections(&self) -> u64 {
        let port = format!(":{}", self.stage.cluster.members[0].port);
        let listed = Command::new("ss").args(["-tnH", "state", "established"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        listed
            .lines()
            .filter(|line| line.split_whitespace().nth(2).is_some_and(|local| local.ends_with(&port)))
            .count() as u64
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions {
            ca_file: Some(self.ca_file.clone()),
            cert_file: Some(self.client.0.clone()),
            key_file: Some(self.client.1.clone()),
            ..self.stage.options()
        }
    }
}

fn claim(options: EtcdOptions) -> Result<(), String> {
    run(async {
        soon(open(options).publish(&announcement(1))).await.map(drop).map_err(|why| why.to_string())
    })
}

#[test]
fn a_client_certificate_opens_the_door_and_without_one_the_error_says_what_is_missing() {
    let tls = TlsStage::new(true);
    run(async { publish(&mut open(tls.options()), &announcement(1)).await });
    let without = claim(EtcdOptions { cert_file: None, key_file: None, ..tls.options() }).unwrap_err();
    assert!(without.ends_with(NO_TRUST), "{without}");
    let other = Authority::new("another authority").sign(tls.dir(), "stranger", GOOD);
    let stranger = claim(EtcdOptions { cert_file: Some(other.0), key_file: Some(other.1), ..tls.options() });
    let stranger = stranger.unwrap_err();
    assert!(stranger.ends_with(NO_TRUST), "{stranger}");
}

#[test]
fn the_authority_alone_is_enough_where_etcd_asks_for_no_certificate() {
    let tls = TlsStage::new(false);
    claim(EtcdOptions { cert_file: None, key_file: None, ..tls.options() }).unwrap();
    let wrong_ca = Authority::new("another authority").write(tls.dir(), "other.pem");
    let wrong = claim(EtcdOptions { ca_file: Some(wrong_ca), ..tls.options() }).unwrap_err();
    assert!(wrong.contains("invalid peer certificate: UnknownIssuer"), "{wrong}");
    assert!(wrong.ends_with("name the authority that signed etcd's certificate by --etcd-cafile"), "{wrong}");
    let mut plain = tls.options();
    plain.endpoints = vec![plain.endpoints[0].replace("https", "http")];
    let plain = claim(plain).unwrap_err();
    assert!(plain.ends_with("if TLS is spoken there, write https:// for it"), "{plain}");
}

#[test]
fn the_authorities_of_the_system_count_if_none_is_named() {
    let tls = TlsStage::new(false);
    let endpoint = tls.stage.cluster.endpoint(0);
    // The system is another one for a program that is told so.
    let environment = [("SSL_CERT_FILE", tls.ca_file.to_str().unwrap()), ("TLS_ENDPOINT", &endpoint)];
    alone("tls::claim_by_the_authorities_of_the_system", &environment);
}

#[test]
#[ignore = "run by the test above, with the environment it needs"]
fn claim_by_the_authorities_of_the_system() {
    let endpoints = vec![std::env::var("TLS_ENDPOINT").unwrap()];
    claim(EtcdOptions { endpoints, prefix: PREFIX.to_owned(), ..EtcdOptions::default() }).unwrap();
}

#[test]
fn certificates_that_ended_are_named_and_their_successors_read_without_a_restart() {
    let tls = TlsStage::new(true);
    tls.authority.sign(tls.dir(), "client", LONG_OVER);
    let mut node = Daemon::start(open(tls.options()), announcement(1));
    node.until_error(|why| why.ends_with(NO_TRUST));
    tls.authority.sign(tls.dir(), "client", GOOD);
    node.lease();
    drop(node);
    tls.authority.sign(tls.dir(), "server", LONG_OVER);
    let mut node = Daemon::start(open(tls.options()), announcement(1));
    let why = node.until_error(|_| true);
    assert!(why.contains("invalid peer certificate: certificate expired"), "{why}");
    assert!(why.ends_with("renew the certificate; it is read again at the next try"), "{why}");
    tls.authority.sign(tls.dir(), "server", GOOD);
    node.lease();
}

#[test]
fn a_new_certificate_is_used_at_once_and_a_broken_one_leaves_the_connection_as_it_is() {
    let tls = TlsStage::new(true);
    let store = open(tls.options()).looking_at_files_every(Duration::from_millis(100));
    let mut node = Daemon::start(store, announcement(1));
    node.lease();
    replace(&tls.client.0, "half of a file");
    let told = node.told.len();
    tls.stage.put("10.244.9.0-24", r#"{"PublicIP":"10.0.0.9"}"#);
    node.until("followed", |snapshot| snapshot.peers.len() == 1);
    assert_eq!(node.errors, Vec::<String>::new());
    let connections = || tls.connections();
    let before = connections();
    tls.authority.sign(tls.dir(), "client", GOOD);
    crate::stage::wait_for("connected anew", || connections() > before);
    tls.stage.put("10.244.8.0-24", r#"{"PublicIP":"10.0.0.8"}"#);
    node.until("followed", |snapshot| snapshot.peers.len() == 2);
    assert!(node.told.iter().skip(told).all(|told| told.own.is_some()));
}

#[test]
fn files_that_cannot_be_used_are_named_at_once() {
    let dir = tempfile::TempDir::new().unwrap();
    let (cert, key) = Authority::new("any").sign(dir.path(), "client", GOOD);
    let garbage = dir.path().join("garbage");
    fs::write(&garbage, "garbage").unwrap();
    let https =
        || EtcdOptions { endpoints: vec!["https://127.0.0.1:1".to_owned()], ..EtcdOptions::default() };
    let says =
        |options: EtcdOptions| Etcd::open(options, ByFamily::default()).map(drop).unwrap_err().to_string();
    let missing = dir.path().join("missing");
    assert_eq!(
        says(EtcdOptions { ca_file: Some(missing.clone()), ..https() }),
        format!(
            "{} cannot be used as --etcd-cafile: No such file or directory (os error 2)",
            missing.display()
        )
    );
    assert_eq!(
        says(EtcdOptions { ca_file: Some(garbage.clone()), ..https() }),
        format!(
            "{} cannot be used as --etcd-cafile: it has no line \"BEGIN CERTIFICATE\": expected PEM",
            garbage.display()
        )
    );
    assert_eq!(
        says(EtcdOptions { cert_file: Some(cert.clone()), ..https() }),
        "--etcd-certfile and --etcd-keyfile belong together, but only --etcd-certfile is set: set both or neither"
    );
    let (_, other_key) = Authority::new("other").sign(dir.path(), "other", GOOD);
    let mismatch = says(EtcdOptions { cert_file: Some(cert), key_file: Some(other_key), ..https() });
    assert!(mismatch.starts_with("TLS cannot be spoken with https://127.0.0.1:1: "), "{mismatch}");
    assert!(mismatch.ends_with("--etcd-keyfile is not the key of --etcd-certfile"), "{mismatch}");
    // As in Go, files that no endpoint needs are not looked at.
    let endpoints = vec!["http://127.0.0.1:1".to_owned()];
    Etcd::open(
        EtcdOptions { endpoints, ca_file: Some(missing), key_file: Some(key), ..https() },
        ByFamily::default(),
    )
    .unwrap();
}

#[test]
fn endpoints_that_cannot_be_any_are_named_at_once_without_their_secrets() {
    let says = |endpoint: &str| {
        let options = EtcdOptions { endpoints: vec![endpoint.to_owned()], ..EtcdOptions::default() };
        Etcd::open(options, ByFamily::default()).map(drop).unwrap_err().to_string()
    };
    let expected = "write http://HOST:PORT or https://HOST:PORT";
    for wrong in ["", "http://", "ftp://127.0.0.1:2379", "unix:///run/etcd", "http://a b"] {
        let said = says(wrong);
        assert!(said.contains(expected) && said.contains(wrong), "{said}");
    }
    let said = says("https://root:hunter2@127.0.0.1:2379");
    assert!(!said.contains("hunter2") && said.contains("--etcd-username"), "{said}");
    let none = Etcd::open(EtcdOptions::default(), ByFamily::default()).map(drop).unwrap_err().to_string();
    assert_eq!(none, "no etcd endpoint is named: set --etcd-endpoints");
    let bare = EtcdOptions { endpoints: vec!["127.0.0.1:2379".to_owned()], ..EtcdOptions::default() };
    Etcd::open(bare, ByFamily::default()).unwrap();
}
