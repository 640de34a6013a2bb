//! The skeleton: what is said for each call, and in which form.

use super::*;

fn environment(command: &str) -> Environment {
    Environment {
        command: command.into(),
        container_id: "c0ffee01".into(),
        netns: "/run/netns/none".into(),
        ifname: "eth0".into(),
        path: "/none".into(),
        ..Environment::default()
    }
}

fn failed(stdout: &str) -> Reply {
    Reply { stdout: stdout.into(), stderr: String::new(), status: 1 }
}

/// Standard input that must not be read, or cannot be.
struct Unreadable;

impl Read for Unreadable {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the tape is torn"))
    }
}

#[test]
fn version_is_answered_without_reading_standard_input() {
    let reply = answer(
        Plugin::Bridge,
        &Environment { command: "VERSION".into(), ..Environment::default() },
        Unreadable,
    );
    let expected = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    assert_eq!(reply, Reply { stdout: expected.into(), ..Reply::default() });
}

#[test]
fn without_a_command_a_person_is_told_what_this_is() {
    let reply = answer(Plugin::HostLocal, &Environment::default(), Unreadable);
    let stderr = format!(
        "CNI host-local plugin, flannel-cni {}\nCNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(reply, Reply { stderr, ..Reply::default() });
}

#[test]
fn an_error_is_printed_as_go_prints_it() {
    let reply =
        answer(Plugin::Loopback, &Environment { ifname: "a/b".into(), ..environment("ADD") }, Unreadable);
    assert_eq!(
        reply,
        failed(
            "{\n    \"code\": 4,\n    \"msg\": \"interface name contains / or : or whitespace characters\"\n}"
        )
    );
    let reply = answer(Plugin::Loopback, &environment("ADD"), &br#"{"name":"a b"}"#[..]);
    assert_eq!(
        reply,
        failed(
            "{\n    \"code\": 7,\n    \"msg\": \"invalid characters found in network name\",\n    \"details\": \"a b\"\n}"
        )
    );
}

#[test]
fn standard_input_that_cannot_be_read_is_told_also_for_an_unknown_command() {
    for command in ["ADD", "FOO"] {
        let reply = answer(Plugin::Loopback, &environment(command), Unreadable);
        let stdout = "{\n    \"code\": 5,\n    \"msg\": \"error reading from stdin: the tape is torn\"\n}";
        assert_eq!(reply, failed(stdout));
    }
}

#[test]
fn standard_input_without_end_is_refused() {
    let reply = answer(Plugin::Loopback, &environment("ADD"), std::io::repeat(b' '));
    assert!(reply.stdout.contains("\"code\": 5"), "{}", reply.stdout);
    assert!(reply.stdout.contains("longer than 16777216 bytes"), "{}", reply.stdout);
}

#[test]
fn a_container_in_our_own_namespace_is_refused_before_anything_is_done() {
    let stdin = br#"{"cniVersion":"1.0.0","name":"lo"}"#;
    for command in ["ADD", "DEL"] {
        let ours = Environment { netns: "/proc/thread-self/ns/net".into(), ..environment(command) };
        let text = "plugin's netns and netns from CNI_NETNS should not be the same";
        let stdout = format!("{{\n    \"code\": 8,\n    \"msg\": \"{text}\"\n}}");
        assert_eq!(answer(Plugin::Loopback, &ours, &stdin[..]), failed(&stdout));
    }
    let meant = Environment {
        netns: "/proc/thread-self/ns/net".into(),
        netns_override: "1".into(),
        ..environment("DEL")
    };
    assert_eq!(
        answer(Plugin::Loopback, &meant, &stdin[..]),
        Reply::default(),
        "and yet our lo is not lowered"
    );
}

#[test]
fn del_check_gc_and_status_say_nothing_when_all_is_well() {
    let stdin = br#"{"cniVersion":"1.1.0","name":"lo"}"#;
    for command in ["DEL", "GC", "STATUS"] {
        assert_eq!(
            answer(Plugin::Loopback, &environment(command), &stdin[..]),
            Reply::default(),
            "{command}"
        );
    }
}

#[test]
fn another_name_has_a_command_line() {
    let line = |arguments: &[&str]| {
        command_line("flannel-cni", &arguments.iter().map(OsString::from).collect::<Vec<_>>())
    };
    assert_eq!(line(&[]), Reply { stdout: HELP.into(), ..Reply::default() });
    assert_eq!(line(&["--help"]), line(&[]));
    let version = format!("flannel-cni {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(line(&["--version"]), Reply { stdout: version, ..Reply::default() });
    assert_eq!(line(&["install"]), Reply { stderr: HELP.into(), status: 2, ..Reply::default() });
    assert_eq!(line(&["destroy"]).status, 2);
}
