//! Programs that are shell scripts stand for plugins.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn script(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn answer(text: &str) -> Result<String, CniError> {
    let folder = TempDir::new().unwrap();
    let program = script(&folder, "plugin", text);
    let variables = Variables { command: Command::Add, container: None, path: &[folder.path().to_owned()] };
    let stdout = call(&RawExec, &program, &variables, &Map::new())?;
    Ok(String::from_utf8(stdout).unwrap())
}

#[test]
fn a_plugin_is_found_in_the_first_folder_that_has_a_file_of_its_name() {
    let folders = [(); 3].map(|()| TempDir::new().unwrap());
    fs::create_dir(folders[0].path().join("bridge")).unwrap();
    let program = script(&folders[1], "real", "");
    std::os::unix::fs::symlink(&program, folders[1].path().join("bridge")).unwrap();
    script(&folders[2], "bridge", "");
    let path = folders.each_ref().map(|folder| folder.path().to_owned());
    assert_eq!(find(&RawExec, "bridge", &path), Ok(path[1].join("bridge")));
}

#[test]
fn a_plugin_that_is_not_found_is_named_with_the_folders() {
    let missing = |plugin: &str, path: &[&str]| {
        let path: Vec<PathBuf> = path.iter().map(PathBuf::from).collect();
        find(&RawExec, plugin, &path).unwrap_err().msg
    };
    assert_eq!(missing("", &["/nowhere"]), "no plugin name provided");
    assert_eq!(missing("../sh", &["/bin"]), "invalid plugin name: ../sh");
    assert_eq!(missing("bridge", &[]), "no paths provided");
    assert_eq!(missing("x", &["/nowhere", "/b"]), r#"failed to find plugin "x" in path [/nowhere /b]"#);
}

#[test]
fn an_error_object_is_passed_on_as_it_is() {
    let said = answer(r#"echo '{"Code": 11, "msg": "later", "details": "busy"}'; echo noise >&2; exit 1"#);
    assert_eq!(said, Err(CniError::new(11, "later").details("busy")));
}

#[test]
fn a_plugin_that_fails_without_an_error_object_is_quoted() {
    let said = |text| answer(text).unwrap_err();
    assert_eq!(said("exit 3"), CniError::internal("netplugin failed with no error message: exit status 3"));
    assert_eq!(
        said("echo oh no >&2; exit 1"),
        CniError::internal(r#"netplugin failed: "oh no\n": exit status 1"#)
    );
    assert_eq!(
        said("printf nonsense; exit 1").msg,
        "netplugin failed but error parsing its diagnostic message \"nonsense\": \
         expected ident at line 1 column 2"
    );
    assert_eq!(said("kill -9 $$").msg, "netplugin failed with no error message: signal: 9 (SIGKILL)");
}

#[test]
fn a_plugin_may_leave_its_input_unread_and_write_a_lot() {
    let folder = TempDir::new().unwrap();
    let program = script(&folder, "plugin", "yes | head -c 300000");
    let config = Map::from_iter([("filler".to_owned(), Value::from("x".repeat(300_000)))]);
    let variables = Variables { command: Command::Add, container: None, path: &[] };
    assert_eq!(call(&RawExec, &program, &variables, &config).map(|stdout| stdout.len()), Ok(300_000));
}

#[test]
fn a_program_that_cannot_be_run_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let program = script(&folder, "plugin", "");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let variables = Variables { command: Command::Del, container: None, path: &[] };
    let why = call(&RawExec, &program, &variables, &Map::new()).unwrap_err();
    assert_eq!(why.msg, format!("cannot run {}: Permission denied (os error 13)", program.display()));
}

#[test]
fn a_program_that_is_being_written_is_tried_again_and_is_an_error_in_the_end() {
    let folder = TempDir::new().unwrap();
    let program = script(&folder, "plugin", "");
    let writer = OpenOptions::new().append(true).open(&program).unwrap();
    let tried = |limit| process::spawn(&mut Process::new(&program), limit);
    let why = tried(Duration::from_millis(60)).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::ExecutableFileBusy);
    drop(writer);
    assert!(tried(process::BUSY_LIMIT).unwrap().wait().unwrap().success());
}
