//! The runtime: knows the plugins of kube-flannel's network, and calls them for pods in the order that libcni does.

use serde_json::{Value, json};

use crate::call::{Answer, Call};
use crate::node::Node;
use crate::scan::Scan;

/// Which firewall the plugins are told to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// nf_tables by netlink.
    Nftables,
    /// The programs of iptables.
    Iptables,
}

/// One plugin of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the interface, by bridge and host-local.
    Flannel,
    /// Leads ports of the host to the pod.
    Portmap,
}

/// The steps of ADD; DEL goes backwards.
const FORWARD: [Step; 2] = [Step::Flannel, Step::Portmap];
const BACKWARD: [Step; 2] = [Step::Portmap, Step::Flannel];

/// What nftables takes.
const LONGEST_COMMENT: usize = 128;

/// The network of kube-flannel, with every kind of rule that bridge can make.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Who makes the rules.
    pub firewall: Firewall,
    /// The CNI version that the runtime speaks.
    pub version: &'static str,
}

/// A pod, as the runtime remembers it.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The container's id, which is also the name of its namespace.
    pub id: String,
    /// The port of the host that leads to it.
    pub port: u16,
    /// What ADD gave; none before, and when the runtime lost it.
    pub result: Option<Value>,
}

impl Pod {
    /// A pod that nobody has added yet.
    pub fn new(number: u16) -> Self {
        Self { id: format!("pod{number}"), port: 20_000 + number, result: None }
    }

    /// Its address without the length of the prefix, as ADD told it.
    pub fn address(&self) -> String {
        let address = self.result.as_ref().unwrap()["ips"][0]["address"].as_str().unwrap();
        address.split('/').next().unwrap().to_owned()
    }
}

impl Step {
    /// The order in which a command calls the plugins.
    pub fn of(command: &str) -> [Self; 2] {
        if command == "DEL" { BACKWARD } else { FORWARD }
    }

    /// The plugin's name.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Flannel => "flannel",
            Self::Portmap => "portmap",
        }
    }
}

impl Network {
    /// The network with a firewall, in the newest version.
    pub fn new(firewall: Firewall) -> Self {
        Self { firewall, version: "1.1.0" }
    }

    /// What a plugin of the network is configured with.
    pub fn config(&self, step: Step) -> Value {
        let backend = match self.firewall {
            Firewall::Nftables => "nftables",
            Firewall::Iptables => "iptables",
        };
        let mut config = match step {
            Step::Flannel => json!({"type": "flannel", "delegate": {
                "hairpinMode": true, "isDefaultGateway": true, "ipMasqBackend": backend, "macspoofchk": true,
            }}),
            Step::Portmap => {
                json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}})
            }
        };
        config["name"] = "cbr0".into();
        config["cniVersion"] = self.version.into();
        config
    }

    /// One call of a plugin for a pod, with the result that the plugin before or the last ADD gave.
    pub fn call(&self, node: &Node, command: &str, step: Step, pod: &Pod) -> Call {
        let mut config = self.config(step);
        if let Some(result) = &pod.result {
            config["prevResult"] = result.clone();
        }
        if step == Step::Portmap {
            let ports = ["tcp", "udp"].map(
                |protocol| json!({"hostPort": pod.port, "containerPort": 80, "protocol": protocol, "hostIP": ""}),
            );
            config["runtimeConfig"] = json!({"portMappings": ports});
        }
        Call::new(node.plugin(step.plugin()), command)
            .set("CNI_CONTAINERID", &pod.id)
            .set("CNI_NETNS", format!("/run/netns/{}", pod.id))
            .set("CNI_IFNAME", "eth0")
            .set("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", pod.id))
            .config(&config)
    }

    /// Adds a pod, which must work.
    #[track_caller]
    pub fn add(&self, node: &Node, pod: &mut Pod) {
        for step in FORWARD {
            pod.result = Some(self.call(node, "ADD", step, pod).run().result());
        }
    }

    /// Deletes a pod, which must work.
    #[track_caller]
    pub fn del(&self, node: &Node, pod: &Pod) {
        BACKWARD.iter().for_each(|step| self.call(node, "DEL", *step, pod).run().nothing());
    }

    /// Adds and deletes the first pod of the node, and gives what stays of it: the bridge, shared chains, folders.
    #[track_caller]
    pub fn warm_up(&self, node: &Node) -> Scan {
        let mut pod = Pod::new(9999);
        node.make_netns([&*pod.id]);
        self.add(node, &mut pod);
        self.expect_rules(&node.scan(), &pod);
        self.del(node, &pod);
        node.remove_netns(&pod.id);
        node.wait_for_cables(0);
        let scan = node.scan();
        assert_eq!(scan.about(&pod.id), [""; 0], "something is left of the first pod");
        scan
    }

    /// Ends the test if a pod lacks one of its rules: then nothing would be proved when none is left.
    #[track_caller]
    pub fn expect_rules(&self, scan: &Scan, pod: &Pod) {
        let address = pod.address();
        let told = |words: &str| scan.about(words).iter().any(|fact| fact.contains(&*address));
        let masquerades = scan
            .about(&address)
            .iter()
            .any(|fact| fact.contains("masq_checks") || fact.contains("POSTROUTING"));
        assert!(masquerades, "no masquerade for {address}: {:#?}", scan.about("nft "));
        assert!(told("dnat to") || told("DNAT"), "no port leads to {address}: {:#?}", scan.about("nft "));
        let mut guard = format!("macspoofchk-{}-eth0", pod.id);
        guard.truncate(LONGEST_COMMENT);
        assert!(!scan.about(&guard).is_empty(), "no {guard}: {:#?}", scan.about("nft table bridge"));
    }

    /// Checks a pod, which must be as it should.
    #[track_caller]
    pub fn check(&self, node: &Node, pod: &Pod) {
        FORWARD.iter().for_each(|step| self.call(node, "CHECK", *step, pod).run().nothing());
    }

    /// Has the plugins free what belongs to none of these pods, which must work.
    #[track_caller]
    pub fn gc(&self, node: &Node, valid: &[Pod]) {
        FORWARD.iter().for_each(|step| self.gc_of(node, *step, valid).nothing());
    }

    fn gc_of(&self, node: &Node, step: Step, valid: &[Pod]) -> Answer {
        let valid: Vec<Value> =
            valid.iter().map(|pod| json!({"containerID": pod.id, "ifname": "eth0"})).collect();
        let mut config = self.config(step);
        config["cni.dev/valid-attachments"] = valid.clone().into();
        config["cni.dev/attachments"] = valid.into();
        Call::new(node.plugin(step.plugin()), "GC").config(&config).run()
    }
}
