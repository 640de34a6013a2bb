//! A real API server with an etcd of its own, on ports of its own, in a directory of its own; gone with the test.
//!
//! The programs are those of `make peers`: `KUBE_PEERS` names their folder, else it is target/peers/bin.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use serde_json::Value;
use tempfile::TempDir;

pub const ADMIN: &str = "planted-secret-token-of-admin";
pub const FLANNEL: &str = "planted-secret-token-of-flannel";
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const START: Duration = Duration::from_secs(90);

/// Notes what flannel asks, with the bodies, and nothing else.
const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
  users: ["system:serviceaccount:kube-flannel:flannel"]
- level: None
"#;

/// An API server and its etcd.
pub struct Cluster {
    pub dir: TempDir,
    pub port: u16,
    etcd_port: u16,
    etcd: Option<Running>,
    pub server: Option<Running>,
    controllers: Option<Running>,
    issuer: Issuer<'static, KeyPair>,
}

impl Cluster {
    /// Starts both, with what flannel's own manifest allows flannel.
    pub fn start() -> Self {
        let [port, etcd_port] = free_ports();
        let dir = TempDir::new().unwrap();
        let issuer = authority(dir.path());
        let mut cluster = Self { dir, port, etcd_port, etcd: None, server: None, controllers: None, issuer };
        cluster.write_files();
        cluster.start_etcd();
        cluster.start_server();
        for object in [cluster_role(), cluster_role_binding()] {
            cluster.api("POST", object["path"].as_str().unwrap(), Some(&object["object"]));
        }
        cluster
    }

    fn write_files(&self) {
        let tokens = format!(
            "{ADMIN},admin,1,system:masters\n{FLANNEL},system:serviceaccount:kube-flannel:flannel,2\n"
        );
        self.write("tokens.csv", &tokens);
        self.write("audit.yaml", AUDIT);
        let service_account = KeyPair::generate().unwrap();
        self.write("service-account.key", &service_account.serialize_pem());
        self.write("service-account.pub", &service_account.public_key_pem());
        let mut server = CertificateParams::new(["localhost".to_owned()]).unwrap();
        server.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", server);
        self.client_certificate("flannel-by-certificate");
    }

    /// A client certificate for a user, in NAME.crt and NAME.key.
    pub fn client_certificate(&self, user: &str) {
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, user);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, client);
    }

    fn sign(&self, name: &str, params: CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn start_etcd(&mut self) {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let mut etcd = Command::new(program("etcd"));
        etcd.arg("--data-dir").arg(self.path("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync"]);
        self.etcd = Some(self.run("etcd", etcd));
    }

    pub fn start_server(&mut self) {
        let mut server = Command::new(program("kube-apiserver"));
        let files = [
            ("--tls-cert-file", "server.crt"),
            ("--tls-private-key-file", "server.key"),
            ("--client-ca-file", "ca.crt"),
            ("--token-auth-file", "tokens.csv"),
            ("--service-account-key-file", "service-account.pub"),
            ("--service-account-signing-key-file", "service-account.key"),
            ("--cert-dir", "certificates"),
            ("--audit-policy-file", "audit.yaml"),
            ("--audit-log-path", "audit.log"),
        ];
        server.args(files.map(|(flag, name)| format!("{flag}={}", self.path(name).display())));
        server.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
        ]);
        server.args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
        ]);
        self.server = Some(self.run("kube-apiserver", server));
        self.wait_until("is ready", || self.try_api("GET", "/readyz", None, ADMIN).is_some());
    }

    /// Kills the API server; its etcd stays.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Starts the part of the controller-manager that gives nodes their podCIDRs.
    pub fn start_controllers(&mut self, flags: &[&str]) {
        let kubeconfig = self.kubeconfig("controllers.yaml", &format!("token: {ADMIN}"));
        let mut controllers = Command::new(program("kube-controller-manager"));
        controllers.arg(format!("--kubeconfig={}", kubeconfig.display()));
        controllers.args(["--secure-port=0", "--leader-elect=false", "--controllers=node-ipam-controller"]);
        controllers.args(flags);
        self.controllers = Some(self.run("kube-controller-manager", controllers));
    }

    /// A kubeconfig of a user with these credentials.
    pub fn kubeconfig(&self, name: &str, credentials: &str) -> PathBuf {
        let (url, ca) = (self.url(), self.path("ca.crt"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
             contexts:\n- name: here\n  context: {{cluster: here, user: me}}\n\
             clusters:\n- name: here\n  cluster:\n    server: {url}\n    certificate-authority: {}\n\
             users:\n- name: me\n  user:\n    {credentials}\n",
            ca.display()
        );
        self.write(name, &text)
    }

    fn run(&self, name: &str, command: Command) -> Running {
        let log = File::options().append(true).create(true).open(self.path(&format!("{name}.log"))).unwrap();
        Running::start(&command, log)
    }

    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let limit = Instant::now() + START;
        while !is_so() {
            let log = || self.log("kube-apiserver");
            assert!(Instant::now() < limit, "the API server never {what}:\n{}", log());
            assert!(self.server.as_ref().is_some_and(Running::lives), "the API server has ended:\n{}", log());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    pub fn log(&self, name: &str) -> String {
        let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        log.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// All that flannel has asked so far: the verb, the path, and the body or nothing.
    pub fn asked_by_flannel(&self) -> Vec<(String, String, Value)> {
        let log = fs::read_to_string(self.path("audit.log")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines
            .map(|line| (text(&line["verb"]), text(&line["requestURI"]), line["requestObject"].clone()))
            .collect()
    }

    /// Asks the API server as its administrator, by curl, which shares no code with what is tested.
    pub fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.curl(method, path, body, ADMIN);
        let text = String::from_utf8_lossy(&answer.stdout);
        let complaint = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{method} {path}: {complaint}{text}");
        serde_json::from_str(&text).unwrap_or_else(|wrong| panic!("{method} {path}: {wrong} in {text}"))
    }

    /// Whether flannel may list Events by now: rights take a moment.
    pub fn may_list_events(&self) -> bool {
        self.try_api("GET", "/api/v1/events", None, FLANNEL).is_some()
    }

    fn try_api(&self, method: &str, path: &str, body: Option<&Value>, token: &str) -> Option<String> {
        let answer = self.curl(method, path, body, token);
        answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    fn curl(&self, method: &str, path: &str, body: Option<&Value>, token: &str) -> Output {
        let form = match method {
            "PATCH" => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--globoff", "--max-time", "20"]);
        curl.arg("--cacert").arg(self.path("ca.crt")).args(["--request", method]);
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        curl.args(["--header", &format!("Content-Type: {form}")]);
        if let Some(body) = body {
            curl.args(["--data-binary", &body.to_string()]);
        }
        curl.arg(format!("{}{path}", self.url())).output().expect("curl should be installed")
    }
}

/// A program that is killed with whoever holds it, and with this process.
pub struct Running {
    pub child: Child,
}

impl Running {
    fn start(command: &Command, log: File) -> Self {
        let mut guarded = Command::new("setpriv");
        guarded.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        guarded.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let (tell, told) = mpsc::channel();
        // The signal comes when the *thread* that started a child ends, so that thread never does.
        std::thread::spawn(move || {
            tell.send(guarded.spawn().unwrap()).unwrap();
            loop {
                std::thread::park();
            }
        });
        Self { child: told.recv().unwrap() }
    }

    fn lives(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.child.id())).is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin");
    let folder = std::env::var_os("KUBE_PEERS").map_or(here, PathBuf::from);
    let program = folder.join(name);
    assert!(program.exists(), "{} is missing: `make peers` builds it", program.display());
    program
}

fn authority(dir: &Path) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(dir.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// What flannel's own manifest allows, and no more.
fn cluster_role() -> Value {
    serde_json::json!({
        "path": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "object": {
            "metadata": { "name": "flannel" },
            "rules": [
                { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
            ],
        },
    })
}

fn cluster_role_binding() -> Value {
    serde_json::json!({
        "path": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "object": {
            "metadata": { "name": "flannel" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "flannel" },
            "subjects": [
                { "kind": "ServiceAccount", "name": "flannel", "namespace": "kube-flannel" },
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "flannel-by-certificate" },
            ],
        },
    })
}
