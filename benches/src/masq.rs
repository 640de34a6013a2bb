//! What a list of networks costs a packet: with four and with a thousand of them, in turns, in every system.
//!
//! A pod sends through a node to a bridge without ports, so that the time of sending is that of the whole way. Rules that
//! translate are asked once a connection: its first packet pays, so most cases send nothing but first packets.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flannel_kernel::firewall::rules::Rules;
use flannel_kernel::netns::{Namespace, run_inside};
use flannel_plan::family::ByFamily;
use flannel_plan::masq_agent::config::{AgentConfig, DefaultNetworks};
use flannel_plan::masq_agent::spec::AgentSpec;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::spec::{PodNet, Spec, desired};
use flannel_plan::rules::{SourcePorts, System, changes};
use ipnet::IpNet;

use crate::figure::Figure;

const ROUNDS: usize = 9;
const CONNECTIONS: u32 = 20_000;
const FEW: u32 = 4;
const MANY: u32 = 1000;
/// What counts as flat: a thousand networks cost a first packet no more than this many times what four cost.
const FLAT: f64 = 1.25;

/// Whose rules are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// ip-masq-agent.
    Agent,
    /// flanneld, with `NonMasqueradeCIDRs`.
    Flanneld,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// A pod: its packets are those that the list is for.
    Pod,
    /// A machine that the node only forwards for.
    Stranger,
}

/// Which packets are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packets {
    /// Each begins a connection.
    First,
    /// All are of one.
    Later,
}

/// One measured case.
#[derive(Clone, Copy)]
struct Case {
    packets: Packets,
    keeper: Keeper,
    system: System,
    sender: Sender,
}

impl Case {
    fn name(&self) -> String {
        let keeper = if self.keeper == Keeper::Agent { "ip-masq-agent" } else { "flanneld" };
        let sender = if self.sender == Sender::Pod { "a pod" } else { "others" };
        let packets = if self.packets == Packets::First { "first" } else { "later" };
        format!("{keeper} in {}, {packets} packets of {sender}: 1,000 networks to 4", self.system)
    }

    /// Whether the cost has to be flat: lists of iptables are walked, sets are not.
    fn is_flat(&self) -> bool {
        self.system == System::Nftables
            || self.packets == Packets::Later
            || self.keeper == Keeper::Flanneld && self.sender == Sender::Stranger
    }
}

/// Measures every case, in turns.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    use Keeper::{Agent, Flanneld};
    use Packets::{First, Later};
    use Sender::{Pod, Stranger};
    let cases = [
        (Agent, System::Nftables, Pod, First),
        (Flanneld, System::Nftables, Pod, First),
        (Flanneld, System::IptablesNft, Stranger, First),
        (Agent, System::IptablesNft, Pod, Later),
        (Agent, System::IptablesNft, Pod, First),
        (Flanneld, System::IptablesNft, Pod, First),
    ];
    let mut figures = Vec::new();
    for (keeper, system, sender, packets) in cases {
        let case = Case { keeper, system, sender, packets };
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            few.push(round(case, FEW)?);
            many.push(round(case, MANY)?);
        }
        figures.push(compared(case, &few, &many));
    }
    Ok(figures)
}

/// The quickest rounds are those that nobody else disturbed.
fn compared(case: Case, few: &[Duration], many: &[Duration]) -> Figure {
    let least = |times: &[Duration]| times.iter().min().map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
    let each = |times: &[Duration]| least(times) / f64::from(CONNECTIONS);
    let (few, many) = (each(few), each(many));
    let note = format!("{few:.2} and {many:.2} µs a packet; least of {ROUNDS} rounds of {CONNECTIONS}");
    let figure = Figure::new(case.name(), many / few, "times").note(note);
    if case.is_flat() { figure.at_most(FLAT) } else { figure }
}

/// The time of so many first packets from a machine of its own through a node of its own.
fn round(case: Case, networks: u32) -> anyhow::Result<Duration> {
    run_inside(&Namespace::Fresh, || {
        let here =
            format!("/proc/{}/task/{}/ns/net", std::process::id(), rustix::thread::gettid().as_raw_pid());
        // The node lasts as long as this.
        let _node = run_inside(&Namespace::Fresh, || {
            sh(&format!(
                "ip link set lo up
                 ip link add pod0 type veth peer name eth0 netns {here}
                 ip addr add 10.244.1.1/24 dev pod0 && ip addr add 192.168.77.1/24 dev pod0 && ip link set pod0 up
                 ip link add out type bridge && ip link set out arp off && ip addr add 192.0.2.1/24 dev out && ip link set out up
                 ip route add 198.18.0.0/15 dev out
                 echo 1 > /proc/sys/net/ipv4/ip_forward"
            ))?;
            keep(case, list(networks)?)?;
            File::open("/proc/thread-self/ns/net").context("the node has no namespace")
        })??;
        sh("ip addr add 10.244.1.5/24 dev eth0 && ip addr add 192.168.77.5/24 dev eth0 && ip link set eth0 up
            ip route add default via 10.244.1.1")?;
        let from = match case.sender {
            Sender::Pod => Ipv4Addr::new(10, 244, 1, 5),
            Sender::Stranger => Ipv4Addr::new(192, 168, 77, 5),
        };
        send(from, case.packets)
    })?
}

/// A packet to another place begins another connection.
fn send(from: Ipv4Addr, packets: Packets) -> anyhow::Result<Duration> {
    let socket = UdpSocket::bind((from, 0))?;
    // The neighbour has to be known before the time runs.
    let target = |n: u32| Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 1).to_bits() + n);
    let begun = Instant::now();
    while socket.send_to(b"x", (target(131_000), 9)).is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(5), "nothing can be sent");
    }
    std::thread::sleep(Duration::from_millis(20));
    let begun = time_of_this_thread();
    for n in 0..CONNECTIONS {
        let place = if packets == Packets::First { n } else { 0 };
        socket.send_to(b"x", (target(place), 9))?;
    }
    Ok(time_of_this_thread() - begun)
}

/// What the processor did for this thread, which is the whole way of its packets; others' turns do not count.
fn time_of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Networks with gaps between them, none of which is sent to.
fn list(count: u32) -> anyhow::Result<Vec<IpNet>> {
    (0..count).map(|n| Ok(format!("11.{}.{}.0/25", n / 256, n % 256).parse()?)).collect()
}

fn keep(case: Case, list: Vec<IpNet>) -> anyhow::Result<()> {
    match case.keeper {
        Keeper::Agent => keep_as_agent(case.system, list),
        Keeper::Flanneld => keep_as_flanneld(case.system, list),
    }
}

fn keep_as_agent(system: System, list: Vec<IpNet>) -> anyhow::Result<()> {
    let config =
        AgentConfig { non_masquerade: list, ..AgentConfig::without_file(DefaultNetworks::default()) };
    let source_ports = ByFamily { v4: Some(SourcePorts::Randomised), v6: None };
    let chain = "IP-MASQ-AGENT".to_owned().try_into().map_err(anyhow::Error::msg)?;
    let spec = AgentSpec { system, chain, source_ports, to_ports: vec![], config };
    let mut rules = Rules::open_for(&spec.scope());
    let due = changes(&spec.scope(), &spec.desired(), &rules.observe(system));
    let failures = rules.apply(&spec.scope(), &due);
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}

fn keep_as_flanneld(system: System, list: Vec<IpNet>) -> anyhow::Result<()> {
    let cluster: IpNet = "10.244.0.0/16".parse()?;
    let spec = Spec {
        system,
        instance: "/run/flannel/subnet.env".into(),
        networks: ByFamily { v4: Some(PodNet { cluster, node: "10.244.1.0/24".parse()? }), v6: None },
        masquerade: ByFamily { v4: Some(SourcePorts::Randomised), v6: None },
        non_masquerade_cidrs: list,
        forward: false,
        untracked: ByFamily::default(),
    };
    let scope =
        RuleScope { instance: spec.instance.clone(), networks: vec![cluster], ..RuleScope::default() };
    let mut rules = Rules::open();
    let due = changes(&scope, &desired(&spec), &rules.observe(system));
    let failures = rules.apply(&scope, &due);
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}

fn sh(script: &str) -> anyhow::Result<()> {
    let out = Command::new("sh").args(["-e", "-c", script]).output()?;
    ensure!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}
