//! The truth table: packets, and the source address that their receivers see.
//!
//! Takes `truth.txt`, gives cases; a case sends its packet for real and says whose address came.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::Family;
use crate::netns::Netns;
use crate::services::{MARKED, OPEN};
use crate::site::Site;

/// How long a packet may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A packet is sent again while a neighbour is still asked for.
const AGAIN: Duration = Duration::from_millis(300);

/// What the packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One datagram, one way.
    Udp,
    /// A connection, so the answers have to find back.
    Tcp,
}

/// A packet, and the source that its receiver should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The family.
    pub family: Family,
    /// Who sends.
    pub from: String,
    /// With which source address; none lets the kernel choose.
    pub source: Option<String>,
    /// Where to.
    pub to: String,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Who receives.
    pub receiver: String,
    /// Whose address is seen.
    pub seen: String,
    /// What the packet stands for.
    pub why: String,
}

/// All cases, each in every family that it is for.
pub fn cases() -> Vec<Case> {
    let lines = include_str!("../truth.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(|line| Family::BOTH.map(|family| Case::read(line, family))).flatten().collect()
}

impl Case {
    /// Reads a line of the table; none if it is not for this family.
    pub fn read(line: &str, family: Family) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("too short: {line}"));
        let families = word();
        let (from, to, receiver, seen) = (word(), word(), word(), word());
        let (from, source) = from.split_once('@').map_or((from, None), |(from, source)| (from, Some(source)));
        let (to, protocol) = to.strip_suffix("/tcp").map_or((to, Protocol::Udp), |to| (to, Protocol::Tcp));
        let (to, port) = to.split_once(':').map_or((to, OPEN), |(to, port)| (to, port.parse().unwrap()));
        let wanted = match family {
            Family::V4 => families.contains('4'),
            Family::V6 => families.contains('6'),
        };
        wanted.then(|| Self {
            family,
            from: from.to_owned(),
            source: source.map(str::to_owned),
            to: to.to_owned(),
            port,
            protocol,
            receiver: receiver.to_owned(),
            seen: seen.to_owned(),
            why: words.collect::<Vec<_>>().join(" "),
        })
    }

    /// Sends the packet; gives the name of the source that came, or what went wrong.
    pub fn play(&self, site: &Site) -> String {
        let (from, receiver) = (site.netns(&self.from), site.netns(&self.receiver));
        let source =
            self.source.as_ref().map_or(self.family.unspecified(), |name| site.address(name, self.family));
        let to = SocketAddr::new(site.address(&self.to, self.family), self.port);
        let seen = match self.protocol {
            Protocol::Udp => self.datagram(&from.udp(source, 0), to, &receiver),
            Protocol::Tcp => connection(&from, source, to, &receiver),
        };
        seen.map_or_else(|why| why, |address| site.name_of(address))
    }

    /// The name of the source address that the packet is sent with; the sender's own where the kernel chooses.
    pub fn sender(&self) -> &str {
        self.source.as_ref().unwrap_or(&self.from)
    }

    /// The mark that it gets on the first node.
    pub fn mark(&self) -> u32 {
        MARKED.iter().find(|(port, _)| *port == self.port).map_or(0, |(_, mark)| *mark)
    }

    fn datagram(&self, sender: &UdpSocket, to: SocketAddr, receiver: &Netns) -> Result<IpAddr, String> {
        let port = if (30000..31000).contains(&self.port) { OPEN } else { self.port };
        let socket = match to.ip().is_multicast() {
            true => receiver.udp_of_group(to.ip(), port),
            false => receiver.udp(self.family.unspecified(), port),
        };
        socket.set_read_timeout(Some(AGAIN)).unwrap();
        let (start, said) = (Instant::now(), self.to_string());
        let mut heard = vec![0; 1000];
        while start.elapsed() < PATIENCE {
            sender.send_to(said.as_bytes(), to).map_err(|why| format!("cannot be sent: {why}"))?;
            match socket.recv_from(&mut heard) {
                Ok((length, source)) if heard[..length] == *said.as_bytes() => return Ok(source.ip()),
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                Err(why) => return Err(why.to_string()),
            }
        }
        Err("nothing came".to_owned())
    }
}

fn connection(from: &Netns, source: IpAddr, to: SocketAddr, receiver: &Netns) -> Result<IpAddr, String> {
    let listener = receiver.listener(Family::of(source), OPEN);
    let client = from.connect(source, to, PATIENCE).map_err(|why| format!("no connection: {why}"))?;
    let (server, seen) = listener.accept().map_err(|why| why.to_string())?;
    drop((client, server));
    Ok(seen.ip())
}

/// Without what is expected.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source.as_ref().map_or_else(String::new, |source| format!("@{source}"));
        let Self { family, from, to, port, protocol, receiver, why, .. } = self;
        write!(f, "{family:?} {from}{source} -> {to}:{port} {protocol:?} at {receiver} ({why})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_a_packet_in_each_of_its_families() {
        let expected = Case {
            family: Family::V6,
            from: "one".to_owned(),
            source: Some("one.cni0".to_owned()),
            to: "far".to_owned(),
            port: 7100,
            protocol: Protocol::Tcp,
            receiver: "far".to_owned(),
            seen: "one".to_owned(),
            why: "some words".to_owned(),
        };
        let line = "46 one@one.cni0 far:7100/tcp far one some words";
        assert_eq!(Case::read(line, Family::V6), Some(expected));
        assert_eq!(Case::read("4 one.a two.a two.a one.a words", Family::V6), None);
    }

    #[test]
    fn there_are_at_least_sixty_packets() {
        assert!(cases().len() >= 60, "{}", cases().len());
    }
}
