//! Input that nobody thought of: good calls with random changes of their bytes, values and variables. A plugin must
//! answer as the specification wants, whatever it is told, and a call that fails must have changed nothing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use leak_tests::{Answer, Call, Chance, Firewall, Network, Node, Pod, Scan, Step, on_a_node};
use serde_json::{Value, json};

const CALLS: usize = 300;
const ID: &str = "odd";
/// No call may take longer: a runtime waits, and a pod with it.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn nothing_that_a_plugin_is_told_makes_it_crash_or_leave_something() {
    on_a_node(|node| Mutation::begin(node, 3).go_on());
}

struct Mutation<'a> {
    node: &'a Node,
    network: Network,
    chance: Chance,
    peace: Scan,
    faults: Vec<String>,
}

impl<'a> Mutation<'a> {
    fn begin(node: &'a Node, seed: u64) -> Self {
        let network = Network::new(Firewall::Nftables);
        // A changed configuration may choose the other firewall.
        Network::new(Firewall::Iptables).warm_up(node);
        network.warm_up(node);
        let mut living = Pod::new(1);
        node.make_netns([&*living.id, ID]);
        network.add(node, &mut living);
        Self { node, network, chance: Chance::new(seed), peace: node.scan(), faults: Vec::new() }
    }

    fn go_on(mut self) {
        let mut failed = 0;
        for number in 0..CALLS {
            let call = self.mutant();
            let begun = Instant::now();
            let answer = call.run();
            assert!(begun.elapsed() < LIMIT, "{number} takes {:?}: {answer:?}", begun.elapsed());
            failed += usize::from(self.judge(number, &call, &answer));
        }
        println!("{failed} of {CALLS} calls were refused");
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }

    /// A good call with some changes.
    fn mutant(&mut self) -> Call {
        let plugin = *self.chance.one_of(&["flannel", "bridge", "host-local", "portmap", "loopback"]);
        let command = *self.chance.one_of(&["ADD", "ADD", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"]);
        let mut call = self.good(plugin, command);
        for _ in 0..=self.chance.below(3) {
            match self.chance.below(4) {
                0 => self.change_bytes(&mut call.stdin),
                1 | 2 => call = self.change_value(call),
                _ => self.change_variable(&mut call),
            }
        }
        call
    }

    fn good(&self, plugin: &str, command: &str) -> Call {
        let pod = Pod { id: ID.into(), ..Pod::new(2) };
        let step = if plugin == "portmap" { Step::Portmap } else { Step::Flannel };
        let call = self.network.call(self.node, command, step, &pod);
        let mut config: Value = serde_json::from_slice(&call.stdin).unwrap();
        match plugin {
            "bridge" | "host-local" => {
                config = json!({
                    "name": "cbr0", "cniVersion": "1.1.0", "type": plugin, "isGateway": true, "mtu": 1450,
                    "ipMasq": true, "ipMasqBackend": "nftables", "hairpinMode": true,
                    "ipam": {
                        "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
                        "ranges": [[{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.9", "gateway": "10.244.1.1"}]],
                    },
                });
            }
            "portmap" => {
                config["prevResult"] = json!({
                    "cniVersion": "1.1.0",
                    "interfaces": [{"name": "eth0", "sandbox": format!("/run/netns/{ID}")}],
                    "ips": [{"address": "10.244.1.99/24", "gateway": "10.244.1.1", "interface": 0}],
                });
            }
            _ => {}
        }
        Call { program: vec![self.node.plugin(plugin).into()], ..call }.config(&config)
    }

    fn change_bytes(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let place = self.chance.below(bytes.len());
        match self.chance.below(5) {
            0 => bytes[place] ^= 1 << self.chance.below(8),
            1 => drop(bytes.remove(place)),
            2 => bytes.truncate(place),
            3 => bytes.insert(place, *self.chance.one_of(b"{}[]\",:\\0-9e.\n\0\xff")),
            _ => {
                let end = (place + self.chance.below(40)).min(bytes.len());
                let piece = bytes[place..end].to_vec();
                let at = self.chance.below(bytes.len());
                bytes.splice(at..at, piece);
            }
        }
    }

    /// Another value at some place of the configuration.
    fn change_value(&mut self, call: Call) -> Call {
        let Ok(mut config) = serde_json::from_slice::<Value>(&call.stdin) else { return call };
        self.change_below(&mut config);
        call.config(&config)
    }

    fn change_below(&mut self, place: &mut Value) {
        let goes_on = self.chance.below(3) > 0;
        match place {
            Value::Object(map) if !map.is_empty() && goes_on => {
                let number = self.chance.below(map.len());
                map.values_mut().nth(number).into_iter().for_each(|inner| self.change_below(inner));
            }
            Value::Array(list) if !list.is_empty() && goes_on => {
                let number = self.chance.below(list.len());
                self.change_below(&mut list[number]);
            }
            _ => *place = self.odd_value(),
        }
    }

    fn odd_value(&mut self) -> Value {
        let long = "9".repeat(300);
        let texts = [
            "",
            "../x",
            "/",
            ".",
            "a\nb",
            "\u{0}",
            "ä",
            "%d",
            "-1",
            "0",
            &*long,
            "10.244.1.0/33",
            "::/0",
            "0.0.0.0/0",
            "10.244.1.1",
            "fe80::1%eth0",
            "host-local",
            "flannel",
            "'; drop",
            "\"quote",
            "null",
            "127.0.0.1/8",
        ];
        match self.chance.below(4) {
            0 => (*self.chance.one_of(&texts)).into(),
            1 => self
                .chance
                .one_of(&[json!(0), json!(-1), json!(1e300), json!(65_536), json!(u64::MAX), json!(4.5)])
                .clone(),
            2 => self
                .chance
                .one_of(&[json!(null), json!(true), json!([]), json!({}), json!([[]]), json!([{}])])
                .clone(),
            _ => (*self.chance.one_of(&texts)).into(),
        }
    }

    fn change_variable(&mut self, call: &mut Call) {
        let names = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_COMMAND"];
        let name = OsString::from(*self.chance.one_of(&names));
        if self.chance.below(4) == 0 {
            call.environment.remove(&name);
            return;
        }
        let mut bytes = call.environment.get(&name).cloned().unwrap_or_default().into_vec();
        match self.odd_value() {
            Value::String(text) if self.chance.below(2) == 0 => bytes = text.into_bytes(),
            _ => self.change_bytes(&mut bytes),
        }
        // No variable can hold a zero byte.
        bytes.retain(|byte| *byte != 0);
        call.environment.insert(name, OsString::from_vec(bytes));
    }

    /// Whether the call failed; what it did is taken back, and nothing may be left.
    fn judge(&mut self, number: usize, call: &Call, answer: &Answer) -> bool {
        let failed = answer.status == Some(1);
        if !failed && answer.status != Some(0) {
            self.faults.push(format!("{number} ended with {answer:?}"));
        }
        if failed {
            let (_, words) = answer.error();
            if words.contains("bug") || words.contains("panic") {
                self.faults.push(format!("{number} has a bug: {answer:?}"));
            }
            self.look(number, call, "refused", &["+ file /var/lib/cni/flannel/"]);
        }
        // What was added is deleted with the same input; a refusal of that is cleaned up with good input.
        let is_add = call.environment.get(&OsString::from("CNI_COMMAND")) == Some(&"ADD".into());
        if is_add {
            call.clone().set("CNI_COMMAND", "DEL").run();
        }
        if !self.difference(&[]).is_empty() {
            for plugin in ["portmap", "flannel"] {
                self.good(plugin, "DEL").run().nothing();
            }
        }
        self.look(number, call, "deleted", &[]);
        failed
    }

    fn look(&mut self, number: usize, call: &Call, what: &str, allowed: &[&str]) {
        let difference = self.difference(allowed);
        if !difference.is_empty() {
            let stdin = String::from_utf8_lossy(&call.stdin);
            self.faults.push(format!("{number} {what}: {:?} {stdin}: {difference:#?}", call.environment));
            self.peace = self.node.scan();
        }
    }

    /// New networks and bridges have come by calls that were right in their way, and stay: what pods share is no leak.
    fn difference(&self, allowed: &[&str]) -> Vec<String> {
        let mut difference = self.node.scan().difference(&self.peace);
        difference
            .retain(|fact| !allowed.iter().any(|allowed| fact.starts_with(allowed)) && !is_shared(fact));
        difference
    }
}

/// Whether a fact is of what all pods share: folders, locks, bridges, tables and base chains.
fn is_shared(fact: &str) -> bool {
    let ends = ["/lock: \"\"", "/last_reserved_ip.0", "/last_reserved_ip.1"];
    let link = |kind: &str| fact.starts_with("+ host: link ") && fact.contains(kind);
    fact.starts_with("+ folder ")
        || fact.starts_with("+ file /run/flannel-cni/")
        || ends.iter().any(|end| fact.ends_with(end))
        || link(" bridge ")
}
