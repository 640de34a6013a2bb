//! Pods: namespaces behind a node's `cni0`, attached by the CNI plugins as a container runtime has them attached.
//!
//! Takes what flanneld wrote into subnet.env, gives addresses that can be pinged. A pod's record is in the
//! node's /run, so it goes when the node's power goes, as the pod does.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use flannel_plan::family::ByFamily;
use flannel_plan::subnet_env::previous_subnets;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::flanneld::SUBNET_FILE;
use crate::node::Node;
use crate::{LabError, Result, program};

/// Where a node keeps the records of its pods.
const RECORDS: &str = "/run/flannel-lab-pods";
/// A name is shown in tables.
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
    /// The interfaces on the node's side, the bridge first.
    ports: Vec<String>,
}

impl Node {
    /// Adds a pod with the next free addresses of the node's subnets; flanneld must have written subnet.env.
    pub fn add_pod(&self, name: &str) -> Result<Pod<'_>> {
        let pod = self.begin_pod(name)?;
        pod.wait_reachable()?;
        Ok(pod)
    }

    /// The same without waiting for the kernel, for those who add many.
    pub(crate) fn begin_pod(&self, name: &str) -> Result<Pod<'_>> {
        check_name("pod", name, LONGEST_NAME)?;
        self.pod_subnets()?;
        self.detach_all_but(&self.pod_names()?)?;
        self.run("ip", ["netns", "add", name])?;
        let attachment = self.attach(name).inspect_err(|_| {
            // The first failure is worth telling.
            let _ = self.detach(name);
            let _ = self.run("ip", ["netns", "del", name]);
        })?;
        let outside = attachment.interfaces.into_iter().filter(|interface| interface.sandbox.is_none());
        let record = Record {
            name: name.to_owned(),
            addresses: attachment.ips.iter().map(|ip| ip.address).collect(),
            ports: outside.map(|interface| interface.name).collect(),
        };
        let pod = Pod { node: self, record };
        pod.write_record()?;
        Ok(pod)
    }

    /// The pods that are on the node, by name.
    pub fn pods(&self) -> Result<Vec<Pod<'_>>> {
        self.require_pid()?;
        let Ok(entries) = fs::read_dir(self.path(RECORDS)) else { return Ok(Vec::new()) };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let record = |path: PathBuf| {
            let text = program::read(&path)?;
            serde_json::from_str(&text).map_err(|why| LabError::failed(path.display(), why))
        };
        paths.into_iter().map(|path| Ok(Pod { node: self, record: record(path)? })).collect()
    }

    fn pod_names(&self) -> Result<Vec<String>> {
        Ok(self.pods()?.into_iter().map(|pod| pod.record.name).collect())
    }

    /// Keeps the names of the pods over a power failure, as a real node's kubelet is told them again.
    pub(crate) fn remember_pods(&self) -> Result<()> {
        program::write(self.own_folder().join("pods"), &self.pod_names()?.join("\n"))
    }

    /// Starts the pods that a power failure took; those that are there stay.
    pub(crate) fn restore_pods(&self) -> Result<Vec<Pod<'_>>> {
        let names = fs::read_to_string(self.own_folder().join("pods")).unwrap_or_default();
        let there = self.pod_names()?;
        let lost = names.lines().filter(|name| !there.iter().any(|known| known == name));
        let restored = lost.map(|name| self.add_pod(name)).collect::<Result<_>>()?;
        let _ = fs::remove_file(self.own_folder().join("pods"));
        Ok(restored)
    }

    /// The node's IPv4 pod subnet, as flanneld wrote it.
    pub fn pod_subnet(&self) -> Result<IpNet> {
        self.pod_subnets()?.v4.ok_or_else(|| self.no_subnet("no FLANNEL_SUBNET"))
    }

    fn pod_subnets(&self) -> Result<ByFamily<IpNet>> {
        self.require_pid()?;
        let subnets = previous_subnets(&program::read(self.path(SUBNET_FILE))?);
        let neither = || self.no_subnet("neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET");
        if subnets.is_empty() { Err(neither()) } else { Ok(subnets) }
    }

    fn no_subnet(&self, why: &str) -> LabError {
        LabError::failed(self.path(SUBNET_FILE).display(), why)
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
    pub fn command<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let network = self.node.path(&format!("/run/netns/{}", self.name()));
        let mut command = self.node.nsenter();
        command.arg(format!("--net={}", network.display())).args(["--", program]);
        command.args(arguments);
        command
    }

    /// Runs a command inside the pod to its end and gives what it wrote.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        self.node.require_pid()?;
        program::run(&mut self.command(program, arguments))
    }

    /// Pings an address once; gives the time it took.
    pub fn ping(&self, to: IpAddr) -> Result<Duration> {
        self.node.require_pid()?;
        ping(&format!("{}/{}", self.node.name(), self.name()), self.command("ping", ping_words(to)), to)
    }

    /// Pings until there is an answer: a neighbour that was asked in vain is not asked again for some seconds.
    pub fn wait_ping(&self, to: IpAddr, limit: Duration) -> Result<Duration> {
        let what = format!("an answer from {to} to {}/{}", self.node.name(), self.name());
        self.node.daemon.interrupt.wait_for(&what, limit, || self.ping(to).map_err(|why| why.to_string()))
    }

    /// Waits until packets can come to it from anywhere.
    pub(crate) fn wait_reachable(&self) -> Result<()> {
        let machine = &self.node.machine;
        self.record.ports.iter().try_for_each(|port| machine.wait_carrier(port))?;
        let bridge = self.record.ports.first().filter(|_| self.addresses().any(|address| address.is_ipv6()));
        bridge.map_or(Ok(()), |bridge| machine.wait_link_local(bridge))
    }

    /// Removes the pod.
    pub fn remove(self) -> Result<()> {
        let record = self.node.path(&format!("{RECORDS}/{}.json", self.name()));
        self.node.detach(self.name())?;
        self.node.run("ip", ["netns", "del", self.name()])?;
        fs::remove_file(&record).map_err(LabError::file("remove", record))
    }

    fn write_record(&self) -> Result<()> {
        let folder = self.node.path(RECORDS);
        program::make_folder(&folder)?;
        program::write_json(folder.join(format!("{}.json", self.name())), &self.record)
    }
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
