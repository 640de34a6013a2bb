//! All rules of a node in the words of nft and iptables, to be compared as a whole.

use std::fs;

use flannel_lab::Node;

/// Where the kernel says which tables of legacy iptables are used: asking for one would make it.
const LEGACY: [(&str, &str); 2] = [
    ("/proc/thread-self/net/ip_tables_names", "iptables-legacy-save"),
    ("/proc/thread-self/net/ip6_tables_names", "ip6tables-legacy-save"),
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
    lines.extend(in_nft(&shown(node, "nft", &["list", "ruleset"])));
    lines
}

/// The rules of nft, each behind its table and chain: the order of chains means nothing, and is left out.
fn in_nft(lines: &[String]) -> Vec<String> {
    let (mut table, mut chain, mut placed) = (String::new(), String::new(), Vec::new());
    for line in lines.iter().map(|line| line.trim_start_matches("nft: ").trim()) {
        match line.strip_suffix(" {") {
            Some(name) if name.starts_with("table ") => (table, chain) = (name.to_owned(), String::new()),
            Some(name) => chain = name.to_owned(),
            None if line.is_empty() || line == "}" => {}
            None => placed.push(((table.clone(), chain.clone()), line)),
        }
    }
    placed.sort_by(|(one, _), (other, _)| one.cmp(other));
    placed.into_iter().map(|((table, chain), line)| format!("nft: {table} {chain}: {line}")).collect()
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
    fn the_order_of_rules_is_kept_and_that_of_chains_is_not() {
        let listing =
            |text: &str| in_nft(&text.lines().map(|line| format!("nft: {line}")).collect::<Vec<_>>());
        let one = "table ip t {\n chain b {\n r2\n r1\n }\n chain a {\n r3\n }\n}";
        let other = "table ip t {\n chain a {\n r3\n }\n chain b {\n r2\n r1\n }\n}";
        let expected =
            ["nft: table ip t chain a: r3", "nft: table ip t chain b: r2", "nft: table ip t chain b: r1"];
        assert_eq!(
            (listing(one), listing(other)),
            (expected.map(str::to_owned).to_vec(), expected.map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn counters_are_left_out() {
        assert_eq!(without_counters(":POSTROUTING ACCEPT [12:345]"), ":POSTROUTING ACCEPT");
        let rule = "ip saddr 1.2.3.4 counter packets 5 bytes 60 jump X";
        assert_eq!(without_counters(rule), "ip saddr 1.2.3.4 counter jump X");
        assert_eq!(without_counters("counter packets 5 bytes 60"), "counter ");
    }
}
