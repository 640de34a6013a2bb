//! All that a node holds, as folders, `ip`, `nft` and `iptables-save` tell it: facts in words, to be compared.
//!
//! What plugins may leave is left out: where a range goes on (`last_reserved_ip`), and locks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::RESERVATIONS;

/// The folders that plugins write to.
const FOLDERS: [&str; 2] = ["/run", "/var/lib/cni"];

/// What `ip` is asked; the file is there from the beginning.
pub(crate) const QUESTIONS: &str = "/var/lib/questions";

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
        let mut owners: BTreeMap<(&str, bool), &str> = BTreeMap::new();
        for (address, owner) in &reserved {
            let other = owners.insert((owner, address.contains(':')), address);
            assert_eq!(other, None, "{owner:?} has {address} too");
        }
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
        let inside: Vec<&str> = pod.map_or_else(Vec::new, |pod| vec!["-n", pod]);
        // One process for both questions: a scan is made of hundreds of them.
        let told = run("ip", &[&inside[..], &["-j", "-d", "-batch", QUESTIONS]].concat());
        let mut lists = serde_json::Deserializer::from_str(&told).into_iter::<Vec<Value>>();
        let mut next = || lists.next().unwrap_or_else(|| panic!("ip told too little: {told}")).unwrap();
        for link in next() {
            self.add_link(pod, &link);
        }
        let place = pod.unwrap_or("host");
        for route in next() {
            let [to, table, gateway, device] =
                ["dst", "table", "gateway", "dev"].map(|key| text(&route[key]));
            if table != "local" && !to.starts_with("fe80:") && !to.starts_with("ff00:") {
                self.add(format!("{place}: route {to} via {gateway:?} dev {device} table {table:?}"));
            }
        }
    }

    fn add_link(&mut self, pod: Option<&str>, link: &Value) {
        let place = pod.unwrap_or("host");
        let (name, kind) = (text(&link["ifname"]), text(&link["linkinfo"]["info_kind"]));
        let up = link["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into()));
        let (mac, master, mtu) = (text(&link["address"]), text(&link["master"]), &link["mtu"]);
        let hairpin = &link["linkinfo"]["info_slave_data"]["hairpin"];
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
