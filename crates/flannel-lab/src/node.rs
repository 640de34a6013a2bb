//! One node: a machine with a disk, a cable to its rack, and a power switch. flanneld is in `flanneld.rs`, pods
//! are in `pod.rs`.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::lab::BOOT_LIMIT;
use crate::machine::Machine;
use crate::topology::{NodeSpec, Rack};
use crate::wait::Interrupt;
use crate::wiring::CARD;
use crate::{Result, process, wiring};

/// A node of a running lab: a [`Machine`], and more.
#[derive(Debug)]
pub struct Node {
    pub(crate) machine: Machine,
    spec: NodeSpec,
    pub(crate) rack: Rack,
    /// The namespace where the other end of its cable is.
    switch: Arc<Machine>,
    pub(crate) daemon: Arc<Daemon>,
}

/// What every flanneld of a lab is told, and what ends the waiting for it.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// First those that tell which store the lab has.
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) interrupt: Interrupt,
}

impl Deref for Node {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Node {
    pub(crate) fn new(
        machine: Machine,
        rack: &Rack,
        spec: &NodeSpec,
        switch: &Arc<Machine>,
        daemon: &Arc<Daemon>,
    ) -> Self {
        let (spec, rack) = (spec.clone(), Rack { nodes: Vec::new(), ..rack.clone() });
        Self { machine, spec, rack, switch: Arc::clone(switch), daemon: Arc::clone(daemon) }
    }

    /// What the topology says of it.
    pub fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    /// The name of its rack, whose machine is the switch at the other end of its cable.
    pub fn rack(&self) -> &str {
        &self.rack.name
    }

    /// Its IPv4 address in the underlay.
    pub fn v4(&self) -> IpAddr {
        self.spec.v4()
    }

    /// Its IPv6 address in the underlay.
    pub fn v6(&self) -> IpAddr {
        self.spec.v6()
    }

    /// Runs `ip` inside the node's network, quicker than [`Machine::run`]: words are separated by spaces.
    pub fn ip(&self, words: &str) -> Result<String> {
        self.run_in_network("ip", words)
    }

    /// Runs `bridge` inside the node's network: words are separated by spaces.
    pub fn bridge(&self, words: &str) -> Result<String> {
        self.run_in_network("bridge", words)
    }

    /// Pings an address of the underlay from the node; gives the time it took.
    pub fn ping(&self, to: IpAddr) -> Result<std::time::Duration> {
        self.require_pid()?;
        crate::pod::ping(self.name(), self.command("ping", crate::pod::ping_words(to)), to)
    }

    /// Cuts the power: all its processes, namespaces and its /run are gone at once; its disk stays.
    pub fn power_off(&self) -> Result<()> {
        self.remember_pods()?;
        self.cut_power()?;
        // The kernel removes the cable with the node's network, but some time later; a reboot may be sooner.
        let _ = self.switch.ip_batch(&format!("link del {}\n", self.name()));
        Ok(())
    }

    /// Boots it again on the same disk, with its cable and addresses; flanneld is not started.
    pub fn power_on(&self) -> Result<()> {
        self.begin_boot()?;
        self.finish_boot()?;
        let what = format!("the first process of {}", self.name());
        let pid = self.daemon.interrupt.wait_for(&what, BOOT_LIMIT, || {
            self.find_pid(&process::processes_of(self.lab()));
            self.pid().ok_or_else(|| "it is not seen".to_owned())
        })?;
        self.switch.ip_batch(&wiring::cable_lines(&self.spec, pid))?;
        self.wire()?;
        self.switch.wait_carrier(self.name())
    }

    /// Gives the card its addresses and routes.
    pub(crate) fn wire(&self) -> Result<()> {
        self.ip_batch(&wiring::node_lines(&self.spec, &self.rack))
    }

    /// Pulls the cable: the switch's port goes down, and the card loses its carrier.
    pub fn unplug(&self) -> Result<()> {
        self.switch.ip_batch(&format!("link set {} down\n", self.name()))
    }

    /// Plugs the cable in again, and waits until it carries.
    pub fn plug(&self) -> Result<()> {
        self.switch.ip_batch(&format!("link set {} up\n", self.name()))?;
        self.switch.wait_carrier(self.name())?;
        self.wait_carrier(CARD)
    }

    /// Whether the cable is pulled.
    pub fn is_unplugged(&self) -> Result<bool> {
        let port = self.switch.run_in_network("ip", &format!("link show {}", self.name()))?;
        Ok(!port.contains(",UP"))
    }

    /// The switch at the other end of the cable; its port has the node's name.
    pub fn switch(&self) -> &Machine {
        &self.switch
    }
}
