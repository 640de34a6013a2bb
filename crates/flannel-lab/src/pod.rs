//! Pods: namespaces behind a node's `cni0`, made by hand as the CNI plugins would make them.
//!
//! Takes what flanneld wrote into subnet.env, gives addresses that can be pinged. A pod's record is in the
//! node's /run, so it goes when the node's power goes, as the pod does.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::flanneld::SUBNET_FILE;
use crate::node::Node;
use crate::{LabError, Result, program, wiring};

/// The bridge that the pods of a node are plugged into.
const BRIDGE: &str = "cni0";
/// Where a node keeps the records of its pods.
const RECORDS: &str = "/run/flannel-lab-pods";
/// With the prefix `v-` it must fit into an interface's name.
const LONGEST_NAME: usize = 12;

/// A pod of a node.
#[derive(Clone, Debug)]
pub struct Pod<'a> {
    node: &'a Node,
    record: Record,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    addresses: Vec<IpNet>,
}

/// What a node's subnet.env gives to a pod.
#[derive(Debug, PartialEq, Eq)]
struct SubnetEnv {
    /// The gateway's address in each family.
    gateways: Vec<IpNet>,
    mtu: u32,
}

impl Node {
    /// Adds a pod with the next free addresses of the node's subnets; flanneld must have written subnet.env.
    pub fn add_pod(&self, name: &str) -> Result<Pod<'_>> {
        check_name("pod", name, LONGEST_NAME)?;
        let env = self.subnet_env()?;
        let taken = self.pods()?;
        let addresses = env.gateways.iter().map(|gateway| next_address(gateway, &taken)).collect();
        let pod = Pod { node: self, record: Record { name: name.to_owned(), addresses } };
        self.ensure_bridge(&env)?;
        let (mtu, end) = (env.mtu, format!("v-{name}"));
        let mut lines = format!("netns add {name}\n");
        let _ = writeln!(
            lines,
            "link add {end} mtu {mtu} master {BRIDGE} up type veth peer name eth0 mtu {mtu} netns {name}"
        );
        program::run_with_input(&mut self.command("ip", ["-batch", "-"]), &lines)?;
        program::run_with_input(&mut pod.command("ip", ["-batch", "-"]), &pod.lines(&env))?;
        self.machine.wait_carrier(&end)?;
        pod.write_record()?;
        Ok(pod)
    }

    /// Makes the bridge with the gateways' addresses, if it is not there. Its link-local address must be usable at
    /// once, because a node asks with it for the neighbours it forwards to.
    fn ensure_bridge(&self, env: &SubnetEnv) -> Result<()> {
        let dad = format!("/proc/sys/net/ipv6/conf/{BRIDGE}/accept_dad");
        if self.inside(|| fs::exists(&dad).unwrap_or(false))? {
            return Ok(());
        }
        self.machine.ip_batch(&format!("link add {BRIDGE} mtu {} type bridge\n", env.mtu))?;
        self.inside(|| program::write(&dad, "0"))??;
        let mut lines = format!("link set {BRIDGE} up\n");
        env.gateways.iter().for_each(|gateway| wiring::add_address(&mut lines, *gateway, BRIDGE));
        self.machine.ip_batch(&lines)
    }

    /// The pods that are on the node, by name.
    pub fn pods(&self) -> Result<Vec<Pod<'_>>> {
        self.machine.require_pid()?;
        let Ok(entries) = fs::read_dir(self.path(RECORDS)) else { return Ok(Vec::new()) };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let record = |path| {
            let text = program::read(&path)?;
            serde_json::from_str(&text).map_err(|why| LabError::Content { path, why: why.to_string() })
        };
        paths.into_iter().map(|path| Ok(Pod { node: self, record: record(path)? })).collect()
    }

    /// Keeps the names of the pods over a power failure, as a real node's kubelet is told them again.
    pub(crate) fn remember_pods(&self) -> Result<()> {
        let names: Vec<_> = self.pods()?.iter().map(|pod| pod.name().to_owned()).collect();
        program::write(self.machine.own_folder().join("pods"), &names.join("\n"))
    }

    /// Starts the pods that a power failure took; those that are there stay.
    pub(crate) fn restore_pods(&self) -> Result<Vec<Pod<'_>>> {
        let names = fs::read_to_string(self.machine.own_folder().join("pods")).unwrap_or_default();
        let there: Vec<_> = self.pods()?.iter().map(|pod| pod.name().to_owned()).collect();
        let lost = names.lines().filter(|name| !there.iter().any(|known| known == name));
        let restored = lost.map(|name| self.add_pod(name)).collect::<Result<_>>()?;
        let _ = fs::remove_file(self.machine.own_folder().join("pods"));
        Ok(restored)
    }

    /// The node's IPv4 pod subnet, with the gateway's address, as flanneld wrote it.
    pub fn pod_subnet(&self) -> Result<IpNet> {
        let env = self.subnet_env()?;
        let none = || LabError::Content { path: self.path(SUBNET_FILE), why: "no FLANNEL_SUBNET".to_owned() };
        env.gateways.first().copied().ok_or_else(none)
    }

    fn subnet_env(&self) -> Result<SubnetEnv> {
        self.machine.require_pid()?;
        let path = self.path(SUBNET_FILE);
        let text = program::read(&path)?;
        subnet_env(&text).map_err(|why| LabError::Content { path, why })
    }
}

impl<'a> Pod<'a> {
    /// Its name, unique on its node.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The node it is on.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Its IPv4 address, or its IPv6 address where there is no IPv4.
    pub fn address(&self) -> IpAddr {
        self.record.addresses.first().map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), IpNet::addr)
    }

    /// All its addresses, v4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.record.addresses.iter().map(IpNet::addr)
    }

    /// A command that will run inside the pod: its network, and the node's files and processes.
    pub fn command<A: AsRef<str>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let network = self.node.path(&format!("/run/netns/{}", self.name()));
        let mut command = self.node.machine.nsenter();
        command.arg(format!("--net={}", network.display())).args(["--", program]);
        arguments.into_iter().for_each(|argument| {
            command.arg(argument.as_ref());
        });
        command
    }

    /// Runs a command inside the pod to its end and gives what it wrote.
    pub fn run<A: AsRef<str>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        self.node.machine.require_pid()?;
        program::run(&mut self.command(program, arguments))
    }

    /// Pings an address once; gives the time it took.
    pub fn ping(&self, to: IpAddr) -> Result<Duration> {
        self.node.machine.require_pid()?;
        ping(&format!("{}/{}", self.node.name(), self.name()), self.command("ping", ping_words(to)), to)
    }

    /// Pings until there is an answer: a neighbour that was asked in vain is not asked again for some seconds.
    pub fn wait_ping(&self, to: IpAddr, limit: Duration) -> Result<Duration> {
        let what = format!("an answer from {to} to {}/{}", self.node.name(), self.name());
        self.node.interrupt.wait_for(&what, limit, || self.ping(to).map_err(|why| why.to_string()))
    }

    /// Removes the pod.
    pub fn remove(self) -> Result<()> {
        let record = self.node.path(&format!("{RECORDS}/{}.json", self.name()));
        self.node.run("ip", ["netns", "del", self.name()])?;
        fs::remove_file(&record).map_err(LabError::file("remove", record))
    }

    fn lines(&self, env: &SubnetEnv) -> String {
        let mut lines = "link set lo up\nlink set eth0 up\n".to_owned();
        self.record.addresses.iter().for_each(|address| wiring::add_address(&mut lines, *address, "eth0"));
        env.gateways.iter().for_each(|gateway| {
            let _ = writeln!(lines, "route add default via {}", gateway.addr());
        });
        lines
    }

    fn write_record(&self) -> Result<()> {
        let folder = self.node.path(RECORDS);
        program::make_folder(&folder)?;
        let path = folder.join(format!("{}.json", self.name()));
        let text = serde_json::to_string(&self.record);
        let text = text.map_err(|why| LabError::Content { path: path.clone(), why: why.to_string() })?;
        program::write(path, &text)
    }
}

/// The address after the highest that is in use; the gateway's is the first.
fn next_address(gateway: &IpNet, taken: &[Pod<'_>]) -> IpNet {
    let used = taken.iter().flat_map(Pod::addresses).filter(|address| gateway.contains(address));
    let next = match used.chain([gateway.addr()]).max() {
        Some(IpAddr::V4(last)) => IpAddr::from(std::net::Ipv4Addr::from_bits(last.to_bits().wrapping_add(1))),
        Some(IpAddr::V6(last)) => IpAddr::from(std::net::Ipv6Addr::from_bits(last.to_bits().wrapping_add(1))),
        None => gateway.addr(),
    };
    IpNet::new(next, gateway.prefix_len()).unwrap_or(*gateway)
}

fn subnet_env(text: &str) -> std::result::Result<SubnetEnv, String> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))
            .filter(|value| !value.is_empty())
    };
    let net = |key: &str| {
        let parsed =
            |value: &str| value.parse().map_err(|_| format!("{key}={value} is no address with a length"));
        value(key).map(parsed).transpose()
    };
    let gateways: Vec<_> =
        [net("FLANNEL_SUBNET")?, net("FLANNEL_IPV6_SUBNET")?].into_iter().flatten().collect();
    if gateways.is_empty() {
        return Err("neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET".to_owned());
    }
    let mtu = value("FLANNEL_MTU").and_then(|value| value.parse().ok()).ok_or("no FLANNEL_MTU")?;
    Ok(SubnetEnv { gateways, mtu })
}

/// Once, without names, at most a second.
pub(crate) fn ping_words(to: IpAddr) -> [String; 6] {
    ["-c", "1", "-W", "1", "-n", &to.to_string()].map(str::to_owned)
}

pub(crate) fn ping(from: &str, mut command: Command, to: IpAddr) -> Result<Duration> {
    let no_answer = |why: String| LabError::NoAnswer { from: from.to_owned(), to: to.to_string(), why };
    let said = program::run(&mut command).map_err(|error| match error {
        LabError::Failed { why, .. } => no_answer(why.lines().nth(1).unwrap_or(&why).to_owned()),
        other => other,
    })?;
    round_trip(&said).ok_or_else(|| no_answer(said.clone()))
}

fn round_trip(said: &str) -> Option<Duration> {
    let (_, rest) = said.split_once("time=")?;
    let milliseconds: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

/// Small letters, digits and dashes: such a name is also a host name, a folder and an interface.
pub(crate) fn check_name(what: &'static str, name: &str, most: usize) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = !name.is_empty() && name.len() <= most && name.chars().all(plain) && !name.starts_with('-');
    good.then_some(()).ok_or_else(|| LabError::BadName { what, name: name.to_owned(), most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnet_env_gives_the_gateways_and_the_mtu() {
        let text = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n";
        let gateways = ["10.244.1.1/24", "fd00:244:0:1::1/64"].map(|net| net.parse().unwrap()).to_vec();
        assert_eq!(subnet_env(text), Ok(SubnetEnv { gateways, mtu: 1430 }));
        assert_eq!(
            subnet_env("FLANNEL_MTU=1450\n"),
            Err("neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET".to_owned())
        );
    }

    #[test]
    fn the_first_pod_gets_the_address_after_the_gateway() {
        let next = |gateway: &str| next_address(&gateway.parse().unwrap(), &[]).to_string();
        assert_eq!(
            [next("10.244.1.1/24"), next("fd00:244:0:1::1/64")],
            ["10.244.1.2/24", "fd00:244:0:1::2/64"]
        );
    }

    #[test]
    fn the_round_trip_is_read_from_what_ping_says() {
        let said = "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.250 ms\n";
        assert_eq!(round_trip(said), Some(Duration::from_micros(250)));
        assert_eq!(round_trip("1 packets transmitted, 0 received"), None);
    }

    #[test]
    fn names_are_small_letters_digits_and_dashes() {
        assert!(check_name("pod", "web-1", 12).is_ok());
        for name in ["", "-a", "A", "a/b", "a b", "thirteenchars"] {
            assert!(matches!(check_name("pod", name, 12), Err(LabError::BadName { .. })), "{name}");
        }
    }
}
