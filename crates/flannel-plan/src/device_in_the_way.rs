//! What others have that stands in the way of a tunnel device, and which devices only a trial can tell of.
//!
//! Takes the devices that a net-conf asks for and an observation of the host. What is found here is known before anything
//! is touched: a device that is in use is not given up for one that cannot be made.

use crate::family::Family;
use crate::finding::{Code, Finding};
use crate::observation::{Observation, Scope};
use crate::ownership::owned_links;
use crate::state::{Key, Link, LinkKind, Vxlan};

/// A device of somebody else that has the name of one of ours.
pub fn name_taken(link: &Link) -> Finding {
    let remedy = format!("remove it with `ip link del {}`, or choose another VNI", link.name);
    let text = format!("{link} is not ours: {remedy}");
    Finding::new(Code::DeviceInTheWay, Key::Link(link.name), text).with_parts(None, Some(remedy))
}

/// The first device of somebody else that a device of ours cannot be made beside.
pub fn in_the_way(wanted: &[Link], scope: &Scope, observation: &Observation) -> Option<Finding> {
    let ours = owned_links(scope, observation);
    let theirs = || observation.links.iter().map(|fact| &fact.link).filter(|link| !ours.contains(&link.name));
    wanted.iter().find_map(|want| theirs().find_map(|other| contest(want, other)))
}

fn contest(want: &Link, other: &Link) -> Option<Finding> {
    let by = other.name;
    let (cause, remedy) = match &want.kind {
        _ if want.name == by => (
            format!("the {} {by} is not ours", other.kind.name()),
            format!("remove it with `ip link del {by}`, or choose another VNI"),
        ),
        LinkKind::Vxlan(vxlan) => contest_of_vxlan(vxlan, other)?,
        LinkKind::Other(_) => return None,
    };
    let finding =
        Finding::new(Code::DeviceInTheWay, Key::Link(want.name), format!("{} cannot be made", want.name));
    Some(finding.because(cause).or_do(remedy))
}

/// What only one of two devices can have, and the way out.
fn contest_of_vxlan(want: &Vxlan, other: &Link) -> Option<(String, String)> {
    let theirs = other.kind.vxlan().filter(|theirs| is_same_socket(want, theirs))?;
    let (by, port) = (other.name, want.port);
    if want.gbp == theirs.gbp {
        let cause = format!("{by} has VNI {} on UDP port {port}", want.vni);
        let remedy = format!("remove it with `ip link del {by}`, or choose another VNI or Port");
        return (want.vni == theirs.vni).then_some((cause, remedy));
    }
    let with = if theirs.gbp { "with" } else { "without" };
    let cause = format!("{by} uses UDP port {port} {with} the group policy extension (GBP)");
    other.up.then(|| (cause, format!("set GBP as {by} has it, or choose another Port")))
}

/// The devices whose making may fail for a reason that no observation shows: the kernel lacks the kind, or a program has
/// the port. Where a device of ours has the port already, neither can be.
pub fn untried(wanted: &[Link], scope: &Scope, observation: &Observation) -> Vec<Link> {
    let ours = owned_links(scope, observation);
    let up: Vec<&Vxlan> = observation
        .links
        .iter()
        .filter(|fact| fact.link.up && ours.contains(&fact.link.name))
        .filter_map(|fact| fact.link.kind.vxlan())
        .collect();
    let is_sure = |link: &Link| match &link.kind {
        LinkKind::Vxlan(want) => up.iter().any(|have| is_same_socket(want, have)),
        LinkKind::Other(_) => false,
    };
    wanted.iter().filter(|link| !is_sure(link)).cloned().collect()
}

/// Devices of one port and family share a socket. One without a source address is of IPv4, as the kernel counts.
fn is_same_socket(a: &Vxlan, b: &Vxlan) -> bool {
    let family = |vxlan: &Vxlan| vxlan.local.map_or(Family::V4, Family::of);
    (a.port, family(a)) == (b.port, family(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac::Mac;
    use crate::observation::LinkFact;

    const PORT: u16 = 8472;

    fn tunnel(name: &str, vni: u32, port: u16) -> Link {
        let local = Some("10.0.0.1".parse().unwrap());
        let kind = LinkKind::Vxlan(Vxlan { vni, port, lower: None, local, learning: false, gbp: false });
        Link {
            name: name.parse().unwrap(),
            mac: Some(Mac([2; 6])),
            mtu: 1450,
            up: true,
            alias: "".into(),
            kind,
        }
    }

    fn with_gbp(mut link: Link) -> Link {
        let LinkKind::Vxlan(vxlan) = &mut link.kind else { panic!("{link}") };
        vxlan.gbp = true;
        link
    }

    fn observe(links: &[Link]) -> Observation {
        let fact = |link: &Link| LinkFact { index: 1, link: link.clone(), running: true, loopback: false };
        Observation { links: links.iter().map(fact).collect(), ..Observation::default() }
    }

    fn scope() -> Scope {
        Scope {
            instance: "flanneld x".to_owned(),
            links: vec!["flannel.7".parse().unwrap()],
            ..Scope::default()
        }
    }

    fn said(want: Link, there: &[Link]) -> Option<String> {
        in_the_way(&[want], &scope(), &observe(there)).map(|finding| finding.text)
    }

    #[test]
    fn a_device_of_the_same_vni_and_port_stands_in_the_way_up_or_down() {
        let want = || tunnel("flannel.7", 7, PORT);
        let why = "flannel.7 cannot be made: other has VNI 7 on UDP port 8472; remove it with `ip link del other`, or \
                   choose another VNI or Port";
        assert_eq!(said(want(), &[tunnel("other", 7, PORT)]).as_deref(), Some(why));
        let down = Link { up: false, ..tunnel("other", 7, PORT) };
        assert_eq!(said(want(), &[down]).as_deref(), Some(why));
        assert_eq!(said(want(), &[tunnel("other", 8, PORT), tunnel("more", 7, 4789)]), None);
        let ours = Link { alias: "flanneld x".into(), ..tunnel("flannel.1", 7, PORT) };
        assert_eq!(said(want(), &[ours, tunnel("flannel.7", 7, PORT)]), None, "ours to change");
    }

    #[test]
    fn a_port_with_the_other_group_policy_stands_in_the_way_while_it_is_up() {
        let other = with_gbp(tunnel("other", 9, PORT));
        let why = "flannel.7 cannot be made: other uses UDP port 8472 with the group policy extension (GBP); set GBP as \
                   other has it, or choose another Port";
        let down = Link { up: false, ..other.clone() };
        assert_eq!(said(tunnel("flannel.7", 7, PORT), &[other]).as_deref(), Some(why));
        assert_eq!(said(tunnel("flannel.7", 7, PORT), &[down]), None);
    }

    #[test]
    fn a_device_of_our_name_stands_in_the_way_unless_it_is_ours() {
        let bridge = Link { kind: LinkKind::Other("bridge".into()), ..tunnel("flannel.7", 7, PORT) };
        let why = "flannel.7 cannot be made: the bridge flannel.7 is not ours; remove it with `ip link del flannel.7`, or \
                   choose another VNI";
        assert_eq!(said(tunnel("flannel.7", 7, PORT), &[bridge]).as_deref(), Some(why));
        let others = Link { alias: "flanneld y".into(), ..tunnel("flannel.7", 7, PORT) };
        assert!(said(tunnel("flannel.7", 7, PORT), &[others]).is_some());
    }

    #[test]
    fn only_a_port_that_no_device_of_ours_has_must_be_tried() {
        let ours = Link { alias: "flanneld x".into(), ..tunnel("flannel.1", 1, PORT) };
        let (same, other) = (tunnel("flannel.7", 7, PORT), tunnel("flannel.7", 7, 4790));
        let tried = |want: Link, there: Link| untried(&[want], &scope(), &observe(&[there])).len();
        assert_eq!(tried(same.clone(), ours.clone()), 0);
        assert_eq!(tried(with_gbp(same.clone()), ours.clone()), 0, "a trial would clash with our own");
        assert_eq!(tried(other, ours.clone()), 1);
        assert_eq!(tried(same, Link { up: false, ..ours }), 1);
    }
}
