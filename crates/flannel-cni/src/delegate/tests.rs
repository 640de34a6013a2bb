//! How a delegate is found, what it is told, and what is made of its answers.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::request::Environment;

/// A folder for plugins that are scripts.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn plugin(&self, name: &str, script: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn request(&self) -> Request {
        let environment = Environment {
            command: "ADD".into(),
            container_id: "c1".into(),
            ifname: "eth0".into(),
            args: "A=1".into(),
            path: self.folder.path().into(),
            ..Environment::default()
        };
        Request::read(&environment, config().to_string().as_bytes()).unwrap()
    }

    fn told(&self, script: &str) -> (u32, String) {
        self.plugin("x", script);
        let error = add(&self.request(), "x", config().as_object().unwrap()).unwrap_err();
        (error.code, error.to_string())
    }
}

fn config() -> Value {
    json!({"cniVersion": "0.4.0", "name": "n", "type": "flannel", "prevResult": {}})
}

#[test]
fn a_plugin_is_the_first_regular_file_of_its_name() {
    let (first, second) = (Stage::new(), Stage::new());
    let folders = [first.folder.path().to_owned(), second.folder.path().to_owned()];
    fs::create_dir(folders[0].join("x")).unwrap();
    let path = second.plugin("x", "");
    assert_eq!(find_in_path("x", &folders), Ok(path));
    std::os::unix::fs::symlink(folders[1].join("x"), folders[0].join("y")).unwrap();
    assert_eq!(find_in_path("y", &folders), Ok(folders[0].join("y")));
    std::os::unix::fs::symlink(folders[1].join("none"), folders[0].join("z")).unwrap();
    let told = |name: &str, folders: &[PathBuf]| find_in_path(name, folders).unwrap_err().to_string();
    let lost =
        format!("failed to find plugin \"z\" in path [{} {}]", folders[0].display(), folders[1].display());
    assert_eq!(told("z", &folders), lost);
    assert_eq!(told("", &folders), "no plugin name provided");
    assert_eq!(told("../x", &folders), "invalid plugin name: ../x");
    assert_eq!(told("x", &[]), "no paths provided");
}

#[test]
fn this_program_is_known_by_its_file_and_not_by_its_name() {
    let stage = Stage::new();
    let own = std::env::current_exe().unwrap();
    let (link, copy) = (stage.folder.path().join("loopback"), stage.folder.path().join("copy"));
    std::os::unix::fs::symlink(&own, &link).unwrap();
    fs::write(&copy, "").unwrap();
    assert_eq!([&own, &link, &copy].map(|path| is_this_program(path)), [true, true, false]);
    assert!(!is_this_program(Path::new("/none")));
}

#[test]
fn a_plugin_that_is_this_program_is_called_as_a_function() {
    let stage = Stage::new();
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), stage.folder.path().join("loopback"))
        .unwrap();
    let config = json!({"cniVersion": "1.1.0", "name": "n"});
    // As a program it would be this test, which knows nothing of CNI.
    assert_eq!(call(&stage.request(), Command::Status, "loopback", config.as_object().unwrap()), Ok(None));
    let old = json!({"cniVersion": "1.0.0", "name": "n"});
    let refusal = call(&stage.request(), Command::Status, "loopback", old.as_object().unwrap()).unwrap_err();
    assert_eq!((refusal.code, &*refusal.msg), (1, "config version does not allow STATUS"));
}

#[test]
fn a_delegate_gets_the_whole_configuration_the_command_and_the_arguments() {
    let stage = Stage::new();
    let seen = stage.folder.path().join("seen");
    stage.plugin("x", &format!("echo $CNI_COMMAND $CNI_ARGS >{0}; cat >>{0}", seen.display()));
    let config = config();
    let config = config.as_object().unwrap();
    for command in [Command::Del, Command::Check, Command::Gc, Command::Status] {
        assert_eq!(call(&stage.request(), command, "x", config), Ok(None));
        let expected = format!("{} A=1\n{}", command.as_str(), Value::Object(config.clone()));
        assert_eq!(fs::read_to_string(&seen).unwrap(), expected);
    }
}

#[test]
fn its_result_is_read_by_its_version_and_null_is_an_empty_one() {
    let stage = Stage::new();
    let config = config();
    let result = |stdout: &str| {
        stage.plugin("x", &format!("cat >/dev/null; echo '{stdout}'"));
        add(&stage.request(), "x", config.as_object().unwrap()).map_err(|error| (error.code, error.msg))
    };
    assert_eq!(result("null"), Ok(Attachment::default()));
    assert_eq!(result(r#"{"ips":[{"version":"4","address":"10.0.0.2/24"}]}"#).unwrap().ips.len(), 1);
    let single = result(r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}"#).unwrap();
    assert_eq!(single.ips[0].address, "10.0.0.2/24".parse().unwrap());
    assert_eq!(result(r#"{"cniVersion":"7"}"#), Err((999, "unsupported CNI result version \"7\"".into())));
    let (code, text) = result("[]").unwrap_err();
    assert_eq!((code, &*text), (999, "failed to unmarshal raw result: it must be an object"));
    assert!(result("").unwrap_err().1.starts_with("failed to unmarshal raw result: "));
}

#[test]
fn its_error_is_passed_on_as_it_is() {
    let told = |script: &str| Stage::new().told(script);
    let printed = r#"echo '{"code":11,"msg":"not yet","details":"soon","cniVersion":"1.0.0"}'; exit 1"#;
    assert_eq!(told(printed), (11, "not yet; soon".into()));
    assert_eq!(told(r#"echo '{"msg":"no code"}'; exit 3"#), (999, "no code".into()));
    let quiet = "netplugin failed with no error message: exit status 3";
    assert_eq!(told("exit 3"), (999, quiet.into()));
    assert_eq!(told("echo oh >&2; exit 1"), (999, "netplugin failed: \"oh\\n\": exit status 1".into()));
    let (code, text) = told("echo oh; exit 1");
    assert_eq!(code, 999);
    assert!(
        text.starts_with("netplugin failed but error parsing its diagnostic message \"oh\\n\": "),
        "{text}"
    );
    assert_eq!(told("kill -9 $$").1, "netplugin failed with no error message: signal: 9 (SIGKILL)");
}

#[test]
fn a_plugin_that_does_not_read_and_one_that_prints_much_stop_nobody() {
    let stage = Stage::new();
    let mut config = config();
    config["filler"] = "x".repeat(1 << 20).into();
    stage.plugin("x", "exec echo '{}'");
    assert_eq!(add(&stage.request(), "x", config.as_object().unwrap()), Ok(Attachment::default()));
    stage.plugin("x", "head -c 1000000 /dev/zero | tr '\\0' ' '; cat >/dev/null; echo '{}'");
    assert_eq!(add(&stage.request(), "x", config.as_object().unwrap()), Ok(Attachment::default()));
}

#[test]
fn a_file_that_cannot_be_run_is_an_error_that_names_it() {
    let stage = Stage::new();
    let path = stage.plugin("x", "");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = call(&stage.request(), Command::Del, "x", config().as_object().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot run {}: Permission denied (os error 13)", path.display()));
}
