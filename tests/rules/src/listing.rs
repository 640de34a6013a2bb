//! All rules of a node in the words of nft and iptables, to be compared as a whole.

use std::fs;

use flannel_lab::Node;

/// Where the kernel says which tables of legacy iptables are used: asking for one would make it.
const LEGACY: [(&str, &str); 2] = [
    ("/proc/net/ip_tables_names", "iptables-legacy-save"),
    ("/proc/net/ip6_tables_names", "ip6tables-legacy-save"),
];

/// The rules of a node, without counters and remarks, each line with the program that shows it.
pub fn listing(node: &Node) -> Vec<String> {
    let mut lines = shown(node, "iptables-nft-save", &[]);
    lines.extend(shown(node, "ip6tables-nft-save", &[]));
    for (names, program) in LEGACY {
        if node.inside(|| fs::read_to_string(names)).unwrap().is_ok_and(|names| !names.trim().is_empty()) {
            lines.extend(shown(node, program, &[]));
        }
    }
    lines.extend(shown(node, "nft", &["list", "ruleset"]));
    lines
}

/// The lines of a listing that name flannel, be it a chain, a comment or a table.
pub fn of_flannel(node: &Node) -> Vec<String> {
    let mut lines = listing(node);
    lines.retain(|line| line.to_lowercase().contains("flannel"));
    lines
}

fn shown(node: &Node, program: &str, arguments: &[&str]) -> Vec<String> {
    let text = node.run(program, arguments).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(without_counters);
    lines.map(|line| format!("{program}: {line}")).collect()
}

/// Counters stand in brackets behind a chain, or after the word in nft.
fn without_counters(line: &str) -> String {
    let line = line.split(" [").next().unwrap_or(line);
    match line.split_once("counter packets ") {
        Some((before, after)) => {
            let rest = after.splitn(4, ' ').nth(3).unwrap_or_default();
            format!("{before}counter {rest}")
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_left_out() {
        assert_eq!(without_counters(":POSTROUTING ACCEPT [12:345]"), ":POSTROUTING ACCEPT");
        let rule = "ip saddr 1.2.3.4 counter packets 5 bytes 60 jump X";
        assert_eq!(without_counters(rule), "ip saddr 1.2.3.4 counter jump X");
        assert_eq!(without_counters("counter packets 5 bytes 60"), "counter ");
    }
}
