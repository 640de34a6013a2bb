//! The mark on devices: which daemon made one, and for which pod network.
//!
//! A daemon is known by the real folder of its subnet file, whatever path leads there, and by the file's name. Its mark
//! is `flanneld NAME@FOLDER NETWORKS`, short enough for the kernel. Version 0.1 wrote `flanneld SUBNET-FILE`. Rules are
//! marked with the networks alone: what a daemon left that had another folder is found by them.

use ipnet::IpNet;

use crate::config::NetworkConfig;
use crate::inputs::NodeOptions;
use crate::rules::observed::tag;
use crate::rules::spec::hash;

/// The first word of the mark on every device of ours; the rest names the instance.
pub const ALIAS_PREFIX: &str = "flanneld ";

/// What a daemon that lives holds in its network namespace begins with this: see [`sign_of_life`].
pub const SIGN: &str = "flanneld-";

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    pub instance: &'a str,
    /// The pod networks that it served then; none are said by a mark of version 0.1.
    pub networks: Vec<IpNet>,
}

impl<'a> Mark<'a> {
    /// Reads the alias of a device; none if no flanneld has marked it.
    pub fn read(alias: &'a str) -> Option<Self> {
        let rest = alias.strip_prefix(ALIAS_PREFIX)?;
        let written = rest
            .rsplit_once(' ')
            .and_then(|(instance, networks)| Some(Self { instance, networks: read_networks(networks)? }));
        Some(written.unwrap_or(Self { instance: rest, networks: vec![] }))
    }
}

impl NodeOptions {
    /// What tells this daemon from others on the host.
    pub fn instance(&self) -> Box<str> {
        if self.folder.is_empty() {
            return self.subnet_file.clone();
        }
        let name = self.subnet_file.rsplit('/').next().unwrap_or_default();
        tag(&format!("{name}@{}", self.folder))
    }

    /// The mark on its devices.
    pub fn mark(&self, config: &NetworkConfig) -> String {
        self.mark_for(config.networks.iter().map(|(_, pods)| pods.network))
    }

    fn mark_for(&self, networks: impl Iterator<Item = IpNet>) -> String {
        match &*self.folder {
            "" => format!("{ALIAS_PREFIX}{}", self.subnet_file),
            _ => format!("{ALIAS_PREFIX}{} {}", self.instance(), write_networks(networks)),
        }
    }
}

/// Networks in one word.
pub fn write_networks(networks: impl Iterator<Item = IpNet>) -> String {
    networks.map(|net| net.to_string()).collect::<Vec<_>>().join(",")
}

/// Reads them back; none if it is something else.
pub fn read_networks(word: &str) -> Option<Vec<IpNet>> {
    word.split(',').map(|net| net.parse().ok()).collect()
}

/// What a daemon holds in its network namespace as long as it lives, and nobody else: the name of a socket.
pub fn sign_of_life(instance: &str) -> String {
    format!("{SIGN}{:016x}", hash(instance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(subnet_file: &str, folder: &str) -> NodeOptions {
        NodeOptions { subnet_file: subnet_file.into(), folder: folder.into(), ..NodeOptions::default() }
    }

    fn networks() -> Vec<IpNet> {
        ["10.244.0.0/16", "fd00:244::/48"].map(|net| net.parse().unwrap()).to_vec()
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_whatever_path_leads_to_the_folder() {
        let mark = |path| options(path, "1a:2f").mark_for(networks().into_iter());
        assert_eq!(mark("/run/flannel/subnet.env"), "flanneld subnet.env@1a:2f 10.244.0.0/16,fd00:244::/48");
        assert_eq!(mark("/run/flannel/subnet.env"), mark("/var/run/flannel/subnet.env"));
        let written = mark("/run/flannel/my subnet.env");
        let expected = Mark { instance: "my subnet.env@1a:2f", networks: networks() };
        assert_eq!(Mark::read(&written), Some(expected));
    }

    #[test]
    fn a_mark_of_the_first_version_is_a_path_and_no_mark_is_none() {
        let old = "flanneld /run/flannel/subnet.env";
        assert_eq!(Mark::read(old), Some(Mark { instance: &old[9..], networks: vec![] }));
        assert_eq!((Mark::read(""), Mark::read("uplink")), (None, None));
    }

    #[test]
    fn the_longest_name_of_a_file_fits_into_an_alias() {
        let path = format!("/run/{}/{}.env", "a".repeat(250), "b".repeat(250));
        let networks = ["255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"];
        let mark = options(&path, "ffffffffffffffff:ffffffffffffffff")
            .mark_for(networks.iter().map(|net| net.parse().unwrap()));
        assert!(mark.len() < 256, "{mark}");
    }
}
