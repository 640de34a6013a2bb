//! The scene with the CNI plugins: what a node is told to do for a pod, and what they answer.

use flannel_cni::runtime::Record;
use flannel_lab::{Lab, Node};
use serde_json::Value;

use super::stage::Stage;
use flannel_screen::Ink;

/// Adds a second pod to worker1 and shows what the plugins made of it.
pub fn show_add(stage: &mut Stage<'_>, lab: &Lab) -> anyhow::Result<()> {
    stage.scene("Plugins: how a pod gets its network")?;
    stage.say(
        "For every pod, the container runtime of a node runs the CNI plugins that the node's conflist names.",
    )?;
    let worker1 = lab.node("worker1")?;
    let network = worker1.network()?;
    stage.say(&format!("\n/etc/cni/net.d/10-flannel.conflist, network {}:", network.name))?;
    for plugin in &network.plugins {
        stage.say(&format!("  {}", Value::Object(plugin.config.clone())))?;
    }
    stage.say(
        "\nflannel reads the node's subnet and MTU, which flanneld wrote to /run/flannel/subnet.env, and hands\n\
         them on: host-local picks a free address, bridge lays a cable from the pod to cni0. portmap opens\n\
         host ports where a pod wants some.",
    )?;
    let pod = worker1.add_pod("pod2")?;
    stage.say(&format!("\nADD {} on worker1 is answered with:", stage.paint(Ink::Key, pod.name())))?;
    for line in answer(worker1, pod.name())? {
        stage.good(&format!("  {line}"))?;
    }
    Ok(())
}

/// What the plugins answered for a pod, as its runtime remembers it.
fn answer(node: &Node, pod: &str) -> anyhow::Result<Vec<String>> {
    let records = node.runtime()?.records()?;
    let is_asked = |record: &Record| record.container.id == pod && record.container.ifname == "eth0";
    let result = records.into_iter().find(is_asked).and_then(|record| record.result);
    let mut result = result.ok_or_else(|| anyhow::anyhow!("bug: no record of {pod}"))?;
    let parts = ["interfaces", "ips", "routes"].map(|key| (key, result.remove(key).unwrap_or_default()));
    let lines = parts.iter().flat_map(|(key, part)| {
        part.as_array().into_iter().flatten().map(move |item| format!("{key:10}  {item}"))
    });
    Ok(lines.collect())
}
