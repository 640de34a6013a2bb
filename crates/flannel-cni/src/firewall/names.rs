//! The names by which Go's plugins find their rules again, and so do we: hashes and comments.
//!
//! Rules of nftables carry a tag beside their comment, which names the interface and the network as well.

use sha2::{Digest, Sha512};

use crate::request::Request;

/// The longest chain name that every iptables takes.
const LONGEST_CHAIN: usize = 28;
/// What the kernel keeps of a tag.
const LONGEST_TAG: usize = 120;

/// The first `length` hexadecimal digits of a text's hash.
pub(crate) fn hash(text: &str, length: usize) -> String {
    let digits = Sha512::digest(text).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.take(length).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The name of a container's own chain: `CNI-` with more of a prefix, then the hash of network and container.
pub(crate) fn own_chain(prefix: &str, request: &Request) -> String {
    chain(prefix, &request.network, &request.container_id)
}

fn chain(prefix: &str, network: &str, container: &str) -> String {
    let digits = hash(&format!("{network}{container}"), LONGEST_CHAIN - prefix.len());
    format!("{prefix}{digits}")
}

/// Whether a chain has such a name: the prefix, and nothing but hexadecimal digits up to the full length.
pub(crate) fn is_chain(prefix: &str, name: &str) -> bool {
    name.len() == LONGEST_CHAIN
        && name.strip_prefix(prefix).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The network and the container of a comment of iptables: `WORDS name: "NETWORK" id: "CONTAINER"`.
pub(crate) fn read_comment<'a>(words: &str, comment: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = comment.strip_prefix(words)?.strip_prefix("name: \"")?;
    let (network, rest) = rest.split_once("\" id: \"")?;
    Some((network, rest.strip_suffix('"')?))
}

/// Which attachment of which network a rule belongs to.
pub(crate) fn tag(request: &Request) -> String {
    tag_of(&request.ifname, &request.network)
}

fn tag_of(ifname: &str, network: &str) -> String {
    let mut tag = format!("{ifname} {network}");
    tag.truncate(tag.floor_char_boundary(LONGEST_TAG));
    tag
}

/// The interface that a tag names, if it names one of this network.
pub(crate) fn ifname_in<'a>(tag: &'a str, network: &str) -> Option<&'a str> {
    let ifname = ifname(tag);
    (tag_of(ifname, network) == tag).then_some(ifname)
}

/// The interface that a tag names.
pub(crate) fn ifname(tag: &str) -> &str {
    tag.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_have_the_names_that_go_gives_them() {
        assert_eq!(chain("CNI-", "test", "1234"), "CNI-2bbe0c48b91a7d1b8a6753a8");
        let long = "testalongnamethatdoesnotmakesense";
        assert_eq!(chain("CNI-", long, "1234"), "CNI-374f33fe84ab0ed84dcdebe3");
        assert_eq!(chain("CNI-DN-", "test", "1234"), "CNI-DN-2bbe0c48b91a7d1b8a675");
        assert!(is_chain("CNI-DN-", "CNI-DN-2bbe0c48b91a7d1b8a675"));
        assert!(!is_chain("CNI-", "CNI-HOSTPORT-DNAT"));
        assert!(!is_chain("CNI-", "CNI-DN-2bbe0c48b91a7d1b8a675"));
    }

    #[test]
    fn a_comment_names_the_network_and_the_container() {
        assert_eq!(read_comment("dnat ", r#"dnat name: "n" id: "c""#), Some(("n", "c")));
        assert_eq!(read_comment("", r#"name: "n" id: "c""#), Some(("n", "c")));
        assert_eq!(read_comment("", r#"dnat name: "n" id: "c""#), None);
        assert_eq!(read_comment("", r#"name: "n" id: "cut..."#), None);
    }

    #[test]
    fn a_tag_names_the_interface_and_only_its_own_network() {
        let tag = tag_of("eth0", "mynet");
        assert_eq!(tag, "eth0 mynet");
        assert_eq!(ifname_in(&tag, "mynet"), Some("eth0"));
        assert_eq!(ifname_in(&tag, "other"), None);
        let long = "n".repeat(200);
        assert_eq!(ifname_in(&tag_of("eth0", &long), &long), Some("eth0"));
    }
}
