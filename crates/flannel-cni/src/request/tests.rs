//! The order of the checks, the gates of the versions, and what a plugin asks of a request.

use super::*;

fn environment(command: &str) -> Environment {
    Environment {
        command: command.into(),
        container_id: "c0ffee01".into(),
        netns: "/run/netns/pod1".into(),
        ifname: "eth0".into(),
        path: "/opt/cni/bin:/usr/lib/cni".into(),
        ..Environment::default()
    }
}

fn read(command: &str, stdin: &str) -> Result<Request, CniError> {
    Request::read(&environment(command), stdin.as_bytes())
}

fn refusal(command: &str, stdin: &str) -> (u32, String) {
    let error = read(command, stdin).unwrap_err();
    (error.code, error.to_string())
}

#[test]
fn a_request_is_the_environment_and_the_configuration() {
    let stdin = r#"{"cniVersion":"0.3.1","name":"cbr0","type":"flannel"}"#;
    let request = read("ADD", stdin).unwrap();
    assert_eq!(request.command, Command::Add);
    assert_eq!(request.netns, Some("/run/netns/pod1".into()));
    assert_eq!(request.path, ["/opt/cni/bin", "/usr/lib/cni"].map(PathBuf::from));
    assert_eq!((request.version, &*request.network), (Version::V0_3_1, "cbr0"));
    assert_eq!(Value::Object(request.config), stdin.parse::<Value>().unwrap());
    let del = Environment { netns: "".into(), ..environment("DEL") };
    assert_eq!(Request::read(&del, stdin.as_bytes()).unwrap().netns, None);
}

#[test]
fn what_is_no_json_object_is_told_first() {
    for stdin in ["", "{", "[]", "3", "\"x\"", "{} {}", "{}x", r#"{"name":"n"}]"#] {
        let (code, text) = refusal("FOO", stdin);
        assert_eq!(code, code::DECODING_FAILURE, "{stdin}");
        assert!(text.starts_with("error unmarshall network config: "), "{text}");
    }
    assert_eq!(refusal("ADD", r#"{"name":7}"#).0, code::DECODING_FAILURE);
}

#[test]
fn then_the_name_of_the_network() {
    for stdin in ["null", "{}", r#"{"name":""}"#, r#"{"name":null}"#] {
        assert_eq!(refusal("FOO", stdin), (7, "missing network name".into()));
    }
    for name in ["bad name", "../x", "-x", "ä"] {
        let told = format!("invalid characters found in network name; {name}");
        assert_eq!(refusal("FOO", &format!(r#"{{"name":"{name}"}}"#)), (7, told));
    }
}

#[test]
fn then_the_command_and_last_the_version() {
    assert_eq!(
        refusal("FOO", r#"{"name":"n","cniVersion":"9.9.9"}"#),
        (4, "unknown CNI_COMMAND: FOO".into())
    );
    assert_eq!(refusal("add", r#"{"name":"n"}"#), (4, "unknown CNI_COMMAND: add".into()));
    assert_eq!(refusal("ADD", r#"{"name":"n","cniVersion":"1.0"}"#).0, code::INCOMPATIBLE_VERSION);
    assert_eq!(refusal("DEL", r#"{"name":"n","cniVersion":1}"#).0, code::DECODING_FAILURE);
    assert_eq!(read("ADD", r#"{"name":"n"}"#).unwrap().version, Version::V0_1_0);
}

#[test]
fn keys_are_found_without_regard_to_case() {
    let request = read("ADD", r#"{"Name":"n","CNIVersion":"0.4.0"}"#).unwrap();
    assert_eq!((request.version, &*request.network), (Version::V0_4_0, "n"));
}

#[test]
fn check_gc_and_status_need_a_version_that_has_them() {
    let gate = |command: &str, version: &str| {
        read(command, &format!(r#"{{"name":"n","cniVersion":"{version}"}}"#))
            .err()
            .map(|error| (error.code, error.msg))
    };
    for (command, first, before) in
        [("CHECK", "0.4.0", "0.3.1"), ("GC", "1.1.0", "1.0.0"), ("STATUS", "1.1.0", "1.0.0")]
    {
        assert_eq!(gate(command, first), None);
        let old = Some((1, format!("config version does not allow {command}")));
        assert_eq!(gate(command, before), old);
        assert_eq!(gate(command, ""), old);
        assert_eq!(gate(command, "2.0.0"), Some((1, format!("plugin version does not allow {command}"))));
        assert_eq!(gate(command, "1.1"), Some((1, "incompatible CNI versions".into())));
        for unreadable in ["x", "1.2.3.4"] {
            assert_eq!(gate(command, unreadable).unwrap().0, code::DECODING_FAILURE);
        }
    }
}

#[test]
fn gc_tells_absent_attachments_from_none() {
    let valid = |keys: &str| {
        let stdin = format!(r#"{{"name":"n","cniVersion":"1.1.0"{keys}}}"#);
        read("GC", &stdin).unwrap().valid_attachments()
    };
    assert_eq!(valid(""), Ok(None));
    assert_eq!(valid(r#","cni.dev/valid-attachments":null"#), Ok(None));
    assert_eq!(valid(r#","cni.dev/valid-attachments":[]"#), Ok(Some(vec![])));
    let one = AttachmentId { container_id: "c1".into(), ifname: "eth0".into() };
    let list = r#"[{"containerID":"c1","ifname":"eth0"}]"#;
    assert_eq!(valid(&format!(r#","cni.dev/valid-attachments":{list}"#)), Ok(Some(vec![one.clone()])));
    assert_eq!(valid(&format!(r#","cni.dev/attachments":{list}"#)), Ok(Some(vec![one])));
    for wrong in ["{}", "[1]", "[{}]", r#"[{"containerID":7}]"#] {
        let refusal = valid(&format!(r#","cni.dev/valid-attachments":{wrong}"#)).unwrap_err();
        assert_eq!(refusal.code, code::DECODING_FAILURE, "{wrong}");
    }
}

#[test]
fn the_previous_result_is_absent_empty_or_of_the_versions_family() {
    let previous = |version: &str, result: &str| {
        let stdin = format!(r#"{{"name":"n","cniVersion":"{version}","prevResult":{result}}}"#);
        read("ADD", &stdin).unwrap().prev_result().map_err(|error| (error.code, error.msg))
    };
    assert_eq!(previous("1.0.0", "null"), Ok(None));
    assert_eq!(previous("1.0.0", "{}"), Ok(Some(Attachment::default())));
    assert_eq!(previous("1.0.0", r#"{"cniVersion":"1.1.0"}"#), Ok(Some(Attachment::default())));
    let text = "could not parse prevResult: result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is \"0.4.0\"";
    assert_eq!(previous("1.0.0", r#"{"cniVersion":"0.4.0"}"#), Err((999, text.into())));
    assert_eq!(
        previous("1.0.0", "[]"),
        Err((999, "could not parse prevResult: it must be an object".into()))
    );
}
