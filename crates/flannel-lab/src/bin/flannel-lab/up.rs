//! The verb `up`: from options to a lab that stays, and what to try with it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use flannel_lab::{Backend, Families, Flanneld, Interrupt, Lab, LabOptions, Store, Topology};

use crate::demo::draw;
use crate::tables;
use crate::verbs::{Name, name_option};
use flannel_screen::{Ink, Screen};

#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    lab: Name,
    /// How many racks, each with a leaf router; a spine joins them
    #[arg(long, default_value_t = 2)]
    racks: usize,
    /// How many nodes in all
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// vxlan, vxlan-directrouting, host-gw or alloc
    #[arg(long, default_value_t = Backend::Vxlan)]
    backend: Backend,
    /// Give pods IPv6 addresses too
    #[arg(long)]
    dual_stack: bool,
    /// Take this net-conf.json instead of --backend and --dual-stack
    #[arg(long, value_name = "FILE", conflicts_with_all = ["backend", "dual_stack"])]
    net_conf: Option<PathBuf>,
    /// Where leases are kept: directory, etcd or kubernetes; the lab starts their servers
    #[arg(long, default_value = "directory")]
    store: Store,
    /// How many members that etcd has
    #[arg(long, value_name = "NUMBER")]
    etcd_members: Option<usize>,
    /// How many pods on each node
    #[arg(long, default_value_t = 1)]
    pods: usize,
    /// Only the machines and their network: no flanneld, no pods
    #[arg(long)]
    no_flanneld: bool,
    /// More arguments for every flanneld, after --
    #[arg(last = true)]
    flanneld_args: Vec<String>,
}

impl UpArguments {
    /// Brings the lab up and leaves it there.
    pub fn run(self, interrupt: &Interrupt, out: &mut dyn Write) -> anyhow::Result<()> {
        let start = Instant::now();
        let runs_flanneld = !self.no_flanneld;
        let lab = Lab::up(self.options(interrupt)?)?;
        writeln!(out, "{}", draw::picture(lab.topology()))?;
        for server in lab.servers() {
            let (kind, name) = (lab.store_kind().name(), server.name());
            writeln!(out, "{kind} of the lease store: {name} {}", server.v4())?;
        }
        if runs_flanneld {
            writeln!(out, "{}", tables::status(&lab)?)?;
        }
        let up = format!("lab {} is up after {:.1} s", lab.name(), start.elapsed().as_secs_f32());
        writeln!(out, "{}", Screen::of_stdout().paint(Ink::Good, &up))?;
        let name = name_option(lab.name());
        writeln!(out, "try   flannelctl lab ping{name}")?;
        writeln!(out, "      flannelctl lab break{name} worker1 link")?;
        writeln!(out, "      flannelctl lab exec{name} worker1 ip route")?;
        writeln!(out, "end   flannelctl lab down{name}")?;
        interrupt.check()?;
        lab.keep();
        Ok(())
    }

    fn options(self, interrupt: &Interrupt) -> anyhow::Result<LabOptions> {
        let families = if self.dual_stack { Families::Dual } else { Families::V4 };
        let net_conf = match &self.net_conf {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
            }
            None => self.backend.net_conf(families),
        };
        let store = match (self.store, self.etcd_members) {
            (Store::Etcd { program, arguments, .. }, Some(members)) => {
                Store::Etcd { members, program, arguments }
            }
            (_, Some(_)) => bail!("--etcd-members is for --store etcd"),
            (store, _) => store,
        };
        Ok(LabOptions {
            name: self.lab.name,
            topology: Topology::racks(self.racks, self.nodes)?,
            store,
            net_conf,
            flanneld_args: self.flanneld_args,
            flanneld_env: Vec::new(),
            flanneld: if self.no_flanneld { Flanneld::NotStarted } else { Flanneld::Started },
            pods_per_node: self.pods,
            interrupt: interrupt.clone(),
        })
    }
}
