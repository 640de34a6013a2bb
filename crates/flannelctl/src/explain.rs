//! `flannelctl explain`: what becomes of a packet, and which rule decides, by the rules that are in the kernel now.
//!
//! Takes addresses and what else is known of the packet, gives the answer in words or as JSON.

mod answer;
mod question;

use std::io::Write;
use std::net::IpAddr;

use anyhow::{Context, bail};
use flannel_kernel::Linux;
use flannel_kernel::firewall::rules::Rules;
use flannel_plan::family::Family;
use flannel_plan::observation::Scope;
use flannel_plan::rules::explain::{Packet, explain_snat};

use answer::{Answer, Way};
use flannel_screen::{Form, listed};
use question::{Port, fwmark};

/// Explain what becomes of a packet
#[derive(clap::Subcommand)]
pub enum Command {
    Snat(Arguments),
}

/// Say whether a packet keeps its source address, and which rule decides
///
/// Reads the rules that are in force now, everybody's: nftables, iptables and legacy iptables. The addresses are those
/// that the packet has when it leaves this node: of a packet to a service, DST is the pod that was chosen.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the packet comes from
    #[arg(value_name = "SRC")]
    source: IpAddr,
    /// Where it goes
    #[arg(value_name = "DST")]
    destination: IpAddr,
    /// The port that it goes to: 443, or 53/udp
    #[arg(value_name = "PORT")]
    port: Option<Port>,
    /// Its mark, as kube-proxy sets one: 0x4000
    #[arg(long, value_name = "MARK", default_value = "0", value_parser = fwmark)]
    mark: u32,
    /// The device that it leaves by
    #[arg(long, value_name = "DEVICE")]
    out: Option<Box<str>>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value = "text")]
    output: Form,
}

pub fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<()> {
    let Command::Snat(arguments) = command;
    let answer = answer(arguments)?;
    arguments.output.write(out, &answer, || answer.text())
}

fn answer(arguments: &Arguments) -> anyhow::Result<Answer> {
    let Arguments { source, destination, .. } = arguments;
    let family = Family::of(*source);
    if Family::of(*destination) != family {
        bail!("{source} and {destination} are of different families: no packet has both");
    }
    let observation = Rules::open().observe_everything(family);
    let unseen: Vec<String> = observation
        .unreadable
        .iter()
        .map(|unreadable| format!("{}: {}", unreadable.system, unreadable.why))
        .collect();
    if observation.tables.is_empty() && !unseen.is_empty() {
        bail!("no rules can be read: {}", listed(unseen));
    }
    let own = own_addresses()?;
    let is_own = |address: IpAddr| address.is_loopback() || own.contains(&address);
    let ends_here = is_own(*destination) && !is_own(*source);
    // A packet from elsewhere to this node ends here, before the rules about sources.
    let way = if ends_here { Way::EndsHere } else { Way::Leaves };
    let explanation = explain_snat(&observation.tables, &packet(arguments, is_own(*destination)));
    Ok(Answer::new(&explanation, way, unseen))
}

fn packet(arguments: &Arguments, to_host: bool) -> Packet {
    Packet {
        source: arguments.source,
        destination: arguments.destination,
        protocol: arguments.port.map(|port| port.protocol),
        port: arguments.port.map(|port| port.number),
        mark: arguments.mark,
        out_link: arguments.out.clone(),
        to_host: Some(to_host),
    }
}

/// Asks the kernel: who may bind to an address is another question, which `ip_nonlocal_bind` answers with all of them.
fn own_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let observation = Linux::open().and_then(|mut kernel| kernel.observe_without_rules(&Scope::default()));
    let addresses = observation.context("this node's own addresses cannot be told")?.addresses;
    Ok(addresses.iter().map(|fact| fact.address.addr()).collect())
}
