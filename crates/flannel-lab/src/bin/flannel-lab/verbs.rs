//! The verbs of a lab, from words on the command line to calls of the library.

use std::env;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, CommandFactory, Subcommand};
use flannel_lab::{Fault, Lab, LabError};
use flannel_screen::{Ink, Screen, write_completions};

use crate::{Arguments, demo, interrupt, tables, up};

/// How long flanneld may take to repair something, before we say that it does not.
const REPAIR_LIMIT: Duration = Duration::from_secs(30);
/// How long a node may take to be ready after a reboot.
const HEAL_LIMIT: Duration = Duration::from_secs(30);

/// What the lab takes from the environment, which sudo would drop.
const KEPT: [&str; 3] = ["FLANNELD", "FLANNEL_LAB_DIR", "NO_COLOR"];

#[derive(Args)]
pub struct Name {
    /// The lab's name; labs of different names live side by side
    #[arg(long, default_value = "default")]
    pub name: String,
}

/// One verb each.
#[derive(Subcommand)]
pub enum Verb {
    /// Bring a lab up: by default master1, worker1, worker2 in one rack and worker3 in another
    Up(up::UpArguments),
    /// Take a lab down, even a half-made one
    Down {
        #[command(flatten)]
        lab: Name,
        /// Take down all labs of this machine
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the labs of this machine
    List,
    /// Show nodes, leases, pods and whether flanneld is ready
    Status(Name),
    /// Run a command inside a node, a router (leaf01, spine), a switch (rack01) or a pod
    Exec {
        #[command(flatten)]
        lab: Name,
        /// Run it in this pod of the node
        #[arg(long)]
        pod: Option<String>,
        /// The node, router or switch
        machine: String,
        /// The command and its arguments; a shell if there is none
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Ping from every pod to every pod
    Ping(Name),
    /// Break something on a node, and see how long flanneld takes to repair it
    Break {
        #[command(flatten)]
        lab: Name,
        /// The node
        node: String,
        /// route, wrong-route, fdb, neighbour, link, link-down, address, mtu, mac, cable or power
        fault: Fault,
        /// The peer whose route or entry is broken; by default one in another rack
        #[arg(long)]
        peer: Option<String>,
    },
    /// Put right what flanneld cannot: power, cable, a flanneld that does not run
    Heal {
        #[command(flatten)]
        lab: Name,
        /// The node
        node: String,
    },
    /// Show what flanneld has written on a node
    Log {
        #[command(flatten)]
        lab: Name,
        /// The node
        node: String,
    },
    /// See flannel at work in half a minute: everything explained, nothing left behind
    Demo,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs one verb. All that touch a lab need root, which sudo is asked for.
pub fn run(verb: Verb, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if !matches!(verb, Verb::Completions { .. }) {
        ensure_root()?;
    }
    match verb {
        Verb::Up(up) => until_stopped(|interrupt| up.run(interrupt, out))?,
        Verb::Down { all: true, .. } => down_all(out)?,
        Verb::Down { lab, .. } => down(&lab.name, out)?,
        Verb::List => Lab::names().iter().try_for_each(|name| writeln!(out, "{name}"))?,
        Verb::Status(lab) => writeln!(out, "{}", tables::status(&Lab::open(&lab.name)?)?)?,
        Verb::Exec { lab, pod, machine, command } => exec(&lab.name, &machine, pod.as_deref(), &command)?,
        Verb::Ping(lab) => return ping(&lab.name, out),
        Verb::Break { lab, node, fault, peer } => {
            break_node(&Lab::open(&lab.name)?, &node, fault, peer.as_deref(), out)?;
        }
        Verb::Heal { lab, node } => heal(&lab.name, &node, out)?,
        Verb::Log { lab, node } => write!(out, "{}", Lab::open(&lab.name)?.node(&node)?.log())?,
        Verb::Demo => until_stopped(|interrupt| demo::run(interrupt, out))?,
        Verb::Completions { shell } => write_completions(out, Arguments::command(), shell)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns if we are root; otherwise becomes root by sudo with the same words, or says that it could not.
fn ensure_root() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = env::current_exe().context("cannot find this program")?;
    let kept = KEPT.iter().filter_map(|name| Some(format!("{name}={}", env::var(name).ok()?)));
    let error = Command::new("sudo").args(kept).arg(own).args(env::args_os().skip(1)).exec();
    Err(error).context("a lab is made of namespaces, which only root may create, and sudo cannot be run")
}

/// Runs with signals as an interrupt. A signal also ends the programs that run at that moment: their errors
/// are not the reason.
fn until_stopped(work: impl FnOnce(&flannel_lab::Interrupt) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let interrupt = interrupt::listen()?;
    let done = work(&interrupt);
    interrupt.check()?;
    done
}

/// What must be added to a command line to mean this lab.
pub fn name_option(name: &str) -> String {
    if name == "default" { String::new() } else { format!(" --name {name}") }
}

fn down(name: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    Lab::remove(name)?;
    Ok(writeln!(out, "lab {name} is down")?)
}

/// Goes on after a failure and tells all.
fn down_all(out: &mut dyn Write) -> anyhow::Result<()> {
    let failures: Vec<_> = Lab::names()
        .iter()
        .filter_map(|name| down(name, out).err().map(|why| format!("{name}: {why}")))
        .collect();
    if failures.is_empty() { Ok(()) } else { bail!("labs that are not down: {}", failures.join("; ")) }
}

fn exec(name: &str, machine: &str, pod: Option<&str>, command: &[String]) -> anyhow::Result<()> {
    let lab = Lab::open(name)?;
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => ("sh", &[][..]),
    };
    let mut command = match (pod, lab.node(machine)) {
        (Some(pod), node) => {
            let node = node?;
            let pods = node.pods()?;
            let found = pods.iter().find(|known| known.name() == pod);
            found.with_context(|| format!("no pod {pod} on {machine}"))?.command(program, arguments)
        }
        (None, Ok(node)) if node.pid().is_none() => bail!(LabError::PoweredOff(machine.to_owned())),
        (None, Ok(node)) => node.command(program, arguments),
        (None, Err(unknown)) => lab.machine(machine).map_err(|_| unknown)?.command(program, arguments),
    };
    let error = command.exec();
    Err(error).context("cannot run nsenter")
}

fn ping(name: &str, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(name)?;
    let (table, lost) = tables::pings(&lab)?;
    writeln!(out, "{table}")?;
    if lost == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{}", Screen::of_stdout().paint(Ink::Bad, &format!("{lost} without an answer")))?;
    Ok(ExitCode::FAILURE)
}

fn break_node(
    lab: &Lab,
    node: &str,
    fault: Fault,
    peer: Option<&str>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let broken = lab.break_node(node, fault, peer)?;
    writeln!(out, "{node}: {}", Screen::of_stdout().paint(Ink::Bad, broken.command()))?;
    if !fault.is_repairable() {
        let name = name_option(lab.name());
        return Ok(writeln!(out, "No daemon can repair that: flannelctl lab heal{name} {node}")?);
    }
    let took = broken.wait_repaired(REPAIR_LIMIT)?;
    let told = format!("repaired by flanneld after {} ms", took.as_millis());
    Ok(writeln!(out, "{}", Screen::of_stdout().paint(Ink::Good, &told))?)
}

fn heal(name: &str, node: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let done = Lab::open(name)?.heal(node, HEAL_LIMIT)?;
    if done.is_empty() {
        return Ok(writeln!(out, "{node}: nothing to heal")?);
    }
    done.iter().try_for_each(|step| writeln!(out, "{node}: {step}")).map_err(Into::into)
}
