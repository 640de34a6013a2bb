//! Tables over (words, variables): whole options, or whole lists of faults.

use std::os::unix::ffi::OsStringExt;

use super::fault::{Origin, Shown};
use super::*;
use flannel_leases::etcd::Secret;
use flannel_plan::annotations::AnnotationPrefix;
use std::time::Duration;

const DIR: &str = "--lease-dir=/leases";

fn source(words: &[&str], variables: &[(&str, &str)]) -> Source {
    Source {
        words: words.iter().map(OsString::from).collect(),
        environment: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        host_name: "host-7".to_owned(),
    }
}

fn faults(words: &[&str], variables: &[(&str, &str)]) -> Vec<OptionFault> {
    parse(&source(words, variables)).unwrap_err()
}

fn texts(words: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    faults(words, variables).iter().map(OptionFault::to_string).collect()
}

fn run(words: &[&str], variables: &[(&str, &str)]) -> Options {
    match parse(&source(words, variables)) {
        Ok(Parsed::Run(options)) => *options,
        other => panic!("{words:?} {variables:?}: {other:?}"),
    }
}

/// The rules of a node whose operator says nothing about them.
const RULES: RuleOptions = RuleOptions {
    ip_masq: false,
    source_ports: SourcePorts::Randomised,
    forward: true,
    untrack: true,
    blackhole: false,
    resync: Duration::from_secs(5),
};

/// What `--lease-dir=/leases` alone gives.
fn plain() -> Options {
    Options {
        store: Store::Directory("/leases".into()),
        owner: "host-7".to_owned(),
        ifaces: vec![],
        iface_regexes: vec![],
        iface_can_reach: None,
        public: ByFamily::default(),
        subnet_file: "/run/flannel/subnet.env".to_owned(),
        rules: RULES,
        healthz: None,
        verbosity: 0,
        log_format: LogFormat::Text,
        warnings: vec![],
    }
}

fn by_flag(flag: &'static str) -> Origin {
    Origin { flag, from: Provenance::Flag }
}

fn bad(origin: Origin, value: &str, why: &str) -> OptionFault {
    OptionFault::BadValue { origin, value: Shown::Text(value.to_owned()), why: why.to_owned() }
}

#[test]
fn a_folder_for_leases_is_all_that_has_to_be_said() {
    assert_eq!(run(&[DIR], &[]), plain());
}

#[test]
fn a_flag_has_one_dash_or_two_and_its_value_behind_it_or_in_the_next_word() {
    let forms: [&[&str]; 4] = [
        &["-healthz-port=8081"],
        &["--healthz-port=8081"],
        &["-healthz-port", "8081"],
        &["--healthz-port", "8081"],
    ];
    let expected = Options { healthz: Some("0.0.0.0:8081".parse().unwrap()), ..plain() };
    for form in forms {
        assert_eq!(run(&[form, &[DIR]].concat(), &[]), expected, "{form:?}");
    }
}

#[test]
fn every_option_is_read_from_flags() {
    let words = "--iface=eth0 --iface 10.0.0.1 --iface-regex=^eth,1$ -iface-regex ens.* --iface-can-reach=fd00::1 \
                 --public-ip=192.0.2.1 --public-ipv6=2001:db8::1 --subnet-file=/tmp/a=b.env --healthz-ip=::1 \
                 --healthz-port=0x1F91 -v=1 -v=4 --log-format=json --lease-dir=/leases --";
    let expected = Options {
        ifaces: vec!["eth0".to_owned(), "10.0.0.1".to_owned()],
        iface_regexes: ["^eth,1$", "ens.*"].map(|text| Pattern(Regex::new(text).unwrap())).into(),
        iface_can_reach: Some("fd00::1".parse().unwrap()),
        public: ByFamily { v4: Some("192.0.2.1".parse().unwrap()), v6: Some("2001:db8::1".parse().unwrap()) },
        subnet_file: "/tmp/a=b.env".to_owned(),
        healthz: Some("[::1]:8081".parse().unwrap()),
        verbosity: 4,
        log_format: LogFormat::Json,
        ..plain()
    };
    assert_eq!(run(&words.split(' ').collect::<Vec<_>>(), &[]), expected);
}

#[test]
fn the_environment_fills_in_what_the_command_line_leaves_open() {
    let variables = [
        ("FLANNELD_LEASE_DIR", "/leases"),
        ("FLANNELD_LOG_FORMAT", "json"),
        ("FLANNELD_IFACE", "eth0"),
        ("FLANNELD_HEALTHZ_PORT", "bad, and not looked at"),
        ("FLANNELD_PUBLIC_IP", ""),
        ("FLANNELD_IP_MASQ", "false"),
        ("FLANNELD_VERSION", "v0.28.9"),
        ("FLANNELD_PORT", "tcp://10.96.0.7:80"),
        ("NODE_NAME", "worker-3"),
    ];
    let expected = Options {
        owner: "worker-3".to_owned(),
        log_format: LogFormat::Json,
        ifaces: vec!["eth0".to_owned()],
        ..plain()
    };
    assert_eq!(run(&["--healthz-port=0"], &variables), expected);
}

#[test]
fn what_asks_for_nothing_is_accepted_though_it_is_another_stores() {
    let words = [
        "--kube-subnet-mgr=False",
        "--set-node-network-unavailable=FALSE",
        "--kube-api-url=",
        "--kubeconfig-file",
        "",
        "--etcd-password=",
        "--public-ip=",
        "--vmodule=",
        DIR,
    ];
    assert_eq!(run(&words, &[]), plain());
}

#[test]
fn the_last_of_several_values_holds() {
    let expected = plain();
    assert_eq!(run(&["--ip-masq", DIR, "--ip-masq=false"], &[]), expected);
}

#[test]
fn klog_flags_are_accepted_and_the_operator_is_told_that_they_do_nothing() {
    let words = ["-vmodule=main=3", "--log_backtrace_at", "main.go:7", DIR];
    let expected = Options {
        warnings: vec![
            "--log_backtrace_at has no effect; RUST_LOG chooses what is logged".to_owned(),
            "--vmodule has no effect; RUST_LOG chooses what is logged".to_owned(),
        ],
        ..plain()
    };
    assert_eq!(run(&words, &[]), expected);
}

#[test]
fn help_beats_every_fault() {
    for word in ["-h", "--h", "-help", "--help", "--help=false"] {
        assert_eq!(parse(&source(&["--nonsense", "--v=x", word], &[])), Ok(Parsed::Help), "{word}");
    }
}

#[test]
fn the_version_beats_the_environment_and_a_missing_store_but_no_fault_of_the_line() {
    let bad_variable = [("FLANNELD_V", "x")];
    for word in ["-version", "--version", "--version=1"] {
        assert_eq!(parse(&source(&[word], &bad_variable)), Ok(Parsed::Version), "{word}");
    }
    assert_eq!(run(&["--version=false", DIR], &[]), plain());
    let unknown = OptionFault::Unknown { name: "nonsense".to_owned(), nearest: None };
    assert_eq!(faults(&["--version", "--nonsense", DIR], &[]), [unknown]);
    assert_eq!(
        faults(&["--version=maybe", DIR], &[]),
        [bad(by_flag("version"), "maybe", "is neither true nor false")]
    );
}

#[test]
fn every_fault_is_reported_at_once() {
    let words = ["--ip-mask", "--healthz-port=70000", "stray", "-=", "--iface-regex=(", "--v=x", "--v"];
    let variables = [("FLANNELD_PUBLIC_IP", "fd00::1"), ("NODE_NAME", "a/b"), (("FLANNELD_IP_MASQ"), "yes")];
    let expected = [
        "--ip-mask: there is no such flag; did you mean --ip-masq?",
        "\"stray\": flanneld takes only flags; quote a value that has spaces in it",
        "-: a flag is written --NAME or --NAME=VALUE",
        "--v: the value is missing; write --v=VALUE",
        "--iface-regex: \"(\" is not a regular expression: unclosed group",
        "FLANNELD_PUBLIC_IP: \"fd00::1\" is not an IPv4 address; use --public-ipv6 for the other family",
        "--healthz-port: \"70000\" is not within 0 to 65535",
        "--v: \"x\" is not a whole number",
        "FLANNELD_IP_MASQ: \"yes\" is neither true nor false",
        "NODE_NAME: \"a/b\" cannot name this node; set NODE_NAME to 1 to 253 letters, digits, `-`, `_` or `.`",
    ];
    assert_eq!(texts(&words, &variables), expected);
}

#[test]
fn a_switch_with_its_value_in_a_word_of_its_own_is_told_how_to_write_it() {
    let detached = OptionFault::Detached { value: "false".to_owned(), switch: "ip-masq" };
    assert_eq!(
        detached.to_string(),
        "false: --ip-masq takes its value only behind `=`; write --ip-masq=false"
    );
    // The flag after it is read as well: Go would have ignored it.
    let resync = bad(by_flag("iptables-resync"), "5s", "is not a whole number");
    assert_eq!(faults(&["--ip-masq", "false", "--iptables-resync=5s", DIR], &[]), [detached, resync]);
}

#[test]
fn two_dashes_end_the_flags_and_nothing_may_follow() {
    let stray = OptionFault::Stray { word: Shown::Text("--v=3".to_owned()) };
    assert_eq!(faults(&[DIR, "--", "--v=3"], &[]), [stray]);
    let dash = OptionFault::Stray { word: Shown::Text("-".to_owned()) };
    assert_eq!(faults(&[DIR, "-"], &[]), [dash]);
}

#[test]
fn every_switch_of_the_rules_can_be_turned() {
    let resync = |seconds| Duration::from_secs(seconds);
    let cases = [
        ("--ip-masq", RuleOptions { ip_masq: true, ..RULES }),
        ("--ip-masq-fully-random-disable", RuleOptions { source_ports: SourcePorts::Kept, ..RULES }),
        ("--iptables-forward-rules=F", RuleOptions { forward: false, ..RULES }),
        ("--vxlan-notrack=0", RuleOptions { untrack: false, ..RULES }),
        ("--ip-blackhole-route=T", RuleOptions { blackhole: true, ..RULES }),
        ("--iptables-resync=60", RuleOptions { resync: resync(60), ..RULES }),
        ("--iptables-resync=0", RuleOptions { resync: resync(1), ..RULES }),
        ("--iptables-resync=-5", RuleOptions { resync: resync(1), ..RULES }),
    ];
    for (word, rules) in cases {
        assert_eq!(run(&[word, DIR], &[]).rules, rules, "{word}");
    }
}

#[test]
fn a_margin_that_is_no_part_of_a_day_is_refused() {
    for margin in ["0", "1440"] {
        let word = format!("--subnet-lease-renew-margin={margin}");
        let expected = bad(by_flag("subnet-lease-renew-margin"), margin, "is not within 1 to 1439");
        assert_eq!(faults(&[&word, DIR], &[]), [expected]);
    }
}

fn etcd() -> EtcdOptions {
    EtcdOptions {
        endpoints: ["http://127.0.0.1:4001", "http://127.0.0.1:2379"].map(str::to_owned).into(),
        prefix: "/coreos.com/network".to_owned(),
        renew_margin: Duration::from_secs(3600),
        ..EtcdOptions::default()
    }
}

#[test]
fn leases_are_kept_in_etcd_unless_somebody_says_otherwise() {
    assert_eq!(run(&["--kube-subnet-mgr=false"], &[]).store, Store::Etcd(etcd()));
    let words = "--etcd-endpoints=https://a:1, --etcd-prefix=/x --etcd-cafile=ca --etcd-certfile=c --etcd-keyfile=k \
                 --etcd-username=u --etcd-password=p --subnet-lease-renew-margin=5";
    let expected = EtcdOptions {
        endpoints: vec!["https://a:1".to_owned()],
        prefix: "/x".to_owned(),
        ca_file: Some("ca".into()),
        cert_file: Some("c".into()),
        key_file: Some("k".into()),
        username: "u".to_owned(),
        password: Secret::new("p"),
        renew_margin: Duration::from_secs(300),
    };
    assert_eq!(run(&words.split_whitespace().collect::<Vec<_>>(), &[]).store, Store::Etcd(expected));
    assert_eq!(
        run(&[], &[("FLANNELD_ETCD_PREFIX", "/y")]).store,
        Store::Etcd(EtcdOptions { prefix: "/y".into(), ..etcd() })
    );
}

#[test]
fn kubernetes_keeps_leases_if_it_is_asked_for() {
    let expected = KubernetesOptions {
        api_url: None,
        kubeconfig: None,
        node_name: Some("worker-3".to_owned()),
        pod: None,
        prefix: AnnotationPrefix::default(),
        net_conf: "/etc/kube-flannel/net-conf.json".into(),
        set_condition: true,
    };
    let node = [("FLANNELD_KUBE_SUBNET_MGR", "true"), ("NODE_NAME", "worker-3")];
    assert_eq!(run(&[], &node).store, Store::Kubernetes(expected.clone()));
    let words = "--kube-subnet-mgr --kube-api-url=https://x --kubeconfig-file=/k --net-config-path=/n \
                 --kube-annotation-prefix=example.com/blue --set-node-network-unavailable=false";
    let expected = KubernetesOptions {
        api_url: Some("https://x".to_owned()),
        kubeconfig: Some("/k".into()),
        node_name: None,
        pod: Some(("p".to_owned(), "kube-flannel".to_owned())),
        prefix: "example.com/blue".parse().unwrap(),
        net_conf: "/n".into(),
        set_condition: false,
    };
    let pod = [("POD_NAME", "p"), ("POD_NAMESPACE", "kube-flannel")];
    assert_eq!(run(&words.split_whitespace().collect::<Vec<_>>(), &pod).store, Store::Kubernetes(expected));
    assert_eq!(faults(&["--kube-subnet-mgr"], &pod[..1]), [OptionFault::NoNode]);
}

#[test]
fn a_flag_of_another_store_is_taken_and_said_to_do_nothing() {
    let node = [("NODE_NAME", "n")];
    let cases: [(&[&str], &str); 3] = [
        (&["--kube-api-url=http://x", DIR], "--kube-api-url has no effect: leases are kept by --lease-dir"),
        (&["--kubeconfig-file=/k"], "--kubeconfig-file has no effect: leases are kept by etcd"),
        (
            &["--kube-subnet-mgr", "--etcd-prefix=/x"],
            "--etcd-prefix has no effect: leases are kept by --kube-subnet-mgr",
        ),
    ];
    for (words, warning) in cases {
        assert_eq!(run(words, &node).warnings, [warning], "{words:?}");
    }
    let prefix = "is no prefix of annotations: expected a domain in lower case such as flannel.alpha.coreos.com, \
                  and perhaps one slash and a name";
    assert_eq!(
        faults(&["--kube-annotation-prefix=x"], &[]),
        [bad(by_flag("kube-annotation-prefix"), "x", prefix)]
    );
}

#[test]
fn two_stores_at_once_are_refused() {
    let cases = [
        (vec!["--kube-subnet-mgr"], "--kube-subnet-mgr"),
        (vec!["--etcd-prefix=/coreos.com/network"], "--etcd-prefix"),
        (vec!["--etcd-keyfile=k", "--kube-subnet-mgr"], "--kube-subnet-mgr, --etcd-keyfile"),
    ];
    for (mut words, others) in cases {
        words.push(DIR);
        let expected = format!("--lease-dir chooses another store than {others}; keep one of the two");
        assert_eq!(texts(&words, &[]), [expected]);
    }
    assert_eq!(faults(&["--lease-dir="], &[]), [bad(by_flag("lease-dir"), "", "is no path")]);
}

#[test]
fn a_node_has_a_name_that_can_be_shown_and_kept() {
    let nameless = |from, name: &str| vec![OptionFault::Nameless { from, name: name.to_owned() }];
    let mut nobody = source(&[DIR], &[("NODE_NAME", "")]);
    nobody.host_name = "(none)".to_owned();
    assert_eq!(parse(&nobody), Err(nameless("the host's name", "(none)")));
    for name in ["..", "a b", "ä", "a\nb"] {
        assert_eq!(faults(&[DIR], &[("NODE_NAME", name)]), nameless("NODE_NAME", name));
    }
    assert_eq!(run(&[DIR], &[("NODE_NAME", "ip-10-0-0-1.eu_1.Internal")]).owner, "ip-10-0-0-1.eu_1.Internal");
}

#[test]
fn bytes_that_are_not_text_are_refused_by_place() {
    let broken = |prefix: &str| OsString::from_vec([prefix.as_bytes(), b"\xff"].concat());
    let mut source = source(&[DIR], &[]);
    source.words.extend([broken("--subnet-file=x"), "--iface".into(), broken("eth")]);
    source.environment.insert("FLANNELD_PUBLIC_IP".into(), broken("10"));
    let places = ["--subnet-file", "--iface", "FLANNELD_PUBLIC_IP"];
    assert_eq!(
        parse(&source),
        Err(places.map(|place| OptionFault::NotText { place: place.to_owned() }).into())
    );
}

#[test]
fn no_fault_shows_a_password() {
    let lines: [&[&str]; 8] = [
        &["--etcd-password=hunter2"],
        &["--etcd-password", "hunter2", DIR],
        &["--etcd-password", "correct", "hunter2", "hunter2"],
        &["--etcd-password", "=", "hunter2"],
        &["--etcd-pasword=hunter2"],
        &["--etcd-pasword", "hunter2"],
        &["---etcd-password=hunter2"],
        &["--etcd-password", "--", "--", "hunter2"],
    ];
    for line in lines {
        let found = parse(&source(line, &[("FLANNELD_ETCD_PASSWORD", "hunter2")]));
        let told = found.as_ref().err().map(|faults| report("flanneld", faults));
        let shown = format!("{found:?} {told:?}");
        assert!(!shown.contains("hunter2"), "{line:?}: {shown}");
    }
}

#[test]
fn the_report_counts_the_faults_and_names_the_help() {
    let one = faults(&["--nonsense", DIR], &[]);
    let expected = "flanneld cannot start: 1 fault in the options\n  --nonsense: there is no such flag\n\
                    `flanneld --help` lists every flag.\n";
    assert_eq!(report("flanneld", &one), expected);
    assert!(
        report("flanneld", &[one.clone(), one].concat())
            .starts_with("flanneld cannot start: 2 faults in the options\n")
    );
}
