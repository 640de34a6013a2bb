//! The verb `demo`: flannel explained by a cluster that works, is broken, and repairs itself. Three labs in
//! turn, one for each backend; nothing is left of them.

pub mod draw;
mod overlay;
mod plugins;
mod repair;
mod stage;
mod wire;

use std::io::Write;
use std::time::{Duration, Instant};

use flannel_lab::{Backend, Families, Interrupt, Lab, LabOptions, Topology, lab_processes, unique_name};

use crate::leases::leases_of;
use overlay::first_pod;
use stage::Stage;

/// Shows everything, then takes everything down.
pub fn run(interrupt: &Interrupt, out: &mut dyn Write) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut stage = Stage::new(out, interrupt);
    stage.scene("The cluster")?;
    stage.say(
        "Four nodes in two racks. Each is a process with a network, files and processes of its own; cables,\n\
         switches and routers are real Linux ones. Nodes of one rack share an Ethernet; between racks, routers\n\
         know the nodes but no pods. Flannel's task: every pod reaches every pod.\n",
    )?;
    stage.say(&draw::picture(&Topology::default()))?;
    let names = [vxlan(&mut stage)?, direct_routing(&mut stage)?, host_gw(&mut stage)?];
    farewell(&mut stage, &names, start.elapsed())
}

fn up(stage: &mut Stage<'_>, backend: Backend) -> anyhow::Result<Lab> {
    stage.interrupt.check()?;
    let start = Instant::now();
    let lab = Lab::up(LabOptions {
        name: unique_name("demo"),
        net_conf: backend.net_conf(Families::V4),
        interrupt: stage.interrupt.clone(),
        ..LabOptions::default()
    })?;
    let took = start.elapsed().as_secs_f32();
    stage.good(&format!("✓ four nodes up in {took:.1} s, flanneld ready on each, backend {backend}"))?;
    Ok(lab)
}

fn vxlan(stage: &mut Stage<'_>) -> anyhow::Result<String> {
    let lab = up(stage, Backend::Vxlan)?;
    let leases = leases_of(&lab)?;
    overlay::leases(stage, &leases)?;
    overlay::kernels(stage, &lab, &leases)?;
    plugins::show_add(stage, &lab)?;
    overlay::pings(stage, &lab)?;
    stage.scene("On the wire: vxlan")?;
    stage.say("The pod's whole frame travels inside a UDP packet from node to node.")?;
    wire::show_ping(stage, &lab, "worker3")?;
    repair::faults(stage, &lab)?;
    repair::restart(stage, &lab)?;
    repair::reboot(stage, &lab)?;
    down(lab)
}

fn direct_routing(stage: &mut Stage<'_>) -> anyhow::Result<String> {
    stage.scene("On the wire: vxlan with DirectRouting")?;
    let lab = up(stage, Backend::VxlanDirectRouting)?;
    stage.say(
        "Within a rack a plain route to the other node is enough; the tunnel is for other racks only.",
    )?;
    wire::show_ping(stage, &lab, "worker2")?;
    wire::show_ping(stage, &lab, "worker3")?;
    down(lab)
}

fn host_gw(stage: &mut Stage<'_>) -> anyhow::Result<String> {
    stage.scene("On the wire: host-gw")?;
    let lab = up(stage, Backend::HostGw)?;
    stage.say("Plain routes and no tunnel at all: fastest, but only for nodes that share an Ethernet.")?;
    wire::show_ping(stage, &lab, "worker2")?;
    let (from, far) = (first_pod(lab.node("worker1")?)?, first_pod(lab.node("worker3")?)?.address());
    let told = match from.ping(far) {
        Ok(_) => anyhow::bail!("bug: host-gw reached {far} in another rack"),
        Err(_) => format!(
            "  ✗ {far} on worker3 is in another rack: no answer. Its router knows no pods; that is what vxlan is for."
        ),
    };
    stage.bad(&told)?;
    down(lab)
}

fn down(lab: Lab) -> anyhow::Result<String> {
    let name = lab.name().to_owned();
    lab.down()?;
    Ok(name)
}

fn farewell(stage: &mut Stage<'_>, names: &[String], took: Duration) -> anyhow::Result<()> {
    stage.scene("All taken down")?;
    let left = lab_processes().iter().filter(|process| names.contains(&process.lab)).count();
    let folders = Lab::names().iter().filter(|name| names.contains(name)).count();
    let seconds = took.as_secs_f32();
    stage.say(&format!("{left} processes and {folders} folders are left; the host's network was never touched. {seconds:.1} s in all."))?;
    Ok(stage.say("Your own cluster: flannelctl lab up, then status, ping, break, heal, exec, down.")?)
}
