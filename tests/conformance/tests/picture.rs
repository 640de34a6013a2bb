//! What programs print about a host, without what differs from run to run: numbers, MACs, names of pairs, counters.

use std::collections::BTreeMap;

use conformance_tests::listing::without_counters;

/// What `ip addr`, `ip route` and `bridge -d link` print, in order of the alphabet.
pub fn view(text: &str) -> Vec<String> {
    let accidents = ["valid_lft", "link/", "inet6 fe80:", "fe80::/64"];
    let lines =
        text.lines().map(str::trim).filter(|line| !accidents.iter().any(|start| line.starts_with(start)));
    let mut lines: Vec<_> = lines.map(|line| words(line).join(" ")).collect();
    lines.sort();
    lines
}

fn words(line: &str) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &str| word.trim_end_matches(':').parse::<u32>().is_ok();
    if words.first().is_some_and(|word| word.ends_with(':') && is_number(word)) {
        words.remove(0); // the number of a device
    }
    if let Some(place) = words.iter().position(|word| *word == "qlen") {
        words.drain(place..place + 2);
    }
    if let Some(place) = words.iter().position(|word| ["UP", "DOWN", "UNKNOWN"].contains(word)) {
        words.drain(place - 1..=place);
    }
    // Whether the kernel still looks for a double, or has noticed the carrier, is a matter of time.
    words.retain(|word| !["tentative", "nodad", "noprefixroute", "linkdown"].contains(word));
    let flags = |word: &str| word.replace("NO-CARRIER,", "").replace(",LOWER_UP", "");
    words.into_iter().map(|word| without_name_of_pair(&flags(word))).collect()
}

fn without_name_of_pair(word: &str) -> String {
    let (name, peer) = word.split_once('@').map_or((word, ""), |(name, _)| (name, ":"));
    let bare = name.trim_end_matches(':');
    let is_pair = bare.len() == 12 && bare.starts_with("veth");
    format!("{}{peer}", if is_pair { "VETH" } else { name })
}

/// The rules of each chain that `iptables-save` prints.
pub fn iptables(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && *line != "COMMIT" && !line.is_empty());
    // The chains that every table has appear with its first use.
    let lines = lines.filter(|line| !line.contains(" ACCEPT") || line.starts_with("-A"));
    lines.map(|line| without_counters(line).trim_end().to_owned()).collect()
}

/// The rules of each chain of nftables' own tables; those of iptables are compared as iptables tells them.
pub fn nft(lines: &[String]) -> BTreeMap<String, Vec<String>> {
    let (mut table, mut chain) = (String::new(), String::new());
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty() && *line != "}") {
        if let Some(name) = line.strip_suffix(" {") {
            if name.starts_with("table") {
                name.clone_into(&mut table)
            } else {
                name.clone_into(&mut chain)
            }
            continue;
        }
        // Newer programs have words for more priorities.
        let line =
            line.replace("priority -100;", "priority dstnat;").replace("priority 100;", "priority srcnat;");
        chains.entry(format!("{table} {chain}")).or_default().push(line);
    }
    chains.retain(|name, _| {
        !["table ip nat", "table ip6 nat", "table ip filter"].iter().any(|own| name.starts_with(own))
    });
    chains
}
