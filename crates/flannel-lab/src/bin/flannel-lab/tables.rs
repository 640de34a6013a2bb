//! The tables of a lab: its nodes, its leases, and who reaches whom.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use comfy_table::{Cell, Table, presets};
use flannel_lab::{Lab, LabError, Node, Pod};
use flannel_plan::lease::Lease;

use crate::leases::{leases_of, public_shown, subnets_shown, vtep};
use flannel_screen::{Ink, Screen, cell};

fn bordered<T: ToString>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.into_iter().map(|cell| cell.to_string()));
    Screen::of_stdout().style(&mut table);
    table
}

/// Every node with its state, its lease and its pods.
pub fn status(lab: &Lab) -> anyhow::Result<Table> {
    let leases: BTreeMap<_, _> =
        leases_of(lab)?.into_iter().map(|lease| (lease.owner.clone(), lease)).collect();
    let mut table = bordered(["node", "rack", "address", "pid", "flanneld", "pod subnet", "pods"]);
    for node in lab.nodes() {
        let pid = node.pid().map_or_else(|| cell(Ink::Bad, "off"), Cell::new);
        let subnets = leases.get(node.name()).map_or_else(|| "no lease".to_owned(), subnets_shown);
        let names = [node.name(), node.rack(), &node.v4().to_string()].map(Cell::new);
        let facts = [pid, readiness(node), Cell::new(subnets), Cell::new(pods_of(node))];
        table.add_row(names.into_iter().chain(facts));
    }
    Ok(table)
}

/// In one or two words, and why not.
fn readiness(node: &Node) -> Cell {
    match node.readiness() {
        _ if node.pid().is_none() => Cell::new(""),
        Ok(()) => cell(Ink::Good, "ready"),
        Err(why) => cell(Ink::Bad, why),
    }
}

fn pods_of(node: &Node) -> String {
    let pods = node.pods().unwrap_or_default();
    pods.iter().map(|pod| format!("{} {}", pod.name(), pod.address())).collect::<Vec<_>>().join("\n")
}

/// Who holds which subnet, and how it is reached.
pub fn leases(leases: &[Lease]) -> Table {
    let mut table = bordered(["node", "reached at", "pod subnet", "MAC of its tunnel"]);
    for lease in leases {
        let vtep = vtep(lease).map_or_else(|| "none".to_owned(), |mac| mac.to_string());
        table.add_row([&lease.owner, &public_shown(lease), &subnets_shown(lease), &vtep]);
    }
    table
}

/// A ping from every pod to every address of every pod, and how many had no answer.
pub fn pings(lab: &Lab) -> Result<(Table, usize), LabError> {
    let pods = lab.pods()?;
    let addresses: Vec<_> = pods.iter().flat_map(|pod| pod.addresses()).collect();
    let shown = |pod: &Pod<'_>| format!("{}/{}", pod.node().name(), pod.name());
    let columns =
        pods.iter().flat_map(|pod| pod.addresses().map(|address| format!("{}\n{address}", shown(pod))));
    let mut table = bordered(std::iter::once("from \\ to".to_owned()).chain(columns));
    let mut lost = 0;
    for (from, answers) in pods.iter().zip(all_pings(&pods, &addresses)) {
        lost += answers.iter().filter(|answer| answer.is_none()).count();
        let cells = answers.iter().map(|answer| answered(*answer));
        table.add_row(std::iter::once(Cell::new(shown(from))).chain(cells));
    }
    Ok((table, lost))
}

fn answered(answer: Option<Duration>) -> Cell {
    match answer {
        Some(took) => cell(Ink::Good, format!("✓ {:.2} ms", took.as_secs_f64() * 1000.0)),
        None => cell(Ink::Bad, "✗"),
    }
}

/// One thread for each pod: an absent peer costs a second of waiting.
fn all_pings(pods: &[Pod<'_>], addresses: &[IpAddr]) -> Vec<Vec<Option<Duration>>> {
    let from = |pod: &Pod<'_>| addresses.iter().map(|address| pod.ping(*address).ok()).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = pods.iter().map(|pod| scope.spawn(move || from(pod))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
