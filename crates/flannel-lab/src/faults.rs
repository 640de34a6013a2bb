//! Breaking a node on purpose, and putting right what flanneld cannot.
//!
//! Takes a node and a kind of fault, gives a [`Broken`] that says what was done and can wait until everything is
//! as it was before.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::lab::Lab;
use crate::node::Node;
use crate::{LabError, Result};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The route to a peer's pods is deleted.
    Route,
    /// The route to a peer's pods leads elsewhere.
    WrongRoute,
    /// The entry that says which node has a peer's tunnel is deleted.
    Fdb,
    /// The entry that says which MAC a peer's tunnel has is deleted.
    Neighbour,
    /// The tunnel device is deleted, with all that hangs on it.
    Link,
    /// The tunnel device is set down, which drops its routes.
    LinkDown,
    /// The tunnel device loses its address.
    Address,
    /// The tunnel device gets a smaller MTU.
    Mtu,
    /// The tunnel device gets a MAC that no peer knows.
    Mac,
    /// The node's cable is pulled.
    Cable,
    /// The node's power fails.
    Power,
}

impl Fault {
    /// All of them, with the names by which a person chooses one.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Route, "route"),
        (Self::WrongRoute, "wrong-route"),
        (Self::Fdb, "fdb"),
        (Self::Neighbour, "neighbour"),
        (Self::Link, "link"),
        (Self::LinkDown, "link-down"),
        (Self::Address, "address"),
        (Self::Mtu, "mtu"),
        (Self::Mac, "mac"),
        (Self::Cable, "cable"),
        (Self::Power, "power"),
    ];

    /// Whether flanneld can repair it; the others need [`Lab::heal`].
    pub fn is_repairable(self) -> bool {
        !matches!(self, Self::Cable | Self::Power)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(fault, _)| fault == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(fault, _)| fault);
        found.ok_or_else(|| format!("faults are {}", Self::ALL.map(|(_, name)| name).join(", ")))
    }
}

/// Something that was broken.
#[derive(Debug)]
pub struct Broken<'a> {
    node: &'a Node,
    fault: Fault,
    command: String,
    before: Option<Overlay>,
    since: Instant,
}

/// All that flannel keeps in a node's kernel for its peers, as text: equal text is an equal node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlay(Vec<String>);

impl Lab {
    /// Breaks one thing on a node. Faults of one peer take the named one, or else a node of another rack.
    pub fn break_node(&self, node: &str, fault: Fault, peer: Option<&str>) -> Result<Broken<'_>> {
        let node = self.node(node)?;
        if !fault.is_repairable() {
            return node.cut(fault);
        }
        let command = node.breaking(fault, self.peer_of(node, peer)?.pod_subnet()?)?;
        let before = Overlay::of(node)?;
        let since = Instant::now();
        let (program, words) = command.split_once(' ').unwrap_or((&command, ""));
        node.run_in_network(program, words)?;
        Ok(Broken { node, fault, command, before: Some(before), since })
    }

    fn peer_of(&self, node: &Node, named: Option<&str>) -> Result<&Node> {
        if let Some(name) = named {
            return self.node(name);
        }
        let others =
            || self.nodes().iter().filter(|other| other.name() != node.name() && other.pid().is_some());
        let far = others().find(|other| other.rack() != node.rack());
        far.or_else(|| others().next()).ok_or_else(|| node.unbreakable("the lab has no other node"))
    }

    /// Puts right what flanneld cannot: power, cable, flanneld itself. Says what it did.
    pub fn heal(&self, node: &str, limit: Duration) -> Result<Vec<String>> {
        let node = self.node(node)?;
        let mut done = Vec::new();
        if node.pid().is_none() {
            node.power_on()?;
            done.push("power on".to_owned());
        }
        if node.is_unplugged()? {
            node.plug()?;
            done.push("cable plugged in".to_owned());
        }
        if !node.flanneld().lives() {
            node.start_flanneld([] as [&str; 0])?;
            node.wait_ready(limit)?;
            done.push("flanneld started".to_owned());
        }
        let pods = node.restore_pods()?;
        done.extend(pods.iter().map(|pod| format!("pod {} started with {}", pod.name(), pod.address())));
        Ok(done)
    }
}

impl Broken<'_> {
    /// What was done, as a command or in words.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Waits until all that flannel keeps in the node's kernel is as it was; gives the time since it was broken.
    pub fn wait_repaired(&self, limit: Duration) -> Result<Duration> {
        let what = format!("{} to repair its {}", self.node.name(), self.fault);
        self.node.daemon.interrupt.wait_for(&what, limit, || {
            let now = Overlay::of(self.node).map_err(|why| why.to_string())?;
            match &self.before {
                Some(before) if *before == now => Ok(self.since.elapsed()),
                Some(before) => Err(before.differences(&now)),
                None => Err("only `flannelctl lab heal` can".to_owned()),
            }
        })
    }
}

impl Overlay {
    fn of(node: &Node) -> Result<Self> {
        let device = node.tunnel()?;
        let mut lines = "route show\n".to_owned();
        if let Some(device) = &device {
            lines += &format!("link show dev {device}\naddress show dev {device} scope global\n");
            lines += &format!("neighbour show dev {device} nud permanent\n");
        }
        let mut said = node.ip_lines(&["-o", "-batch", "-"], &lines)?;
        if let Some(device) = &device {
            said += &node.bridge(&format!("fdb show dev {device}"))?;
        }
        let mut lines: Vec<_> = said.lines().map(|line| without_index(line).trim().to_owned()).collect();
        lines.sort();
        Ok(Self(lines))
    }

    fn differences(&self, now: &Self) -> String {
        let lost = self.0.iter().filter(|line| !now.0.contains(line)).map(|line| format!("- {line}"));
        let new = now.0.iter().filter(|line| !self.0.contains(line)).map(|line| format!("+ {line}"));
        lost.chain(new).collect::<Vec<_>>().join("\n")
    }
}

/// A device that is made anew has a new number in front of its line.
fn without_index(line: &str) -> &str {
    match line.split_once(": ") {
        Some((index, rest)) if index.parse::<u32>().is_ok() => rest,
        _ => line,
    }
}

impl Node {
    fn unbreakable(&self, why: &str) -> LabError {
        LabError::failed(format!("cannot break {} so", self.name()), why)
    }

    /// Flannel's vxlan device for IPv4, if the backend has one.
    pub fn tunnel(&self) -> Result<Option<String>> {
        let links = self.ip("-o link show type vxlan")?;
        let names = links.lines().filter_map(|line| without_index(line).split(':').next());
        Ok(names.filter(|name| name.starts_with("flannel.")).map(str::to_owned).next())
    }

    /// The command that does the damage, for some faults to what leads to the pods of a peer.
    fn breaking(&self, fault: Fault, subnet: IpNet) -> Result<String> {
        let device = || self.tunnel()?.ok_or_else(|| self.unbreakable("its backend has no tunnel device"));
        Ok(match fault {
            Fault::Route => format!("ip route del {subnet}"),
            Fault::WrongRoute => format!("ip route replace {subnet} via {}", self.rack.gateway()),
            Fault::Fdb => {
                let device = device()?;
                format!("bridge fdb del {} dev {device} self", self.peer_mac(subnet, &device)?)
            }
            Fault::Neighbour => format!("ip neighbour del {} dev {}", subnet.addr(), device()?),
            Fault::Link => format!("ip link del {}", device()?),
            Fault::LinkDown => format!("ip link set {} down", device()?),
            Fault::Address => format!("ip address flush dev {} scope global", device()?),
            Fault::Mtu => format!("ip link set {} mtu 1300", device()?),
            Fault::Mac => format!("ip link set {} address 02:de:ad:be:ef:00", device()?),
            Fault::Cable | Fault::Power => return Err(self.unbreakable("bug: not a matter of commands")),
        })
    }

    fn peer_mac(&self, subnet: IpNet, device: &str) -> Result<String> {
        let said = self.ip(&format!("neighbour show {} dev {device}", subnet.addr()))?;
        let mac = said.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
        mac.map(str::to_owned).ok_or_else(|| self.unbreakable(&format!("{subnet} is not behind {device}")))
    }

    fn cut(&self, fault: Fault) -> Result<Broken<'_>> {
        let since = Instant::now();
        let command = if fault == Fault::Cable {
            self.unplug()?;
            format!("ip link set {} down (on the switch {})", self.name(), self.rack())
        } else {
            self.power_off()?;
            "kill -9 of its first process".to_owned()
        };
        Ok(Broken { node: self, fault, command, before: None, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_found_by_its_name() {
        assert!(
            Fault::ALL.iter().all(|(fault, name)| name.parse() == Ok(*fault) && fault.to_string() == *name)
        );
        assert!("rust".parse::<Fault>().is_err());
    }

    #[test]
    fn a_device_with_a_new_number_is_the_same_device() {
        assert_eq!(without_index("12: flannel.1: <UP> mtu 1450"), "flannel.1: <UP> mtu 1450");
        assert_eq!(without_index("fe80: x"), "fe80: x");
    }

    #[test]
    fn what_differs_is_shown_with_its_sign() {
        let overlay = |lines: &[&str]| Overlay(lines.iter().map(|line| (*line).to_owned()).collect());
        assert_eq!(overlay(&["a", "b"]).differences(&overlay(&["b", "c"])), "- a\n+ c");
    }
}
