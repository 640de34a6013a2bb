//! podman 4 with its CNI backend.

use std::path::PathBuf;

use conformance_tests::{Site, Stage, scenarios};
use serde_json::Value;

use super::{answers, bridge, busybox, kube_flannel, leaves_nothing, node};

scenarios! { peers "flannel":
    &["0.4.0"] =>
        podman_runs_containers_on_a_bridge,
        podman_runs_containers_on_flannel,
        podman_starts_a_container_again_after_a_crash;
}

fn podman(site: &Site, words: &str) -> String {
    site.sh(&format!("TMPDIR=/tmp podman {words}"))
}

fn run(site: &Site, name: &str, options: &str) {
    let parent = site.name();
    let options = format!("--network cbr0 --cgroup-parent /{parent} --pid host --name {name} {options}");
    podman(site, &format!("run -d {options} box:1 /bin/busybox sleep 100000"));
}

fn sandbox(site: &Site, name: &str) -> PathBuf {
    podman(site, &format!("inspect -f '{{{{.NetworkSettings.SandboxKey}}}}' {name}")).trim().into()
}

/// From the container's namespace: a container may not send such packets itself.
fn ping(site: &Site, name: &str, to: &str) {
    site.sh(&format!("nsenter --net={} ping -c 1 -W 2 {to}", sandbox(site, name).display()));
}

fn with_podman(stage: &Stage, network: &Value) -> Site {
    let site = node(network);
    site.write("/etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#);
    let storage =
        "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers\"\ngraphroot = \"/var/lib/containers\"\n";
    site.write("/etc/containers/storage.conf", storage);
    let network =
        format!("[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [{:?}]\n", stage.plugins.folder);
    let engine = "[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"none\"\n";
    site.write(
        "/etc/containers/containers.conf",
        network + engine + "[containers]\nlog_driver = \"k8s-file\"\n",
    );
    busybox(&site);
    site.sh("tar -C /tmp/root -c . | TMPDIR=/tmp podman import -q - box:1");
    site
}

fn life(stage: &Stage, network: &Value) {
    let site = with_podman(stage, network);
    run(&site, "one", "-p 8080:80 -p 8080:80/udp");
    run(&site, "two", "");
    ping(&site, "two", "10.244.3.2");
    ping(&site, "one", "192.0.2.2");
    answers(&site, &sandbox(&site, "one"));
    podman(&site, "restart -t 0 one");
    answers(&site, &sandbox(&site, "one"));
    podman(&site, "rm -f -t 0 one two");
    leaves_nothing(&site);
}

fn podman_runs_containers_on_a_bridge(stage: &Stage) {
    life(stage, &bridge(stage.version));
}

fn podman_runs_containers_on_flannel(stage: &Stage) {
    life(stage, &kube_flannel(stage.version));
}

fn podman_starts_a_container_again_after_a_crash(stage: &Stage) {
    let site = with_podman(stage, &kube_flannel(stage.version));
    run(&site, "one", "-p 8080:80 -p 8080:80/udp");
    podman(&site, "kill -s KILL one");
    podman(&site, "start one");
    answers(&site, &sandbox(&site, "one"));
    podman(&site, "rm -f -t 0 one");
    leaves_nothing(&site);
}
