//! The built program as ip-masq-agent: the file is followed, the rules are kept, and it ends when told to.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flannel_kernel::netns::{Namespace, run_inside};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::UnshareFlags;

const FLANNELD: &str = env!("CARGO_BIN_EXE_flanneld");
/// Long on a machine with other work, and shorter than the pause between two looks that nothing asked for, a minute:
/// what happens within it happens because of a notice.
const LIMIT: Duration = Duration::from_secs(30);

/// A node: a network namespace, and mounts with a `/run` and an `/etc/config` of its own.
struct Node {
    folder: PathBuf,
}

#[allow(deprecated, reason = "its successor is unsafe for the sake of FILES, which is not asked for here")]
fn in_a_node(test: impl FnOnce(&Node) + Send) {
    run_inside(&Namespace::Fresh, || {
        rustix::thread::unshare(UnshareFlags::NEWNS).unwrap();
        sh("mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/config && ip link set lo up");
        test(&Node { folder: "/run/config".into() });
    })
    .unwrap();
}

fn sh(script: &str) -> String {
    let out = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

impl Node {
    fn file(&self) -> PathBuf {
        self.folder.join("ip-masq-agent")
    }

    fn write(&self, text: &str) {
        let new = self.folder.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(FLANNELD);
        command.arg("ip-masq-agent").arg("--config").arg(self.file()).args(flags);
        command
    }

    fn agent(&self, flags: &[&str]) -> Agent {
        let log = fs::File::create(self.folder.with_file_name("log")).unwrap();
        let log = Stdio::from(log);
        Agent { child: self.command(flags).stderr(log).spawn().unwrap() }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.with_file_name("log")).unwrap()
    }

    /// What `--status` prints, and whether all is well.
    fn status(&self, flags: &[&str]) -> (bool, String) {
        let out = self.command(&[flags, &["--status"]].concat()).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LIMIT, "waited in vain until {what}: {}\n{}", rules(), self.log());
        }
        begun.elapsed()
    }

    fn until_rules_have(&self, text: &str) -> Duration {
        self.until(text, || rules().contains(text))
    }
}

/// A running agent; it ends with the test.
struct Agent {
    child: Child,
}

impl Agent {
    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rules of every system.
fn rules() -> String {
    sh("nft list ruleset; iptables-legacy-save -t nat; ip6tables-legacy-save -t nat")
}

fn iptables() -> Vec<String> {
    let kept = |line: &str| line.strip_prefix("-A IP-MASQ-AGENT -d ")?.split(' ').next().map(str::to_owned);
    sh("iptables-save -t nat").lines().filter_map(kept).collect()
}

#[test]
fn without_a_file_the_defaults_hold_and_a_new_file_is_followed_at_once() {
    in_a_node(|node| {
        let agent = node.agent(&[]);
        node.until("the defaults", || {
            iptables() == ["169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
        });
        node.write("nonMasqueradeCIDRs:\n- 203.0.113.0/24\nmasqLinkLocal: true\n");
        node.until("the file", || iptables() == ["203.0.113.0/24"]);
        fs::write(node.file(), r#"{"nonMasqueradeCIDRs":["198.51.100.0/24"]}"#).unwrap();
        node.until("a file that was written in its place", || {
            iptables() == ["169.254.0.0/16", "198.51.100.0/24"]
        });
        fs::remove_file(node.file()).unwrap();
        node.until("the defaults again", || iptables().len() == 4);
        assert_eq!(agent.end(), Some(0));
        assert_eq!(iptables().len(), 4);
        assert!(node.log().contains("ip-masq-agent ends; its rules stay"), "{}", node.log());
    });
}

#[test]
fn a_file_with_faults_is_told_and_the_old_rules_stay_and_are_still_repaired() {
    in_a_node(|node| {
        node.write("nonMasqueradeCIDRs: [203.0.113.0/24]\n");
        let _agent = node.agent(&[]);
        node.until_rules_have("203.0.113.0/24");
        let many: Vec<String> = (0..65).map(|n| format!("10.{n}.0.0/16")).collect();
        for (text, words) in [
            ("nonMasqueradeCIDRs: [10.0.0.1/8]\n".to_owned(), "nonMasqueradeCIDRs[0] is \\\"10.0.0.1/8\\\""),
            ("nonMasqueradeCIDRs: [fd00::/8]\n".to_owned(), "IPv6 is off"),
            (format!("nonMasqueradeCIDRs: [{}]\n", many.join(", ")), "a list of 65, expected at most 64"),
            ("resyncInterval: often\n".to_owned(), "resyncInterval is"),
            ("- what\n".to_owned(), "it has no keys"),
            ("a: [\n".to_owned(), "it is not YAML"),
        ] {
            node.write(&text);
            let plain = words.replace('\\', "");
            node.until(words, || node.log().contains(&plain));
            sh("iptables -t nat -F IP-MASQ-AGENT");
            node.until("the old rules", || iptables() == ["169.254.0.0/16", "203.0.113.0/24"]);
        }
        assert!(node.log().contains("the last good configuration stays in force"), "{}", node.log());
        node.write("nonMasqueradeCIDRs: [198.51.100.0/24]\n");
        node.until_rules_have("198.51.100.0/24");
        node.until("that is said", || node.log().contains("all is well again"));
    });
}

#[test]
fn before_the_first_good_file_nothing_is_touched() {
    in_a_node(|node| {
        sh("iptables -t nat -N IP-MASQ-AGENT; iptables -t nat -A IP-MASQ-AGENT -d 192.0.2.0/24 -j RETURN");
        let before = rules();
        node.write("nonMasqueradeCIDRs: 7\n");
        let _agent = node.agent(&["--nftables"]);
        node.until("the fault is told", || node.log().contains("nothing is done until it is mended"));
        assert_eq!(rules(), before);
        node.write("");
        node.until_rules_have("table ip ip-masq-agent");
        node.until("what was left is gone", || !rules().contains("table ip nat {\n\tchain IP-MASQ-AGENT"));
    });
}

/// As Kubernetes does it: the file is a link through a link to a folder, and the middle one is renamed.
#[test]
fn a_config_map_that_is_swapped_is_followed() {
    in_a_node(|node| {
        let publish = |version: &str, text: &str| {
            let folder = node.folder.join(version);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("ip-masq-agent"), text).unwrap();
            symlink(version, node.folder.join("..data_tmp")).unwrap();
            fs::rename(node.folder.join("..data_tmp"), node.folder.join("..data")).unwrap();
        };
        publish("..1", "nonMasqueradeCIDRs: [203.0.113.0/24]\n");
        symlink("..data/ip-masq-agent", node.file()).unwrap();
        let _agent = node.agent(&["--nftables"]);
        node.until_rules_have("203.0.113.0/24");
        for (version, network) in [("..2", "198.51.100.0/24"), ("..3", "192.0.2.0/24")] {
            publish(version, &format!("nonMasqueradeCIDRs: [{network}]\n"));
            node.until_rules_have(network);
        }
    });
}

#[test]
fn a_folder_that_comes_later_is_found() {
    in_a_node(|node| {
        let far = node.folder.join("far/away");
        let node = Node { folder: far.clone() };
        let log = Stdio::from(fs::File::create("/run/log").unwrap());
        let _agent = Agent { child: node.command(&["--nftables"]).stderr(log).spawn().unwrap() };
        let wait = |text: &str| {
            let begun = Instant::now();
            while !rules().contains(text) {
                assert!(begun.elapsed() < LIMIT, "{text}: {}", rules());
            }
        };
        wait("172.16.0.0/12");
        fs::create_dir_all(&far).unwrap();
        node.write("nonMasqueradeCIDRs: [203.0.113.0/24]\n");
        wait("203.0.113.0/24");
        fs::remove_dir_all(far.parent().unwrap()).unwrap();
        wait("172.16.0.0/12");
        fs::create_dir_all(&far).unwrap();
        node.write("nonMasqueradeCIDRs: [198.51.100.0/24]\n");
        wait("198.51.100.0/24");
    });
}

/// Hosts with many programs that watch files run out of what the kernel gives for it.
#[test]
fn where_files_cannot_be_watched_they_are_read_every_second() {
    in_a_node(|node| {
        let words = "echo 0 > /proc/sys/user/max_inotify_instances; exec \"$@\"";
        let log = fs::File::create(node.folder.with_file_name("log")).unwrap();
        let agent = node.command(&["--nftables"]);
        let mut command = Command::new("unshare");
        command.args(["-Urn", "sh", "-c", words, "sh"]).arg(agent.get_program()).args(agent.get_args());
        let _agent = Agent { child: command.stderr(log).spawn().unwrap() };
        node.until("it is said", || {
            node.log().contains("the file cannot be watched: it is read every second")
        });
        node.write("nonMasqueradeCIDRs: [203.0.113.0/24]\n");
        node.until("the file is read", || node.log().contains("the configuration of the file holds"));
    });
}

#[test]
fn the_file_switches_between_iptables_and_nftables_and_nothing_is_left_behind() {
    in_a_node(|node| {
        let _agent = node.agent(&["--enable-ipv6"]);
        node.until("rules of both families", || {
            sh("ip6tables-save -t nat").contains("IP-MASQ-AGENT -d fe80::/10")
        });
        for _ in 0..3 {
            node.write("nftables: true\n");
            node.until("nftables alone", || {
                let rules = sh("nft list ruleset");
                rules.matches("table ip ip-masq-agent").count() == 1
                    && rules.matches("table ip6 ip-masq-agent").count() == 1
                    && rules.matches("chain IP-MASQ-AGENT").count() == 2
            });
            node.write("nftables: false\n");
            node.until("iptables alone", || {
                let rules = sh("nft list ruleset");
                !rules.contains("ip-masq-agent {") && rules.matches("chain IP-MASQ-AGENT").count() == 2
            });
        }
        assert!(!node.log().contains("ERROR"), "{}", node.log());
    });
}

#[test]
fn what_others_break_is_repaired_at_their_notice_and_a_fight_is_damped() {
    for (flag, harm, whole) in [
        ("--nftables", "nft flush ruleset", "masquerade fully-random comment"),
        ("--nftables=false", "nft flush ruleset", "jump IP-MASQ-AGENT"),
        ("--nftables=false", "iptables -t nat -F", "jump IP-MASQ-AGENT"),
    ] {
        in_a_node(|node| {
            let _agent = node.agent(&[flag]);
            node.until_rules_have(whole);
            let is_whole = || sh("nft list ruleset").contains(whole);
            for _ in 0..5 {
                sh(harm);
                node.until("repaired", is_whole);
            }
            let told = || node.log().contains("somebody keeps changing these rules");
            while !told() {
                sh(harm);
                node.until("repaired or told", || is_whole() || told());
            }
            let told = node.log().lines().filter(|line| line.contains("rules were repaired")).any(|line| {
                let program = if harm.starts_with("nft") { "by=\"nft\"" } else { "by=\"iptables\"" };
                line.contains(program)
            });
            assert!(told, "{}", node.log());
        });
    }
}

#[test]
fn in_steady_state_no_program_is_started() {
    for flag in ["--nftables", "--nftables=false"] {
        in_a_node(|node| {
            node.write("resyncInterval: 1s\n");
            let _agent = node.agent(&[flag, "-v=1"]);
            let looks = || node.log().matches("the rules are as they should be").count();
            node.until("three looks", || looks() >= 3);
            // Without programs a look that needs one fails, and says so; the mounts are the agent's, too.
            let begun = looks();
            sh("mount --bind $(mktemp -d) /usr/sbin");
            node.until("three more", || looks() >= begun + 3);
            assert!(!node.log().contains("ERROR"), "{}", node.log());
        });
    }
}

/// Links by which the plain names of iptables mean its legacy flavour.
fn legacy_programs() -> String {
    sh("mkdir /run/bin
        for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
            ln -s /usr/sbin/xtables-legacy-multi /run/bin/$name
        done");
    format!("/run/bin:{}", std::env::var("PATH").unwrap())
}

#[test]
fn in_legacy_iptables_rules_are_repaired_at_the_resync() {
    in_a_node(|node| {
        let path = legacy_programs();
        node.write("resyncInterval: 1s\n");
        let log = fs::File::create(node.folder.with_file_name("log")).unwrap();
        let child = node.command(&["-v=1"]).env("PATH", path).stderr(log).spawn().unwrap();
        let _agent = Agent { child };
        node.until_rules_have("-A IP-MASQ-AGENT -d 10.0.0.0/8");
        for _ in 0..2 {
            sh("iptables-legacy -t nat -F");
            node.until_rules_have("-A IP-MASQ-AGENT -d 10.0.0.0/8");
        }
        assert!(!rules().contains("table ip nat"), "{}", rules());
    });
}

/// The node daemon, with masquerade, on a node with one cable.
fn flanneld(net_conf: &str) -> Agent {
    sh("ip link add eth0 type veth peer name far
        ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up && ip link set far up
        mkdir -p /run/leases");
    change_net_conf(net_conf);
    let words =
        ["--lease-dir=/run/leases", "--ip-masq", "--iface=eth0", "--subnet-file=/run/flannel/subnet.env"];
    let log = fs::File::create("/run/flanneld-log").unwrap();
    let mut command = Command::new(FLANNELD);
    Agent { child: command.args(words).env("NODE_NAME", "n1").stderr(log).spawn().unwrap() }
}

fn change_net_conf(net_conf: &str) {
    fs::write("/run/leases/new", net_conf).unwrap();
    fs::rename("/run/leases/new", "/run/leases/config.json").unwrap();
}

#[test]
fn flanneld_and_the_agent_keep_their_rules_beside_each_other_and_do_not_fight() {
    for (nftables, flag) in [(true, "--nftables"), (false, "--nftables=false"), (true, "--nftables=false")] {
        in_a_node(|node| {
            let net_conf = format!(
                r#"{{"Network":"10.244.0.0/16","EnableNFTables":{nftables},"Backend":{{"Type":"host-gw"}}}}"#
            );
            let _flanneld = flanneld(&net_conf);
            node.write("resyncInterval: 1s\n");
            let _agent = node.agent(&[flag, "-v=1"]);
            let ours = if nftables { "chain postrtg" } else { "chain FLANNEL-POSTRTG" };
            let both = || rules().contains(ours) && node.status(&[flag]).0;
            node.until("both have their rules", both);
            sh("nft flush ruleset");
            node.until("both have their rules again", both);
            let repairs = || node.log().matches("rules were repaired").count();
            let looks = || node.log().matches("the rules are as they should be").count();
            let (repaired, looked) = (repairs(), looks());
            node.until("three more looks", || looks() >= looked + 3);
            assert_eq!(repairs(), repaired, "{}", node.log());
            assert!(both());
            let log = fs::read_to_string("/run/flanneld-log").unwrap();
            assert!(!log.contains("keeps changing"), "{log}");
        });
    }
}

#[test]
fn a_list_in_the_net_conf_is_followed_without_a_restart() {
    for nftables in [true, false] {
        in_a_node(|node| {
            let net_conf = |list: &str| {
                format!(
                    r#"{{"Network":"10.244.0.0/16","EnableNFTables":{nftables},"NonMasqueradeCIDRs":[{list}],"Backend":{{"Type":"host-gw"}}}}"#
                )
            };
            fs::write(node.folder.with_file_name("log"), "").unwrap();
            let _flanneld = flanneld(&net_conf(""));
            node.until_rules_have("ip saddr 10.244.0.0/16");
            change_net_conf(&net_conf(r#""203.0.113.0/24""#));
            node.until_rules_have("203.0.113.0/24");
            change_net_conf(&net_conf(r#""198.51.100.0/24""#));
            node.until_rules_have("198.51.100.0/24");
            assert!(!rules().contains("203.0.113.0/24"));
            change_net_conf(&net_conf(r#""198.51.100.1/24""#));
            node.until("the fault is told", || {
                fs::read_to_string("/run/flanneld-log").unwrap().contains("NonMasqueradeCIDRs[0]")
            });
            assert!(rules().contains("198.51.100.0/24"));
            change_net_conf(&net_conf(""));
            node.until("the list is gone", || !rules().contains("198.51.100.0/24"));
        });
    }
}

#[test]
fn the_status_says_in_words_what_is_wrong() {
    in_a_node(|node| {
        node.write("nonMasqueradeCIDRs: [203.0.113.0/24]\n");
        let (is_well, text) = node.status(&["--nftables"]);
        assert!(!is_well);
        assert_eq!(
            text,
            "file   /run/config/ip-masq-agent holds\n\
             keeps  the source to 203.0.113.0/24; link-local is kept (IPv4) and kept (IPv6)\n\
             rules  nftables ip ip-masq-agent: there is no table ip ip-masq-agent\n"
        );
        let agent = node.agent(&["--nftables"]);
        node.until("all is well", || node.status(&["--nftables"]).0);
        assert!(
            node.status(&["--nftables"])
                .1
                .ends_with("rules  nftables, chain IP-MASQ-AGENT: as they should be\n")
        );
        assert_eq!(agent.end(), Some(0));
        fs::remove_file(node.file()).unwrap();
        assert!(node.status(&[]).1.starts_with("file   /run/config/ip-masq-agent is not there, or empty"));
        node.write("nonMasqueradeCIDRs: [nowhere]\n");
        let (is_well, text) = node.status(&[]);
        assert!(!is_well && text.contains("cannot be used: nonMasqueradeCIDRs[0] is \"nowhere\""), "{text}");
    });
}

#[test]
fn the_command_line_is_checked() {
    let run = |words: &[&str]| {
        let mut child = Command::new(FLANNELD).args(words).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code(), text)
    };
    let version = format!("{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["ip-masq-agent", "--version"]), (Some(0), version));
    let (code, text) = run(&["ip-masq-agent", "--help"]);
    assert!(code == Some(0) && text.starts_with("Usage: flanneld ip-masq-agent"), "{text}");
    let expected = "flanneld ip-masq-agent cannot start: 1 fault in the options\n  --ip-masq: there is no such flag\n\
                    `flanneld ip-masq-agent --help` lists every flag.\n";
    assert_eq!(run(&["ip-masq-agent", "--ip-masq"]), (Some(2), expected.to_owned()));
}
