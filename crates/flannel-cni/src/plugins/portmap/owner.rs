//! Whose a rule is: the attachment that a call is about, and the marks by which its rules are known.
//!
//! The interface is unique in a container, so container and interface name an attachment whatever its network is
//! called by now. Rules of Go's plugin name only the container, or the container and the network; then the
//! addresses that they lead to decide, if we know ours, else the ports.

use std::net::IpAddr;

use flannel_plan::rules::{Action, Is, Match, Rule, UDP};

use super::config::{container_addresses, host_ports};
use crate::firewall::names;
use crate::request::{AttachmentId, Request};

/// The attachment that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) network: String,
    pub(super) container: String,
    pub(super) ifname: String,
    /// Its addresses, if the runtime told us.
    pub(super) addresses: Vec<IpAddr>,
    /// The host's ports, if the runtime told us.
    pub(super) ports: Vec<u16>,
}

/// What is to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meant<'a> {
    /// Everything of one attachment.
    Attachment(&'a Owner),
    /// Everything of a network but what belongs to these.
    AllBut(&'a str, &'a [AttachmentId]),
}

impl Meant<'_> {
    /// Whether a rule of nftables with this comment and tag is meant. Rules of Go's plugin do not say which
    /// network they belong to.
    pub(super) fn takes_rule(self, comment: Option<&str>, tag: Option<&str>, leads: &Leads) -> bool {
        match (self, comment, tag) {
            (Self::Attachment(owner), ..) => owner.owns(comment, tag, leads),
            (Self::AllBut(network, valid), Some(container), Some(tag)) => {
                let is_valid = |ifname: &str| {
                    valid.iter().any(|id| comment_of(&id.container_id) == container && id.ifname == ifname)
                };
                names::ifname_in(tag, network).is_some_and(|ifname| !is_valid(ifname))
            }
            (Self::AllBut(..), ..) => false,
        }
    }

    /// Whether a container's chain of iptables with this comment is meant.
    pub(super) fn takes_chain(self, prefix: &str, chain: &str, comment: &str) -> Takes {
        let named = names::read_comment("dnat ", comment).or_else(|| names::read_comment("snat ", comment));
        let takes = |is_meant| if is_meant { Takes::Yes } else { Takes::No };
        match (self, named) {
            (Self::Attachment(owner), _)
                if names::chain(prefix, &owner.network, &owner.container) == chain =>
            {
                Takes::Yes
            }
            (Self::Attachment(owner), Some((_, container))) if owner.container == container => {
                Takes::IfItLeadsThere
            }
            (Self::AllBut(network, valid), Some((of, container))) => {
                takes(of == network && !valid.iter().any(|id| id.container_id == container))
            }
            (Self::Attachment(_), Some(_)) | (_, None) => Takes::No,
        }
    }

    /// Whether a chain that names our container and another network leads to us.
    pub(super) fn may_take(self, leads: &Leads) -> bool {
        match self {
            Self::Attachment(owner) => owner.may_own(leads),
            Self::AllBut(..) => false,
        }
    }
}

/// Whether a chain is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Yes,
    No,
    /// It names our container and another network: ours by an older name, or that of another interface.
    IfItLeadsThere,
}

/// What a rule tells about where it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leads {
    pub(super) to: Vec<IpAddr>,
    /// The host's ports that it is about.
    pub(super) ports: Vec<u16>,
    /// Those of them that are of UDP.
    pub(super) udp: Vec<u16>,
}

impl Leads {
    /// Adds what a rule says.
    pub(super) fn add(&mut self, rule: &Rule) {
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

impl Owner {
    /// The owner that a call names; what is unreadable is not known, for DEL must go on.
    pub(super) fn of(request: &Request) -> Self {
        let previous = request.prev_result().ok().flatten();
        let addresses = previous.map(|previous| container_addresses(&previous, &request.ifname));
        Self {
            network: request.network.clone(),
            container: request.container_id.clone(),
            ifname: request.ifname.clone(),
            addresses: addresses.unwrap_or_default().iter().map(|address| address.addr()).collect(),
            ports: host_ports(request).0,
        }
    }

    /// Whether a rule of nftables with this comment and tag is ours.
    pub(super) fn owns(&self, comment: Option<&str>, tag: Option<&str>, leads: &Leads) -> bool {
        comment == Some(comment_of(&self.container))
            && tag.map_or_else(|| self.may_own(leads), |tag| names::ifname(tag) == self.ifname)
    }

    /// Whether a rule that names our container and no interface can be ours.
    pub(super) fn may_own(&self, leads: &Leads) -> bool {
        if !self.addresses.is_empty() && !leads.to.is_empty() {
            return leads.to.iter().any(|address| self.addresses.contains(address));
        }
        if !self.ports.is_empty() && !leads.ports.is_empty() {
            return leads.ports.iter().any(|port| self.ports.contains(port));
        }
        true
    }
}

/// What `nft` takes of a container's name.
pub(super) fn comment_of(container: &str) -> &str {
    &container[..container.floor_char_boundary(128)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(addresses: &[&str], ports: &[u16]) -> Owner {
        Owner {
            network: "mynet".to_owned(),
            container: "c0ffee".to_owned(),
            ifname: "eth0".to_owned(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ports: ports.to_vec(),
        }
    }

    fn leads(to: &str, ports: &[u16]) -> Leads {
        Leads { to: vec![to.parse().unwrap()], ports: ports.to_vec(), udp: vec![] }
    }

    #[test]
    fn a_tag_decides_by_the_interface_whatever_the_network_is_called() {
        let owner = owner(&["10.0.0.2"], &[80]);
        let elsewhere = leads("10.0.0.9", &[9]);
        assert!(owner.owns(Some("c0ffee"), Some("eth0 mynet"), &elsewhere));
        assert!(owner.owns(Some("c0ffee"), Some("eth0 renamed"), &elsewhere));
        assert!(!owner.owns(Some("c0ffee"), Some("net1 mynet"), &leads("10.0.0.2", &[80])));
        assert!(!owner.owns(Some("other"), Some("eth0 mynet"), &leads("10.0.0.2", &[80])));
    }

    #[test]
    fn without_a_tag_the_address_decides_then_the_port_then_the_container_alone() {
        let known = owner(&["10.0.0.2"], &[80]);
        assert!(known.owns(Some("c0ffee"), None, &leads("10.0.0.2", &[9])));
        assert!(!known.owns(Some("c0ffee"), None, &leads("10.1.0.2", &[80])));
        let by_port = owner(&[], &[80]);
        assert!(by_port.owns(Some("c0ffee"), None, &leads("10.1.0.2", &[80])));
        assert!(!by_port.owns(Some("c0ffee"), None, &leads("10.1.0.2", &[81])));
        assert!(owner(&[], &[]).owns(Some("c0ffee"), None, &leads("10.1.0.2", &[81])));
    }
}
