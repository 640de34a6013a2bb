//! A table of flags, with their defaults, their meaning and whether they do anything; and that of flanneld.
//! Takes a name, gives the flag, the nearest known name, or the usage text.

/// One flag.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    pub name: &'static str,
    pub takes: Takes,
    /// The value that holds when nobody sets one.
    pub default: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// The lease store that it is for.
    pub belongs: Belongs,
}

/// The lease store that a flag is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// Any of them.
    Any,
    Etcd,
    Kubernetes,
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Yes or no, and yes when only named.
    Switch,
    /// One value each time that it is named, shown by this word.
    One(&'static str),
    /// One value that is never shown.
    Secret,
}

impl Flag {
    /// A flag for any store.
    pub const fn new(name: &'static str, takes: Takes, default: &'static str, meaning: &'static str) -> Self {
        Self { name, takes, default, meaning, belongs: Belongs::Any }
    }

    /// The same that is yes or no.
    pub const fn switch(name: &'static str, default: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Takes::Switch, default, meaning)
    }

    const fn of(mut self, store: Belongs) -> Self {
        self.belongs = store;
        self
    }
}

/// The name of the environment variable that stands in for a flag.
pub fn variable(name: &str) -> String {
    format!("FLANNELD_{}", name.to_uppercase().replace('-', "_"))
}

use Belongs::{Etcd, Kubernetes};
use Takes::{One, Secret};

/// The flags of Go flannel, with its names and its defaults.
pub static OF_GO: &[Flag] = &[
    Flag::new("etcd-cafile", One("FILE"), "", "certificate authority of the etcd servers").of(Etcd),
    Flag::new("etcd-certfile", One("FILE"), "", "certificate shown to etcd").of(Etcd),
    Flag::new(
        "etcd-endpoints",
        One("URLS"),
        "http://127.0.0.1:4001,http://127.0.0.1:2379",
        "etcd servers, with commas between",
    )
    .of(Etcd),
    Flag::new("etcd-keyfile", One("FILE"), "", "private key for --etcd-certfile").of(Etcd),
    Flag::new("etcd-password", Secret, "", "password for etcd").of(Etcd),
    Flag::new("etcd-prefix", One("KEY"), "/coreos.com/network", "key below which flannel's keys are")
        .of(Etcd),
    Flag::new("etcd-username", One("NAME"), "", "user name for etcd").of(Etcd),
    Flag::new(
        "healthz-ip",
        One("IP"),
        "0.0.0.0",
        "address of /healthz, /readyz and /metrics; 0.0.0.0 and :: mean all",
    ),
    Flag::new("healthz-port", One("PORT"), "0", "port of /healthz, /readyz and /metrics; 0 is off"),
    Flag::new(
        "iface",
        One("NAME|IP"),
        "",
        "interface to other nodes; repeated, the first that fits is taken",
    ),
    Flag::new("iface-can-reach", One("IP"), "", "take the interface that leads to this address"),
    Flag::new("iface-regex", One("REGEX"), "", "take the interface whose address or name matches; repeats"),
    Flag::switch("ip-blackhole-route", "false", "drop packets for pods of this node that are gone"),
    Flag::switch("ip-masq", "false", "give the node's address to packets that leave the pod network"),
    Flag::switch("ip-masq-fully-random-disable", "false", "choose source ports in order, not at random"),
    Flag::switch("iptables-forward-rules", "true", "let pod traffic through the host's firewall"),
    Flag::new(
        "iptables-resync",
        One("SECONDS"),
        "5",
        "time between two looks at rules of legacy iptables, which tells nobody of changes",
    ),
    Flag::new(
        "kube-annotation-prefix",
        One("PREFIX"),
        "flannel.alpha.coreos.com",
        "prefix of flannel's annotations on nodes",
    )
    .of(Kubernetes),
    Flag::new("kube-api-url", One("URL"), "", "address of the Kubernetes API server").of(Kubernetes),
    Flag::switch("kube-subnet-mgr", "false", "keep leases in Kubernetes").of(Kubernetes),
    Flag::new("kubeconfig-file", One("FILE"), "", "kubeconfig for the API server").of(Kubernetes),
    Flag::new("log_backtrace_at", One("FILE:N"), "", "accepted, without effect"),
    Flag::new(
        "net-config-path",
        One("FILE"),
        "/etc/kube-flannel/net-conf.json",
        "network configuration in Kubernetes",
    )
    .of(Kubernetes),
    Flag::new("public-ip", One("IPV4"), "", "IPv4 address that other nodes send to"),
    Flag::new("public-ipv6", One("IPV6"), "", "IPv6 address that other nodes send to"),
    Flag::switch("set-node-network-unavailable", "true", "tell Kubernetes that the node's network works")
        .of(Kubernetes),
    Flag::new(
        "subnet-file",
        One("FILE"),
        "/run/flannel/subnet.env",
        "where the CNI plugin finds this node's subnet",
    ),
    Flag::new(
        "subnet-lease-renew-margin",
        One("MINUTES"),
        "60",
        "renew the lease so long before its end; 1 to 1439",
    )
    .of(Etcd),
    Flag::new("v", One("N"), "0", "how much is logged: 0 changes, 1 to 3 reasons too, 4 everything"),
    Flag::switch("version", "false", "print the version and exit"),
    Flag::new("vmodule", One("PATTERN=N,..."), "", "accepted, without effect"),
];

/// The flags that only this flannel has.
pub static OF_OURS: &[Flag] = &[
    Flag::new("lease-dir", One("DIR"), "", "keep leases as files in this folder"),
    Flag::new("log-format", One("text|json"), "text", "form of a line in the log"),
    Flag::switch("vxlan-notrack", "true", "keep the tunnel's own packets out of connection tracking and NAT"),
];

pub static FLANNELD: FlagTable = FlagTable { original: OF_GO, ours: OF_OURS, ignored: &[] };

/// The flags of one program.
pub struct FlagTable {
    /// Those of the program that ours stands in for.
    pub original: &'static [Flag],
    /// Those that only ours has.
    pub ours: &'static [Flag],
    /// Those that are taken for the sake of old command lines, and not worth a line each.
    pub ignored: &'static [Flag],
}

impl FlagTable {
    /// Every flag.
    pub fn all(&self) -> impl Iterator<Item = &'static Flag> {
        self.original.iter().chain(self.ours).chain(self.ignored)
    }

    /// The flag of this name.
    pub fn find(&self, name: &str) -> Option<&'static Flag> {
        self.all().find(|flag| flag.name == name)
    }

    /// The known name that is most like an unknown one, if it is alike at all.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let distances = self.all().map(|flag| (edits(name, flag.name), flag));
        let (distance, flag) = distances.min_by_key(|found| found.0)?;
        // A third of the letters wrong is a slip; more is another word.
        (distance <= name.chars().count() / 3).then_some(flag.name)
    }

    /// A line or two a flag, under a heading for the original's and one for ours.
    pub fn describe(&self, [original, ours]: [&str; 2]) -> String {
        let part = |heading: &str, flags: &[Flag]| {
            format!("{heading}\n{}", flags.iter().map(describe).collect::<String>())
        };
        let mut text = part(original, self.original) + "\n" + &part(ours, self.ours);
        if !self.ignored.is_empty() {
            let names: Vec<_> = self.ignored.iter().map(|flag| flag.name).collect();
            text += &format!("\nTaken without effect: {}\n", names.join(", "));
        }
        text
    }
}

/// How many letters to add, drop or change to get from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

const HOW_TO_WRITE: &str = "\
A flag is -name or --name, its value the next word or behind `=`. A switch has its value only
behind `=`: --ip-masq=false. What is not on the command line is taken from the environment:
FLANNELD_HEALTHZ_PORT stands for --healthz-port. NODE_NAME is this node's name (default: the
host's; in Kubernetes, the node of the pod POD_NAME in POD_NAMESPACE). RUST_LOG overrides -v.
Leases are kept in etcd, unless --kube-subnet-mgr or --lease-dir says otherwise.
`flanneld ip-masq-agent` is another daemon, with flags of its own: see its --help.
";

/// The text of `--help`.
pub fn usage(program: &str) -> String {
    let flags = FLANNELD.describe(["Flags of every flannel:", "Flags of this flannel only:"]);
    format!("Usage: {program} [OPTION]...\n{HOW_TO_WRITE}\n{flags}")
}

fn describe(flag: &Flag) -> String {
    let value = match flag.takes {
        Takes::Switch => String::new(),
        Takes::One(value) => format!(" {value}"),
        Takes::Secret => " SECRET".to_owned(),
    };
    let default =
        if flag.default.is_empty() { String::new() } else { format!(" (default: {})", flag.default) };
    let dashes = if flag.name.len() == 1 { "-" } else { "--" };
    format!("  {dashes}{}{value}\n        {}{default}\n", flag.name, flag.meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_every_name_once_and_in_order() {
        for table in [OF_GO, OF_OURS] {
            let names: Vec<_> = table.iter().map(|flag| flag.name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(names, sorted);
        }
    }

    #[test]
    fn a_slip_of_the_pen_finds_the_name_that_was_meant() {
        let cases = [
            ("ip-mask", Some("ip-masq")),
            ("ip_masq", Some("ip-masq")),
            ("kube-subnet-manager", Some("kube-subnet-mgr")),
            ("healthzport", Some("healthz-port")),
            ("interface", None),
            ("x", None),
            ("", None),
            ("kubernetes", None),
        ];
        for (name, meant) in cases {
            assert_eq!(FLANNELD.nearest(name), meant, "{name}");
        }
    }

    #[test]
    fn the_usage_names_every_flag_with_its_default_and_meaning() {
        let text = usage("flanneld");
        assert!(text.starts_with("Usage: flanneld [OPTION]...\n"), "{text}");
        for flag in FLANNELD.all() {
            assert!(
                text.contains(&format!("-{}", flag.name)) && text.contains(flag.meaning),
                "{}",
                flag.name
            );
            assert!(text.contains(flag.default), "{}", flag.name);
        }
    }
}
