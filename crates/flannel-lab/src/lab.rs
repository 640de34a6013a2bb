//! A whole lab: up, found again, down.
//!
//! Takes [`LabOptions`], gives a [`Lab`] of running nodes. Its folder is made with one atomic step, which is also
//! the lock on its name; all else is found by the variable FLANNEL_LAB of its processes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Role};
use crate::node::{Daemon, Node};
use crate::options::{Flanneld, LabOptions};
use crate::owner::Owner;
use crate::pod::{Pod, check_name};
use crate::process::{processes_of, refuse_inside};
use crate::store::Store;
use crate::topology::{NodeSpec, Topology};
use crate::wait::Interrupt;
use crate::{LabError, Result, process, program, wiring};

/// How long flanneld may take on a busy machine until it is ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a booted machine may stay unseen.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(60);
const LONGEST_NAME: usize = 40;

/// A running lab. Dropping it takes it down, unless it was found by [`Lab::open`] or left by [`Lab::keep`].
#[derive(Debug)]
pub struct Lab {
    name: String,
    folder: PathBuf,
    record: Record,
    nodes: Vec<Node>,
    /// What the lease store runs on; none for a folder.
    servers: Vec<Node>,
    others: Vec<Arc<Machine>>,
    pub(crate) interrupt: Interrupt,
    /// Present while the lab's life is bound to this value's.
    owner: Option<Owner>,
}

/// What a later program needs to find the lab again.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    topology: Topology,
    #[serde(default)]
    store: Store,
    flanneld_args: Vec<String>,
    #[serde(default)]
    flanneld_env: Vec<(String, String)>,
}

/// The folder of all labs: `$FLANNEL_LAB_DIR`, or /run/flannel-lab.
pub(crate) fn labs_folder() -> PathBuf {
    std::env::var_os("FLANNEL_LAB_DIR").map_or_else(|| PathBuf::from("/run/flannel-lab"), PathBuf::from)
}

impl Lab {
    /// Brings a lab up; if anything fails, all that was made is taken down again before the error returns.
    pub fn up(options: LabOptions) -> Result<Self> {
        check_name("lab", &options.name, LONGEST_NAME)?;
        program::check_root()?;
        program::check_programs(&program::NEEDED)?;
        refuse_inside()?;
        if options.flanneld == Flanneld::Started {
            program::find_flanneld()?;
        }
        let store = options.store.clone().found()?;
        crate::owner::sweep(&labs_folder());
        let owner = claim(&options.name)?;
        let LabOptions { topology, flanneld_args, flanneld_env, .. } = options;
        let record = Record { topology, store, flanneld_args, flanneld_env };
        let mut lab = Self::assemble(&options.name, record, options.interrupt);
        lab.owner = Some(owner);
        lab.set_up(&options.net_conf)?;
        if options.flanneld == Flanneld::Started {
            lab.start_flanneld()?;
            lab.add_pods(options.pods_per_node)?;
        }
        Ok(lab)
    }

    /// Finds a lab that is up; it stays up when this value is dropped.
    pub fn open(name: &str) -> Result<Self> {
        check_name("lab", name, LONGEST_NAME)?;
        let path = labs_folder().join(name).join("lab.json");
        let text = fs::read_to_string(&path).map_err(|_| LabError::NoLab(name.to_owned()))?;
        let record = serde_json::from_str(&text).map_err(|why| LabError::failed(path.display(), why))?;
        let lab = Self::assemble(name, record, Interrupt::default());
        lab.find_pids();
        Ok(lab)
    }

    /// The names of all labs that have a folder or a process.
    pub fn names() -> Vec<String> {
        let folders = fs::read_dir(labs_folder()).into_iter().flatten().flatten();
        let folders = folders.filter_map(|entry| entry.file_name().into_string().ok());
        let running = process::lab_processes().into_iter().map(|process| process.lab);
        let mut names: Vec<_> = folders.chain(running).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Takes a lab down, whatever is left of it: its processes by FLANNEL_LAB, then its folder.
    pub fn remove(name: &str) -> Result<()> {
        check_name("lab", name, LONGEST_NAME)?;
        program::check_root()?;
        refuse_inside()?;
        if !Self::names().iter().any(|known| known == name) {
            return Err(LabError::NoLab(name.to_owned()));
        }
        tear_down(name)
    }

    /// Takes this lab down and says what went wrong with that.
    pub fn down(mut self) -> Result<()> {
        self.owner = None;
        self.tear_down()
    }

    /// Leaves the lab running after this value, and this program, are gone.
    pub fn keep(mut self) {
        if let Some(owner) = self.owner.take() {
            owner.release();
        }
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lab's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the lease store, which every node sees: the store itself, or what its servers keep.
    pub fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Which lease store it has.
    pub fn store_kind(&self) -> &Store {
        &self.record.store
    }

    /// What the lease store runs on: `store1` and so on; none for a folder.
    pub fn servers(&self) -> &[Node] {
        &self.servers
    }

    /// What it was built from.
    pub fn topology(&self) -> &Topology {
        &self.record.topology
    }

    /// All nodes, rack by rack.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        let known = || self.nodes.iter().map(|node| node.name()).collect::<Vec<_>>().join(", ");
        self.nodes.iter().find(|node| node.name() == name).ok_or_else(|| self.no_machine(name, known()))
    }

    /// A switch, a leaf, the spine or a server by its name.
    pub fn machine(&self, name: &str) -> Result<&Machine> {
        let others = || self.machines().skip(self.nodes.len());
        let known = || others().map(Machine::name).collect::<Vec<_>>().join(", ");
        others().find(|machine| machine.name() == name).ok_or_else(|| self.no_machine(name, known()))
    }

    /// The pods of all nodes that are on.
    pub fn pods(&self) -> Result<Vec<Pod<'_>>> {
        let on = self.nodes.iter().filter(|node| node.pid().is_some());
        on.map(Node::pods).collect::<Result<Vec<_>>>().map(|pods| pods.into_iter().flatten().collect())
    }

    fn no_machine(&self, name: &str, known: String) -> LabError {
        LabError::failed(format!("lab {} has no {name}", self.name), format!("it has {known}"))
    }

    /// All machines as values, none of them running.
    fn assemble(name: &str, record: Record, interrupt: Interrupt) -> Self {
        let folder = labs_folder().join(name);
        let (topology, store) = (&record.topology, &record.store);
        let machine = |machine: &str, role| Machine::new(name, machine, role, &folder);
        let specs = topology.servers(store.servers());
        let mut args = store.flanneld_args(&specs);
        args.extend_from_slice(&record.flanneld_args);
        let daemon =
            Arc::new(Daemon { args, env: record.flanneld_env.clone(), interrupt: interrupt.clone() });
        let (mut nodes, mut servers, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (index, rack) in topology.racks.iter().enumerate() {
            let switch = Arc::new(machine(&rack.name, Role::Switch));
            let node =
                |spec: &NodeSpec, role| Node::new(machine(&spec.name, role), rack, spec, &switch, &daemon);
            nodes.extend(rack.nodes.iter().map(|spec| node(spec, Role::Node)));
            if index == 0 {
                servers.extend(specs.iter().map(|spec| node(spec, Role::Server)));
            }
            others.extend([switch, Arc::new(machine(&rack.leaf, Role::Router))]);
        }
        others.extend(topology.spine().map(|spine| Arc::new(machine(spine, Role::Router))));
        Self { name: name.to_owned(), folder, record, nodes, servers, others, interrupt, owner: None }
    }

    fn set_up(&self, net_conf: &str) -> Result<()> {
        for folder in ["store", "logs", "nodes"] {
            program::make_folder(self.folder.join(folder))?;
        }
        program::write_json(self.folder.join("lab.json"), &self.record)?;
        self.boot()?;
        self.wire()?;
        self.start_store(net_conf)
    }

    /// The nodes first.
    fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.with_cards().map(|node| &node.machine).chain(self.others.iter().map(|machine| &**machine))
    }

    fn with_cards(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().chain(&self.servers)
    }

    fn boot(&self) -> Result<()> {
        for machine in self.machines() {
            self.interrupt.check()?;
            machine.begin_boot()?;
        }
        for machine in self.machines() {
            self.interrupt.check()?;
            machine.finish_boot()?;
        }
        // PID 1 may just be on its way to become `sleep`, and then shows no mark.
        self.interrupt.wait_for("the machines' first processes", BOOT_LIMIT, || {
            self.find_pids();
            let missing = self.machines().find(|machine| machine.pid().is_none());
            missing.map_or(Ok(()), |machine| Err(format!("none of {}", machine.name())))
        })
    }

    /// PID 1 of each machine, by one look at all processes.
    fn find_pids(&self) {
        let mut firsts = processes_of(&self.name);
        firsts.retain(|found| found.inner_pid == Some(1));
        self.machines().for_each(|machine| machine.find_pid(&firsts));
    }

    fn wire(&self) -> Result<()> {
        let spine = self.topology().spine().map(|name| self.machine(name)).transpose()?;
        let spine_pid = spine.map(Machine::require_pid).transpose()?;
        for rack in &self.topology().racks {
            self.interrupt.check()?;
            let leaf = self.machine(&rack.leaf)?;
            let mut lines = wiring::rack_lines(rack, leaf.require_pid()?);
            for node in self.with_cards().filter(|node| node.rack() == rack.name) {
                lines += &wiring::cable_lines(node.spec(), node.machine.require_pid()?);
            }
            self.machine(&rack.name)?.ip_batch(&lines)?;
            leaf.ip_batch(&wiring::leaf_lines(rack, spine_pid))?;
        }
        if let Some(spine) = spine {
            spine.ip_batch(&wiring::spine_lines(self.topology()))?;
        }
        self.with_cards().try_for_each(|node| self.interrupt.check().and_then(|()| node.wire()))?;
        // The ends that were switched on last carry at once; these are all the others.
        self.others.iter().try_for_each(|machine| machine.wait_carriers())
    }

    /// Starts flanneld on every node and waits until all are ready.
    pub fn start_flanneld(&self) -> Result<()> {
        for node in &self.nodes {
            self.interrupt.check()?;
            node.start_flanneld([] as [&str; 0])?;
        }
        self.nodes.iter().try_for_each(|node| node.wait_ready(START_LIMIT))
    }

    /// Adds so many pods to every node, which has written its subnet.env: pod1, pod2 and so on.
    pub fn add_pods(&self, per_node: usize) -> Result<()> {
        let mut pods = Vec::new();
        for node in &self.nodes {
            for number in 1..=per_node {
                self.interrupt.check()?;
                pods.push(node.begin_pod(&format!("pod{number}"))?);
            }
        }
        pods.iter().try_for_each(|pod| self.interrupt.check().and_then(|()| pod.wait_reachable()))
    }

    fn tear_down(&self) -> Result<()> {
        let done = tear_down(&self.name);
        if done.is_ok() {
            self.machines().for_each(Machine::bury);
        }
        done
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.owner.take().is_some() {
            // A drop cannot report; `down` does, and a later `flannelctl lab down` finds what is left.
            let _ = self.tear_down();
        }
    }
}

/// Takes the name by making its folder, which only one can do.
fn claim(name: &str) -> Result<Owner> {
    if !processes_of(name).is_empty() {
        return Err(LabError::Exists(name.to_owned()));
    }
    let folder = labs_folder().join(name);
    // The folder above may vanish in between, when the last of the other labs goes down.
    for _ in 0..100 {
        program::make_folder(labs_folder())?;
        match fs::create_dir(&folder) {
            Ok(()) => return Owner::new(&folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(LabError::Exists(name.to_owned()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::file("create", folder)(error)),
        }
    }
    Err(LabError::file("create", folder)(ErrorKind::NotFound.into()))
}

/// Kills all that carries the lab's mark, then removes the folder: in this order, or a name could be taken
/// while the old lab still runs.
pub(crate) fn tear_down(name: &str) -> Result<()> {
    process::kill_all(name, None)?;
    let folder = labs_folder().join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(LabError::file("remove", folder)(error));
        }
        _ => {}
    }
    // Stays while another lab is in it.
    let _ = fs::remove_dir(labs_folder());
    Ok(())
}
