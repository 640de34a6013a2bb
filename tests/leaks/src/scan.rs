//! All that a node holds, as folders, `ip`, `nft` and `iptables-save` tell it: facts in words, to be compared.
//!
//! What plugins may leave is left out: where a range goes on (`last_reserved_ip`), what a cache holds, and locks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::RESERVATIONS;

/// The folders that plugins write to.
const FOLDERS: [&str; 2] = ["/run", "/var/lib/cni"];

/// What was found, each fact with how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    facts: BTreeMap<String, usize>,
    /// Which addresses the pods have, by the name of the namespace.
    addresses: Vec<(String, String)>,
}

impl Scan {
    /// Looks at everything; the namespaces are those of pods.
    pub(crate) fn of(namespaces: &[String]) -> Self {
        let mut scan = Self::default();
        FOLDERS.iter().for_each(|folder| scan.add_folder(Path::new(folder)));
        scan.add_network(None);
        namespaces.iter().for_each(|name| scan.add_network(Some(name)));
        scan.add_nft(&run("nft", &["-s", "list", "ruleset"]));
        for program in ["iptables-save", "ip6tables-save"] {
            scan.add_iptables(program, &run(program, &[]));
        }
        scan
    }

    /// What is there and was not, and what is not there and was.
    pub fn difference(&self, before: &Self) -> Vec<String> {
        let count = |scan: &Self, fact: &str| scan.facts.get(fact).copied().unwrap_or_default();
        let more = self.facts.iter().filter(|(fact, number)| **number > count(before, fact));
        let less = before.facts.iter().filter(|(fact, number)| **number > count(self, fact));
        more.map(|(fact, _)| format!("+ {fact}")).chain(less.map(|(fact, _)| format!("- {fact}"))).collect()
    }

    /// The facts that speak of something.
    pub fn about(&self, what: &str) -> Vec<&str> {
        self.facts.keys().map(String::as_str).filter(|fact| fact.contains(what)).collect()
    }

    /// Which addresses are reserved, and for whom, as the files of host-local say.
    pub fn reserved(&self) -> BTreeMap<String, String> {
        let Ok(entries) = fs::read_dir(RESERVATIONS) else { return BTreeMap::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip."));
        names.map(|name| (content(&Path::new(RESERVATIONS).join(&name)), name)).map(|(a, b)| (b, a)).collect()
    }

    /// Ends the test if an address is held twice, or by a pod that it is not reserved for.
    #[track_caller]
    pub fn expect_each_address_once(&self) {
        let reserved = self.reserved();
        let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
        for (pod, address) in &self.addresses {
            let other = holders.insert(address, pod);
            assert_eq!(other, None, "{address} is held twice: by {pod} too");
            let (address, _) = address.split_once('/').unwrap();
            let owner = reserved.get(address).map(|text| text.split_whitespace().next().unwrap_or_default());
            assert_eq!(owner, Some(&**pod), "{address} is held by {pod}, but reserved so: {reserved:?}");
        }
        let mut owners: Vec<&String> = reserved.values().collect();
        owners.sort();
        let all = owners.len();
        owners.dedup();
        assert_eq!(owners.len(), all, "an owner has two addresses: {reserved:?}");
    }

    fn add(&mut self, fact: String) {
        *self.facts.entry(fact).or_default() += 1;
    }

    fn add_folder(&mut self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let name = path.to_str().unwrap();
            if name == "/run/netns" || name == "/run/xtables.lock" || name.starts_with("/run/boot-") {
                continue;
            }
            let is_free = name.contains("/last_reserved_ip.") || name.starts_with("/run/flannel-cni/");
            if kind.is_dir() {
                self.add(format!("folder {name}"));
                self.add_folder(&path);
            } else if is_free {
                self.add(format!("file {name}"));
            } else {
                self.add(format!("file {name}: {:?}", content(&path)));
            }
        }
    }

    /// Links, addresses and routes of the host or a pod, without what the kernel makes by itself.
    fn add_network(&mut self, pod: Option<&str>) {
        let place = pod.unwrap_or("host");
        for link in json(&ip(pod, &["-j", "-d", "addr"])) {
            let name = text(&link["ifname"]);
            let kind = text(&link["linkinfo"]["info_kind"]);
            let port = &link["linkinfo"]["info_slave_data"];
            let up = link["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into()));
            let (mac, master, mtu) = (text(&link["address"]), text(&link["master"]), &link["mtu"]);
            let hairpin = &port["hairpin"];
            self.add(format!(
                "{place}: link {name} {kind} mac {mac} mtu {mtu} master {master:?} up {up} hairpin {hairpin}"
            ));
            for address in link["addr_info"].as_array().into_iter().flatten() {
                if text(&address["scope"]) == "global" {
                    let address = format!("{}/{}", text(&address["local"]), address["prefixlen"]);
                    self.add(format!("{place}: address {address} on {name}"));
                    self.addresses.extend(pod.map(|pod| (pod.to_owned(), address)));
                }
            }
        }
        let routes = [ip(pod, &["-4", "route"]), ip(pod, &["-6", "route"])].concat();
        for route in routes.lines().filter(|route| !route.starts_with("fe80::")) {
            self.add(format!("{place}: route {}", route.trim().replace(" linkdown", "")));
        }
    }

    /// Tables, chains and rules, each with where it is.
    fn add_nft(&mut self, ruleset: &str) {
        let mut place: Vec<&str> = Vec::new();
        for line in ruleset.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(opened) = line.strip_suffix(" {") {
                place.push(opened);
                self.add(format!("nft {}", place.join(" ")));
            } else if line == "}" {
                place.pop();
            } else {
                self.add(format!("nft {}: {line}", place.join(" ")));
            }
        }
    }

    fn add_iptables(&mut self, program: &str, saved: &str) {
        let mut table = "";
        for line in saved.lines() {
            match line.split_at_checked(1) {
                Some(("*", name)) => table = name,
                Some((":", chain)) => {
                    let chain = chain.split(" [").next().unwrap_or(chain);
                    self.add(format!("{program} {table} chain {chain}"));
                }
                Some(("-", _)) => self.add(format!("{program} {table} {line}")),
                _ => {}
            }
        }
    }
}

fn content(path: &Path) -> String {
    // One that went away since it was listed is gone in the next look.
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn ip(pod: Option<&str>, words: &[&str]) -> String {
    let inside: Vec<&str> = pod.map_or_else(Vec::new, |pod| vec!["-n", pod]);
    run("ip", &[&inside, words].concat())
}

fn json(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Runs a program that must succeed, and gives what it printed.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {told}", words.join(" "));
    String::from_utf8(output.stdout).unwrap()
}
