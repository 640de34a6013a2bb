//! Whose a rule of a port mapping is: the marks by which those of an attachment are known.
//!
//! The interface is unique in a container, so container and interface name an attachment whatever its network is
//! called by now. Rules of Go's plugin name only the container, or the container and the network; then the
//! addresses that they lead to decide, if we know ours, else the ports.

use std::net::IpAddr;

use flannel_plan::rules::{Action, Is, Match, Rule, UDP};

use super::config::{container_addresses, host_ports};
use crate::firewall::{Meant, Owner, names};
use crate::request::{AttachmentId, Request};

/// The owner that a call names; what is unreadable is not known, for DEL must go on.
pub(super) fn of(request: &Request) -> Owner<'_> {
    let previous = request.prev_result().ok().flatten();
    let addresses = previous.map(|previous| container_addresses(&previous, &request.ifname));
    Owner { request, addresses: addresses.unwrap_or_default(), ports: host_ports(request).0 }
}

/// Whether a rule of nftables is meant. Rules of Go's plugin do not say which network they belong to.
pub(super) fn is_meant(meant: Meant<'_>, rule: &Rule) -> bool {
    let (Some(container), tag) = (rule.comment.as_deref(), rule.tag.as_deref()) else { return false };
    match (meant, tag) {
        (Meant::Attachment(owner), _) if comment_of(&owner.request.container_id) != container => false,
        (Meant::Attachment(owner), Some(tag)) => names::ifname(tag) == owner.request.ifname,
        (Meant::Attachment(owner), None) => may_own(owner, &Leads::of([rule])),
        (Meant::AllBut(network, valid), Some(tag)) => {
            let is_it = |id: &AttachmentId, ifname: &str| {
                comment_of(&id.container_id) == container && id.ifname == ifname
            };
            names::ifname_in(tag, network).is_some_and(|ifname| !valid.iter().any(|id| is_it(id, ifname)))
        }
        (Meant::AllBut(..), None) => false,
    }
}

/// Whether rules that name an owner's container and no interface can be the owner's.
pub(super) fn may_own(owner: &Owner<'_>, leads: &Leads) -> bool {
    if !owner.addresses.is_empty() && !leads.to.is_empty() {
        return owner.addresses.iter().any(|address| leads.to.contains(&address.addr()));
    }
    if !owner.ports.is_empty() && !leads.ports.is_empty() {
        return leads.ports.iter().any(|port| owner.ports.contains(port));
    }
    true
}

/// What rules tell about where they lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leads {
    pub(super) to: Vec<IpAddr>,
    /// The host's ports that they are about.
    pub(super) ports: Vec<u16>,
    /// Those of them that are of UDP.
    pub(super) udp: Vec<u16>,
}

impl Leads {
    pub(super) fn of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut leads = Self::default();
        rules.into_iter().for_each(|rule| leads.add(rule));
        leads
    }

    fn add(&mut self, rule: &Rule) {
        for it in &rule.matches {
            if let Match::DestinationPort(Is::Equal, port) = it {
                self.ports.push(*port);
                self.udp.extend((rule.protocol() == Some(UDP)).then_some(*port));
            }
        }
        match &rule.action {
            Action::Dnat(address, _) => self.to.push(*address),
            // Of masquerade the destination is the container, of a mapping it is the host.
            Action::Masquerade(..) => self.to.extend(rule.matches.iter().find_map(|it| match it {
                Match::Destination(Is::Equal, network) => Some(network.addr()),
                _ => None,
            })),
            _ => {}
        }
    }
}

/// What `nft` takes of a container's name.
pub(super) fn comment_of(container: &str) -> &str {
    &container[..container.floor_char_boundary(128)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Environment;

    fn request() -> Request {
        let environment = Environment {
            command: "DEL".to_owned(),
            container_id: "c0ffee".to_owned(),
            ifname: "eth0".to_owned(),
            ..Environment::default()
        };
        Request::read(&environment, br#"{"cniVersion": "1.1.0", "name": "mynet"}"#).unwrap()
    }

    fn owns(known: (&[&str], &[u16]), comment: &str, tag: Option<&str>, leads: (&str, u16)) -> bool {
        let addresses = known.0.iter().map(|text| text.parse().unwrap()).collect();
        let request = request();
        let owner = Owner { request: &request, addresses, ports: known.1.to_vec() };
        let matches = Match::port(UDP, leads.1);
        let rule = Rule::new(matches, Action::Dnat(leads.0.parse().unwrap(), None)).comment(comment);
        is_meant(Meant::Attachment(&owner), &Rule { tag: tag.map(Into::into), ..rule })
    }

    #[test]
    fn a_tag_decides_by_the_interface_whatever_the_network_is_called() {
        let known = (&["10.0.0.2/24"][..], &[80][..]);
        assert!(owns(known, "c0ffee", Some("eth0 mynet"), ("10.0.0.9", 9)));
        assert!(owns(known, "c0ffee", Some("eth0 renamed"), ("10.0.0.9", 9)));
        assert!(!owns(known, "c0ffee", Some("net1 mynet"), ("10.0.0.2", 80)));
        assert!(!owns(known, "other", Some("eth0 mynet"), ("10.0.0.2", 80)));
    }

    #[test]
    fn without_a_tag_the_address_decides_then_the_port_then_the_container_alone() {
        let known = (&["10.0.0.2/24"][..], &[80][..]);
        assert!(owns(known, "c0ffee", None, ("10.0.0.2", 9)));
        assert!(!owns(known, "c0ffee", None, ("10.1.0.2", 80)));
        let by_port = (&[][..], &[80][..]);
        assert!(owns(by_port, "c0ffee", None, ("10.1.0.2", 80)));
        assert!(!owns(by_port, "c0ffee", None, ("10.1.0.2", 81)));
        assert!(owns((&[], &[]), "c0ffee", None, ("10.1.0.2", 81)));
    }
}
