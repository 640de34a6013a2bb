//! Scenes with a packet on the wire: one ping from worker1's pod, caught on worker1's cable and explained.

use flannel_lab::packet::{Layer, decode};
use flannel_lab::{Capture, Lab, PING};

use super::overlay::{PING_LIMIT, first_pod};
use super::stage::Stage;
use super::wire::{Names, explain, overhead};
use crate::leases::leases_of;
use flannel_screen::Ink;

/// Lets worker1's pod ping a pod of another node and shows the packet between them.
pub fn show_ping(stage: &mut Stage<'_>, lab: &Lab, to: &str) -> anyhow::Result<()> {
    let worker1 = lab.node("worker1")?;
    let (from, target) = (first_pod(worker1)?, first_pod(lab.node(to)?)?);
    let capture = Capture::start(worker1.switch(), "worker1", PING, PING_LIMIT)?;
    from.wait_ping(target.address(), PING_LIMIT)?;
    let frame = capture.frame()?;
    let layers = decode(&frame)?;
    stage.say(&format!("\nworker1 → {to}, caught on worker1's cable, {} bytes:", frame.len()))?;
    let names = Names::of(lab, &leases_of(lab)?)?;
    for line in explain(&layers, &names) {
        let edge = if line.is_outer { stage.paint(Ink::Key, "┃ outer") } else { "│ pod's".to_owned() };
        stage.say(&format!("  {edge}  {:8}  {:41}  {}", line.kind, line.fields, line.words))?;
    }
    conclude(stage, &layers, worker1.rack() == lab.node(to)?.rack())
}

fn conclude(stage: &mut Stage<'_>, layers: &[Layer], is_same_rack: bool) -> anyhow::Result<()> {
    let tunnel = overhead(layers);
    if tunnel == 0 {
        let told =
            "  No outer header: the pods' own addresses are on the wire, and nothing is added to the packet.";
        return Ok(stage.good(told)?);
    }
    stage.good(&format!(
        "  The outer header costs {tunnel} bytes: of 1500, {} are left for pods (FLANNEL_MTU).",
        1500 - tunnel
    ))?;
    let told = if is_same_rack {
        "  The network between the nodes sees only nodes that send UDP to each other."
    } else {
        "  Routers on the way see only nodes that send UDP to each other: they need not know any pod."
    };
    Ok(stage.good(told)?)
}
