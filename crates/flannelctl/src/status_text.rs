//! `flannelctl status`: writes a [`NodeStatus`] for people or programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use flannel_plan::finding::{Code, Finding};
use flannel_plan::rules::role::Role;
use flannel_plan::state::{Link, LinkKind};
use flannel_screen::{Ink, Screen, ago, cell, listed, stacked, table_text};
use flannel_status::{
    Life, NodeStatus, ObjectCount, OwnStatus, PeerState, PeerStatus, RuleStatus, node_status,
};

use crate::evidence::{NodeArguments, gather_settled};

/// The exit code for a node whose flanneld does nothing.
const NOT_RUNNING: u8 = 3;
/// So many peers are listed unless all are asked for.
const MOST_PEERS: usize = 50;
/// So many lines are listed of anything else.
const MOST_LINES: usize = 10;

/// Show how this node is: ready or not and why, its lease, its peers, what was repaired
///
/// Reads what flanneld wrote beside the subnet file, and looks at the kernel itself: it also works while
/// flanneld hangs or is gone. The exit code is 0 if flanneld runs, whatever the status says, and 3 if it does not or is
/// suspended.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    node: NodeArguments,
    /// List every peer and every line; else the first, those that fail before the others
    #[arg(long)]
    all: bool,
}

pub fn run(arguments: &Arguments, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let evidence = gather_settled(&arguments.node.subnet_file)?;
    let status = node_status(&evidence);
    let limits = if arguments.all { Limits::NONE } else { Limits::USUAL };
    let page = Page { screen: Screen::of_stdout(), limits, now: evidence.now };
    arguments.node.output.write(out, &status, || page.write(&status))?;
    Ok(match status.daemon.life {
        Life::Running => ExitCode::SUCCESS,
        Life::Suspended | Life::NotSeen => ExitCode::from(NOT_RUNNING),
    })
}

/// How much is listed.
#[derive(Clone, Copy)]
struct Limits {
    peers: usize,
    lines: usize,
}

impl Limits {
    const USUAL: Self = Self { peers: MOST_PEERS, lines: MOST_LINES };
    const NONE: Self = Self { peers: usize::MAX, lines: usize::MAX };
}

struct Page {
    screen: Screen,
    limits: Limits,
    now: u64,
}

impl Page {
    fn write(&self, status: &NodeStatus) -> String {
        let mut text = self.headline(status);
        text += &self.facts(status);
        text += &self.peers(&status.peers);
        let repairs = status.repairs.iter().rev();
        let repairs = repairs
            .map(|repair| format!("{} x {}, {}", repair.count, repair.object, ago(self.now, repair.last)));
        text += &self.section("repaired since flanneld started, the latest first", repairs.collect());
        text += &self.section("contested: something keeps undoing these", status.contested.clone());
        text += &self.section("not ours, left alone", status.foreign.clone());
        text
    }

    fn headline(&self, status: &NodeStatus) -> String {
        let name = status.node.as_ref().map_or("this node", |node| &node.owner);
        let verdict = match status.ready {
            true => self.screen.paint(Ink::Good, "ready"),
            false => self.screen.paint(Ink::Bad, "not ready"),
        };
        let but = if status.ready { "but" } else { "and" };
        let life = match status.daemon.life {
            Life::Running => String::new(),
            idle => format!(
                ", {but} {}",
                self.screen.paint(Ink::Bad, &format!("flanneld is {}", life_word(idle)))
            ),
        };
        let mut text = format!("{name} is {verdict}{life}\n");
        let (reasons, rest) = status.findings.split_at(status.reasons.len());
        for (mark, findings) in [((Ink::Bad, "x"), reasons), ((Ink::Odd, "!"), &rest[..status.notes.len()])] {
            let mark = self.screen.paint(mark.0, mark.1);
            text += &self.lines(findings, |finding| format!("  {mark} {}\n", with_code(finding)));
        }
        text + "\n"
    }

    fn facts(&self, status: &NodeStatus) -> String {
        let daemon = &status.daemon;
        let life = match daemon.life {
            Life::Running => life_word(Life::Running).to_owned(),
            idle => self.screen.paint(Ink::Bad, life_word(idle)),
        };
        let version = &daemon.version;
        let mut facts = vec![
            ("flanneld", format!("{version}, pid {}, {life}", daemon.seen_as.unwrap_or(daemon.pid))),
            ("report", format!("{}, {}", daemon.report, ago(self.now, daemon.written))),
        ];
        facts.extend(status.node.iter().flat_map(own_facts));
        facts.extend(status.objects.map(|objects| ("objects", self.objects(objects))));
        facts.iter().fold(String::new(), |text, (name, fact)| format!("{text}{name:<10} {fact}\n"))
    }

    fn objects(&self, objects: ObjectCount) -> String {
        let ObjectCount { desired, in_place, left_over } = objects;
        let wrong = match (desired - in_place, left_over) {
            (0, 0) => return format!("all {desired} as they should be"),
            (0, more) => format!("{more} left over"),
            (wrong, 0) => format!("{wrong} of {desired} not as they should be"),
            (wrong, more) => format!("{wrong} of {desired} not as they should be, {more} left over"),
        };
        format!("{}: see `flannelctl diff`", self.screen.paint(Ink::Bad, &wrong))
    }

    fn peers(&self, peers: &[PeerStatus]) -> String {
        let count = |state| peers.iter().filter(|peer| peer.state == state).count();
        let counts = [
            (PeerState::Ok, Ink::Good, "ok"),
            (PeerState::Broken, Ink::Bad, "broken"),
            (PeerState::Refused, Ink::Odd, "refused"),
        ];
        let counts = counts.map(|(state, ink, word)| (count(state), ink, word)).into_iter();
        let counts = counts.filter(|(count, ..)| *count > 0);
        let counts = counts.map(|(count, ink, word)| self.screen.paint(ink, &format!("{count} {word}")));
        if peers.is_empty() {
            return format!("{:<10} none\n", "peers");
        }
        let mut text = format!("{:<10} {}\n\n", "peers", listed(counts));
        let mut table = self.screen.table(&["NODE", "SUBNET", "PUBLIC IP", "REACHED", "STATE"]);
        table.add_rows(peers.iter().take(self.limits.peers).map(row));
        text += &table_text(&table);
        text + &more(peers.len(), self.limits.peers, "peers")
    }

    fn section(&self, title: &str, lines: Vec<String>) -> String {
        if lines.is_empty() {
            return String::new();
        }
        format!("\n{title}:\n") + &self.lines(&lines, |line| format!("  {line}\n"))
    }

    fn lines<T>(&self, lines: &[T], written: impl Fn(&T) -> String) -> String {
        let text: String = lines.iter().take(self.limits.lines).map(written).collect();
        text + &more(lines.len(), self.limits.lines, "lines")
    }
}

/// A finding with what it is looked up by in docs/findings.md.
fn with_code(finding: &Finding) -> String {
    match finding.code {
        Code::Unlisted => finding.text.clone(),
        code => format!("{finding} [{code}]"),
    }
}

fn more(there: usize, shown: usize, what: &str) -> String {
    match there.saturating_sub(shown) {
        0 => String::new(),
        left => format!("  and {left} more {what}: --all lists them\n"),
    }
}

fn row(peer: &PeerStatus) -> Vec<comfy_table::Cell> {
    let (ink, state) = match peer.state {
        PeerState::Ok => (Ink::Good, "ok".to_owned()),
        PeerState::Broken => (Ink::Bad, listed(&peer.why)),
        PeerState::Refused => (Ink::Odd, format!("refused: {}", listed(&peer.why))),
    };
    let mut reached = peer.reached.clone();
    reached.dedup();
    let reached = if reached.is_empty() { "-".to_owned() } else { stacked(reached) };
    let texts = [peer.owner.clone(), stacked(&peer.subnets), stacked(&peer.public), reached];
    texts.into_iter().map(comfy_table::Cell::new).chain([cell(ink, &state)]).collect()
}

fn own_facts(node: &OwnStatus) -> Vec<(&'static str, String)> {
    let subnets = listed(node.subnets.iter().map(|(_, subnet)| subnet));
    let networks = listed(node.networks.iter().map(|(_, network)| network));
    let public = listed(node.public.iter().map(|(_, address)| address));
    let addresses = listed(node.addresses.iter().map(|(_, address)| address));
    let asked = listed(node.asked.iter().map(|(_, address)| address));
    let announced = match &public {
        _ if public != asked => {
            format!(", announced as {public}, which the lease store has instead of {asked}")
        }
        _ if public != addresses => format!(", announced as {public}"),
        _ => String::new(),
    };
    let pods = node.pod_mtu.map(|mtu| pod_words(mtu, &node.pod_mtus)).unwrap_or_default();
    let mut facts = vec![
        ("interface", format!("{} {addresses} mtu {}{announced}", node.interface, node.interface_mtu)),
        ("lease", format!("{subnets} of {networks}")),
        ("backend", format!("{}{pods}", node.backend.name())),
    ];
    facts.extend(node.devices.iter().map(|device| ("device", device_words(device))));
    facts.extend(node.rules.iter().map(|rules| ("rules", rule_words(rules))));
    facts
}

/// The MTU that pods get, and how many have another: a pod keeps the one that it started with.
fn pod_words(mtu: u32, pods: &BTreeMap<u32, usize>) -> String {
    let others: BTreeMap<_, _> = pods.iter().filter(|(other, _)| **other != mtu).collect();
    if others.is_empty() {
        return format!(", pods have MTU {mtu}");
    }
    let (count, all): (usize, usize) = (others.values().copied().sum(), pods.values().sum());
    format!(", pods get MTU {mtu}; {count} of {all} pods have another: {}", listed(others.keys()))
}

fn life_word(life: Life) -> &'static str {
    match life {
        Life::Running => "running",
        Life::Suspended => "suspended",
        Life::NotSeen => "not running",
    }
}

fn rule_words(rules: &RuleStatus) -> String {
    let word = |role: &Role| match role {
        Role::Masquerade => "masquerade",
        Role::Forward => "forwarding",
        Role::UntrackedIn | Role::UntrackedOut => "untracked tunnel packets",
        Role::MasqAgent(_) => "ip-masq-agent",
    };
    let mut words: Vec<&str> = rules.roles.iter().map(word).collect();
    words.dedup();
    if words.is_empty() {
        "none wanted".to_owned()
    } else {
        format!("{}, in {}", listed(words), rules.system)
    }
}

fn device_words(device: &Link) -> String {
    let mac = device.mac.map(|mac| format!(" mac {mac}")).unwrap_or_default();
    let words = format!("{} mtu {}{mac}", device.name, device.mtu);
    match &device.kind {
        LinkKind::Vxlan(vxlan) => format!("{words}, VNI {} on UDP port {}", vxlan.vni, vxlan.port),
        LinkKind::Other(_) => words,
    }
}

#[cfg(test)]
#[path = "../../flannel-status/tests/fixture/mod.rs"]
mod fixture;
#[cfg(test)]
mod tests;
