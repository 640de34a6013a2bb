//! Where flanneld is to keep its rules: as net-conf and as the programs that it finds.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Where flanneld is to keep its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In iptables, as this machine has it: in nftables.
    Iptables,
    /// In iptables as it was before nftables.
    Legacy,
    /// In tables of its own in nftables.
    Nftables,
}

/// The programs of iptables, which choose their ways by their names.
const PROGRAMS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
const LEGACY: &str = "/usr/sbin/xtables-legacy-multi";

impl Mode {
    /// A net-conf of both families in vxlan.
    pub fn net_conf(self) -> String {
        let nftables = self == Self::Nftables;
        format!(
            r#"{{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","EnableNFTables":{nftables},"Backend":{{"Type":"vxlan"}}}}"#
        )
    }

    /// The environment of flanneld: with legacy iptables, a folder of links to it comes first on the PATH.
    pub fn environment(self, folder: &Folder) -> Vec<(String, String)> {
        if self != Self::Legacy {
            return Vec::new();
        }
        for program in PROGRAMS {
            symlink(LEGACY, folder.0.join(program)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        vec![("PATH".to_owned(), format!("{}:{path}", folder.0.display()))]
    }
}

/// A folder that goes with the test.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes an empty one.
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(flannel_lab::unique_name("rules"));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
