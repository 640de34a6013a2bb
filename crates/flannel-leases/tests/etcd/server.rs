//! A real etcd of one or more members, each in a directory of its own, on ports of its own; gone with the test.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Some members that make one cluster.
pub struct Cluster {
    pub dir: TempDir,
    pub members: Vec<Member>,
    /// What every member is told beside the usual.
    pub flags: Vec<String>,
    scheme: &'static str,
    /// What etcdctl is told, for it to be let in.
    pub ctl_flags: Vec<String>,
}

pub struct Member {
    pub port: u16,
    peer_port: u16,
    name: String,
    child: Option<Child>,
}

impl Cluster {
    pub fn of(count: usize) -> Self {
        let mut cluster = Self::prepared(count, "http");
        cluster.start_all();
        cluster
    }

    pub fn prepared(count: usize, scheme: &'static str) -> Self {
        let ports = free_ports(count * 2);
        let members = (0..count)
            .map(|n| Member {
                port: ports[n],
                peer_port: ports[count + n],
                name: format!("m{n}"),
                child: None,
            })
            .collect();
        // In memory, where there is such a place: etcd waits for the disk after every step.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        Self { dir, members, flags: Vec::new(), scheme, ctl_flags: Vec::new() }
    }

    pub fn start_all(&mut self) {
        for n in 0..self.members.len() {
            self.start(n);
        }
        for n in 0..self.members.len() {
            self.wait_until_healthy(n);
        }
    }

    pub fn endpoint(&self, n: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[n].port)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|n| self.endpoint(n)).collect()
    }

    pub fn data_dir(&self, n: usize) -> PathBuf {
        self.dir.path().join(&self.members[n].name)
    }

    pub fn initial_cluster(&self) -> String {
        let members = self.members.iter();
        let members = members.map(|member| format!("{}=http://127.0.0.1:{}", member.name, member.peer_port));
        members.collect::<Vec<_>>().join(",")
    }

    pub fn peer_url(&self, n: usize) -> String {
        format!("http://127.0.0.1:{}", self.members[n].peer_port)
    }

    pub fn start(&mut self, n: usize) {
        let log = self.dir.path().join(format!("{}.log", self.members[n].name));
        let log = File::options().append(true).create(true).open(log).unwrap();
        let child = Command::new(etcd())
            .arg("--name")
            .arg(&self.members[n].name)
            .arg("--data-dir")
            .arg(self.data_dir(n))
            .args(["--listen-client-urls", &self.endpoint(n), "--advertise-client-urls", &self.endpoint(n)])
            .args([
                "--listen-peer-urls",
                &self.peer_url(n),
                "--initial-advertise-peer-urls",
                &self.peer_url(n),
            ])
            .args(["--initial-cluster", &self.initial_cluster(), "--logger", "zap"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.flags)
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.members[n].child = Some(child);
    }

    pub fn wait_until_healthy(&self, n: usize) {
        let limit = Instant::now() + Duration::from_secs(30);
        while self.try_ctl(&[n], &["endpoint", "health"]).is_none() {
            assert!(Instant::now() < limit, "etcd did not start:\n{}", self.log(n));
            std::thread::yield_now();
        }
    }

    pub fn log(&self, n: usize) -> String {
        fs::read_to_string(self.dir.path().join(format!("{}.log", self.members[n].name))).unwrap_or_default()
    }

    /// Sends a signal to a member.
    pub fn signal(&self, n: usize, signal: &str) {
        let pid = self.members[n].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Kills a member without a warning.
    pub fn kill(&mut self, n: usize) {
        if let Some(mut child) = self.members[n].child.take() {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    /// Runs etcdctl on the first member, and gives what it prints.
    pub fn ctl(&self, words: &[&str]) -> String {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.try_ctl(&all, words).unwrap_or_else(|| panic!("etcdctl {words:?} failed"))
    }

    /// The same, with something to read.
    pub fn ctl_with_input(&self, words: &[&str], input: &str) {
        let mut child = Command::new("etcdctl")
            .args(["--endpoints", &self.endpoint(0)])
            .args(&self.ctl_flags)
            .args(words)
            .env("ETCDCTL_API", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    pub fn try_ctl(&self, members: &[usize], words: &[&str]) -> Option<String> {
        let endpoints: Vec<String> = members.iter().map(|n| self.endpoint(*n)).collect();
        let output = Command::new("etcdctl")
            .args(["--endpoints", &endpoints.join(",")])
            .args(&self.ctl_flags)
            .args(words)
            .env("ETCDCTL_API", "3")
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let all: Vec<usize> = (0..self.members.len()).collect();
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            let leads = |n: &usize| {
                let status = self.try_ctl(&[*n], &["endpoint", "status"]);
                status.is_some_and(|status| status.split(", ").nth(4) == Some("true"))
            };
            if let Some(leader) = all.iter().copied().find(leads) {
                return leader;
            }
            assert!(Instant::now() < limit, "nobody leads");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for n in 0..self.members.len() {
            if std::thread::panicking() {
                let log = self.log(n);
                let tail = log.lines().rev().take(15).collect::<Vec<_>>();
                eprintln!("etcd {n}:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
            self.kill(n);
        }
    }
}

/// The program to test with.
pub fn etcd() -> PathBuf {
    std::env::var_os("ETCD").map_or_else(|| Path::new("etcd").to_owned(), PathBuf::from)
}

/// Ports that nobody uses, and that the kernel gives to no outgoing connection while a member is down.
fn free_ports(count: usize) -> Vec<u16> {
    let mut listeners = Vec::new();
    while listeners.len() < count {
        let number = RandomState::new().hash_one(listeners.len());
        let port = 10_000 + u16::try_from(number % 20_000).unwrap();
        listeners.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
