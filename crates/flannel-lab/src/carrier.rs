//! Waiting until cables carry: the kernel tells of a carrier from a work queue, and a bridge forwards nothing to a
//! port before it has heard. On a busy machine that takes longer than a ping waits.

use std::time::Duration;

use crate::Result;
use crate::machine::Machine;
use crate::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(60);

impl Machine {
    /// Waits until every link that is switched on carries, and every port of a bridge forwards.
    pub(crate) fn wait_carriers(&self) -> Result<()> {
        self.wait_links("")
    }

    /// The same for one link.
    pub(crate) fn wait_carrier(&self, link: &str) -> Result<()> {
        self.wait_links(&format!("dev {link}"))
    }

    /// Waits until DAD of a router's link-local address is over, which takes a second or two: it asks with that address
    /// for the neighbours that it forwards to.
    pub(crate) fn wait_link_local(&self, link: &str) -> Result<()> {
        let words = format!("-6 -o address show dev {link} tentative");
        wait_for(&format!("the addresses of {link} on {}", self.name()), LIMIT, || {
            let said = self.run_in_network("ip", &words).map_err(|why| why.to_string())?;
            if said.is_empty() { Ok(()) } else { Err(said) }
        })
    }

    fn wait_links(&self, which: &str) -> Result<()> {
        let show = |program| {
            let said = self.run_in_network(program, &format!("-o link show {which}"));
            said.map_err(|why| why.to_string())
        };
        wait_for(&format!("the cables of {}", self.name()), LIMIT, || {
            silent(&show("ip")?, &show("bridge")?).map_or(Ok(()), |line| Err(line.to_owned()))
        })
    }
}

/// The first link that is on without a carrier, or port that does not forward.
fn silent<'a>(links: &'a str, ports: &'a str) -> Option<&'a str> {
    let is_silent = |line: &&str| flags(line).any(|flag| flag == "UP") && !line.contains(" state UP ");
    let is_real = |line: &&str| flags(line).all(|flag| flag != "LOOPBACK");
    let link = links.lines().filter(is_real).find(is_silent);
    let is_idle = |line: &&str| !line.contains(" state forwarding ");
    link.or_else(|| ports.lines().find(is_idle))
}

fn flags(line: &str) -> impl Iterator<Item = &str> {
    let inner =
        line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(inner, _)| inner);
    inner.split(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: &str = "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT\n";
    const UP: &str =
        "2: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT\n";
    const OFF: &str = "3: eth1: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN mode DEFAULT\n";
    const ALONE: &str =
        "4: eth2: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN mode DEFAULT";
    const PORT: &str = "5: worker1@if2: <UP> mtu 1500 master switch state forwarding priority 32 cost 2";
    const IDLE: &str = "5: worker1@if2: <UP> mtu 1500 master switch state disabled priority 32 cost 2";

    #[test]
    fn a_link_that_is_on_must_carry_and_a_port_must_forward() {
        let links = [LOOP, UP, OFF].concat();
        assert_eq!(silent(&links, PORT), None);
        assert_eq!(silent(&links, IDLE), Some(IDLE));
        assert_eq!(silent(&[&links, ALONE].concat(), PORT), Some(ALONE));
    }
}
