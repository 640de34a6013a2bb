//! Rules as `iptables-save` and `nft list ruleset` show them, as a set of lines: each rule with its place in its chain.
//!
//! What keeps tunnel packets from connection tracking is left out: Go has nothing like it.

use std::collections::{BTreeMap, BTreeSet};

/// What `iptables-save` shows.
pub fn saved(text: &str) -> BTreeSet<String> {
    let (mut table, mut places, mut lines) = ("", BTreeMap::new(), BTreeSet::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(rule) = line.strip_prefix("-A ").filter(|_| table != "raw") {
            let (chain, rule) = rule.split_once(' ').unwrap();
            let place: &mut u32 = places.entry((table, chain)).or_default();
            *place += 1;
            lines.insert(format!("{table} {chain} {place}: {rule}"));
        } else if let Some(chain) = line.strip_prefix(':').filter(|_| table != "raw") {
            let words: Vec<&str> = chain.split_whitespace().take(2).collect();
            lines.insert(format!("{table} {}", words.join(" ")));
        }
    }
    lines
}

/// What `nft list ruleset` shows of flannel's own tables, with Go's two faults mended: the mark is compared under
/// its mask, and what comes from outside to this node's own pods keeps its source, not what goes to any pod.
pub fn listed(text: &str) -> BTreeSet<String> {
    let (mut table, mut chain, mut place, mut lines) = ("", "", 0, BTreeSet::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "}") {
        match line.strip_suffix(" {") {
            Some(name) if name.starts_with("table ") => (table, chain, place) = (name, "", 0),
            Some(name) => (chain, place) = (name, 0),
            None => place += 1,
        }
        if table.contains(" flannel-ipv") && !chain.contains("notrack") {
            lines.insert(format!("{table} {chain} {place}: {}", mended(line)));
        }
    }
    lines
}

fn mended(line: &str) -> String {
    let line = line.replace("meta mark 0x00004000", "meta mark & 0x00004000 == 0x00004000");
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [ip, "saddr", "!=", node, _, "daddr", cluster, "return"] if length(node) > length(cluster) => {
            format!("{ip} saddr != {cluster} {ip} daddr {node} return")
        }
        _ => line,
    }
}

fn length(network: &str) -> u8 {
    network.split_once('/').unwrap().1.parse().unwrap()
}
