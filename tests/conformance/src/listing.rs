//! What is on a host or in a pod, as `ip`, `bridge`, `nft` and `iptables-save` tell it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Site;

impl Site {
    /// What `ip -j` or another program with that flag tells.
    pub fn json(&self, line: &str) -> Value {
        let text = self.sh(line);
        if text.trim().is_empty() { Value::Array(Vec::new()) } else { serde_json::from_str(&text).unwrap() }
    }

    /// The devices of the host, or of a pod, without `lo`.
    pub fn devices(&self, pod: Option<&str>) -> Vec<String> {
        let list = self.json(&format!("{} link", ip(pod)));
        let names = list.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.filter(|name| name != "lo").collect()
    }

    /// All that `ip -d link` knows about a device.
    pub fn device(&self, pod: Option<&str>, name: &str) -> Value {
        self.json(&format!("{} -d link show dev {name}", ip(pod)))[0].clone()
    }

    /// The addresses of a device, in order, without those that the kernel gives by itself.
    pub fn addresses(&self, pod: Option<&str>, device: &str) -> Vec<String> {
        self.all_addresses(pod, device).into_iter().filter(|address| !address.starts_with("fe80:")).collect()
    }

    /// All addresses of a device.
    pub fn all_addresses(&self, pod: Option<&str>, device: &str) -> Vec<String> {
        let list = self.json(&format!("{} addr show dev {device}", ip(pod)));
        let entries = list[0]["addr_info"].as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|entry| format!("{}/{}", entry["local"].as_str().unwrap(), entry["prefixlen"]))
            .collect()
    }

    /// The routes of both families in the main table, a line each, without those that the kernel makes.
    pub fn routes(&self, pod: Option<&str>) -> Vec<String> {
        let ip = ip(pod).replace(" -j", "");
        let lines = self.sh(&format!("{ip} -4 route; {ip} -6 route"));
        let lines = lines.lines().filter(|line| !line.contains("proto kernel"));
        lines.map(|line| line.trim_end().trim_end_matches(" pref medium").trim_end().to_owned()).collect()
    }

    /// The whole ruleset of nftables, without counters and handles, a line each.
    pub fn nft(&self) -> Vec<String> {
        let text = self.sh("nft list ruleset");
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let mut kept: Vec<&str> = Vec::new();
            for word in words {
                kept.push(word);
                if let [.., "packets", _, "bytes", _] = kept[..] {
                    kept.truncate(kept.len() - 4);
                }
            }
            kept.join(" ")
        });
        lines.collect()
    }

    /// The rules of a chain of nftables, or nothing if there is no such chain.
    pub fn nft_chain(&self, family_and_table: &str, chain: &str) -> Vec<String> {
        let output = self.try_sh(&format!("nft list chain {family_and_table} {chain}"));
        let text = String::from_utf8(output.stdout).unwrap();
        let rules = text.lines().map(str::trim);
        rules
            .filter(|line| {
                !line.is_empty() && !line.ends_with('{') && !line.starts_with("type ") && *line != "}"
            })
            .filter(|line| !line.starts_with("comment "))
            .map(str::to_owned)
            .collect()
    }

    /// What `iptables-save` of one family tells: chains and rules of all tables, without policies and counters.
    pub fn iptables(&self, family: u8) -> Vec<String> {
        let program = if family == 4 { "iptables-save" } else { "ip6tables-save" };
        let text = self.sh(program);
        let lines = text.lines().filter(|line| !line.starts_with('#') && *line != "COMMIT");
        lines.map(|line| without_counters(line).to_owned()).collect()
    }

    /// The rules of one chain of the table nat, as `iptables-save` writes them, without `-A CHAIN`.
    pub fn nat_chain(&self, family: u8, chain: &str) -> Vec<String> {
        let lines = self.iptables(family);
        let head = format!("-A {chain} ");
        lines.iter().filter_map(|line| line.strip_prefix(&head).map(str::to_owned)).collect()
    }

    /// The chains of the table nat that somebody made.
    pub fn nat_chains(&self, family: u8) -> Vec<String> {
        let lines = self.iptables(family);
        let names = lines.iter().filter_map(|line| line.strip_prefix(':')?.strip_suffix(" -"));
        names.map(str::to_owned).collect()
    }

    /// All that containers can leave behind: devices, rules of both kinds, and files.
    pub fn remains(&self) -> Remains {
        Remains {
            devices: self.devices(None),
            nft: self.nft(),
            iptables: [4, 6].into_iter().flat_map(|family| self.iptables(family)).collect(),
            files: self.files("/var/lib/cni"),
        }
    }
}

/// What is left on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Devices.
    pub devices: Vec<String>,
    /// The ruleset of nftables, which shows the rules of iptables too if they are made by nf_tables.
    pub nft: Vec<String>,
    /// Chains and rules of iptables.
    pub iptables: Vec<String>,
    /// Files of plugins.
    pub files: BTreeMap<String, String>,
}

/// A chain's line ends with its counters, in brackets; in a rule brackets are part of an address.
pub fn without_counters(line: &str) -> &str {
    if line.starts_with(':') { line.split(" [").next().unwrap_or(line).trim_end() } else { line }
}

fn ip(pod: Option<&str>) -> String {
    pod.map_or_else(|| "ip -j".to_owned(), |pod| format!("ip -n {pod} -j"))
}
