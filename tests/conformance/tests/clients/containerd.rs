//! containerd 1.6, asked for pods as kubelet does it: by CRI, which is gRPC, which curl can speak.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use conformance_tests::{Site, Stage, scenarios, wait_until};
use serde_json::json;

use super::{answers, bridge, busybox, kube_flannel, leaves_nothing, node};

scenarios! { peers "flannel":
    &["0.3.1"] => containerd_runs_pods_on_flannel, containerd_removes_a_pod_whose_namespace_is_gone;
    &["0.4.0", "1.0.0"] => containerd_runs_pods_on_a_bridge;
}

const SOCKET: &str = "/run/containerd/containerd.sock";

/// containerd on a node, until it is dropped.
struct Containerd {
    site: Site,
    process: Child,
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Containerd {
    fn start(stage: &Stage, site: Site) -> Self {
        let config = format!(
            "version = 2\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n\
             [grpc]\naddress = \"{SOCKET}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"pause:1\"\ndisable_apparmor = true\n\
             restrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = {:?}\nconf_dir = \"/etc/cni/net.d\"\n",
            stage.plugins.folder
        );
        site.write("/etc/containerd.toml", config);
        let mut command = site.command("sh");
        command.args(["-c", "exec containerd --config /etc/containerd.toml > /run/containerd.log 2>&1"]);
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        let containerd = Self { site, process };
        wait_until("containerd answers", || containerd.site.try_sh("ctr version").status.success());
        wait_until("its runtime service answers", || containerd.call("Version", &[]).is_ok());
        pause_image(&containerd.site);
        containerd
    }

    /// Calls a method of the runtime service; an error is what containerd says of it.
    fn call(&self, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut command = self.site.command("curl");
        command.args([
            "-sS",
            "--http2-prior-knowledge",
            "--unix-socket",
            SOCKET,
            "-D",
            "/run/head",
            "--data-binary",
            "@-",
        ]);
        command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
        command.arg(format!("http://localhost/runtime.v1.RuntimeService/{method}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let framed = [&[0][..], &length, message].concat();
        child.stdin.take().unwrap().write_all(&framed).unwrap();
        let output = child.wait_with_output().unwrap();
        let head = self.site.read("/run/head").unwrap_or_default();
        if head.contains("grpc-status: 0") {
            Ok(output.stdout.get(5..).unwrap_or_default().to_vec())
        } else {
            Err(format!("{head}{}", output.status))
        }
    }

    /// Runs a pod with port 8080 of the node for its port 80, and gives its id.
    fn run_pod(&self, name: &str) -> String {
        let metadata = [text(1, name), text(2, name), text(3, "default")].concat();
        let tcp = [number(2, 80), number(3, 8080)].concat();
        let udp = [number(1, 1), number(2, 80), number(3, 8080)].concat();
        let cgroup = text(1, &format!("/{}", self.site.name()));
        let config =
            [bytes(1, &metadata), text(3, "/run/log"), bytes(5, &tcp), bytes(5, &udp), bytes(8, &cgroup)]
                .concat();
        let answer = self.call("RunPodSandbox", &bytes(1, &config)).unwrap();
        String::from_utf8(answer[2..].to_vec()).unwrap()
    }

    /// Stops and removes a pod, twice, as kubelet sometimes does.
    fn remove_pod(&self, id: &str) {
        for method in ["StopPodSandbox", "StopPodSandbox", "RemovePodSandbox", "RemovePodSandbox"] {
            self.call(method, &text(1, id)).unwrap();
        }
    }

    fn sandbox(&self) -> PathBuf {
        let names = self.site.sh("cd /run/netns && ls -d cni-*");
        Path::new("/run/netns").join(names.trim())
    }
}

/// An image of one program that sleeps, for containerd to make pods of.
fn pause_image(site: &Site) {
    busybox(site);
    site.sh("tar -C /tmp/root -cf /tmp/layer.tar .");
    let layer = site.sh("sha256sum /tmp/layer.tar");
    let layer = format!("sha256:{}", layer.split(' ').next().unwrap());
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer]},
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "100000"]}});
    site.write("/tmp/config.json", config.to_string());
    let manifest = json!([{"Config": "config.json", "RepoTags": ["docker.io/library/pause:1"], "Layers": ["layer.tar"]}]);
    site.write("/tmp/manifest.json", manifest.to_string());
    site.sh("cd /tmp && tar -cf pause.tar manifest.json config.json layer.tar && ctr -n k8s.io images import pause.tar");
}

/// A field of a message: its number with how it is written, the length, and the bytes.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2][..], &varint(value.len()), value].concat()
}

fn text(field: u8, value: &str) -> Vec<u8> {
    bytes(field, value.as_bytes())
}

fn number(field: u8, value: usize) -> Vec<u8> {
    [&[field << 3][..], &varint(value)].concat()
}

/// Seven bits in each byte, the lowest first; the eighth says that there are more.
fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(u8::try_from(value & 127).unwrap() | 128);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn life(stage: &Stage, site: Site) {
    let containerd = Containerd::start(stage, site);
    for name in ["one", "two"] {
        let id = containerd.run_pod(name);
        let sandbox = containerd.sandbox();
        let lo =
            containerd.site.sh(&format!("nsenter --net={} ip -o addr show dev lo up", sandbox.display()));
        assert!(lo.contains("127.0.0.1/8"), "loopback is up: {lo}");
        answers(&containerd.site, &sandbox);
        containerd.remove_pod(&id);
        leaves_nothing(&containerd.site);
    }
}

fn containerd_runs_pods_on_flannel(stage: &Stage) {
    life(stage, node(&kube_flannel(stage.version)));
}

fn containerd_runs_pods_on_a_bridge(stage: &Stage) {
    life(stage, node(&bridge(stage.version)));
}

fn containerd_removes_a_pod_whose_namespace_is_gone(stage: &Stage) {
    let containerd = Containerd::start(stage, node(&kube_flannel(stage.version)));
    let id = containerd.run_pod("one");
    let sandbox = containerd.sandbox();
    containerd.site.sh(&format!("umount {0} && rm {0}", sandbox.display()));
    containerd.remove_pod(&id);
    wait_until("the pair goes with the last process", || containerd.site.devices(None).len() == 2);
    leaves_nothing(&containerd.site);
}
