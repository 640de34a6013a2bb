//! The built program: exit codes, and what goes where. What options mean is tested beside the code.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

/// Exit code, standard output and standard error of a run in an empty environment.
fn run(words: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_flanneld"))
        .args(words)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_version_is_one_bare_line_on_standard_error() {
    let version = format!("{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"], &[]), (Some(0), String::new(), version));
}

#[test]
fn help_goes_to_standard_error_and_is_no_failure() {
    for word in ["-h", "--help"] {
        let (code, out, text) = run(&[word], &[]);
        assert_eq!((code, out.as_str()), (Some(0), ""));
        assert!(text.starts_with("Usage: "), "{text}");
        for flag in ["--kube-subnet-mgr", "--lease-dir DIR", "-v N", "--etcd-password SECRET"] {
            assert!(text.contains(&format!("\n  {flag}\n")), "{flag} in {text}");
        }
    }
}

#[test]
fn faults_end_the_program_with_code_2_and_are_all_told() {
    let text = "flanneld cannot start: 2 faults in the options\n  \
                --ip-mask: there is no such flag; did you mean --ip-masq?\n  \
                FLANNELD_V: \"x\" is not a whole number\n\
                `flanneld --help` lists every flag.\n";
    let told = run(&["--ip-mask"], &[("FLANNELD_V", "x"), ("NODE_NAME", "n1")]);
    assert_eq!(told, (Some(2), String::new(), text.to_owned()));
}

#[test]
fn a_detached_value_of_a_switch_is_a_fault_where_go_forgets_all_that_follows() {
    let (code, _, text) = run(&["--ip-masq", "false", "--lease-dir=/x"], &[("NODE_NAME", "n1")]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("\n  false: --ip-masq takes its value only behind `=`; write --ip-masq=false\n"),
        "{text}"
    );
}

#[test]
fn a_log_filter_with_faults_ends_the_program_with_code_2() {
    let variables = [("RUST_LOG", "flanneld=loud"), ("NODE_NAME", "n1")];
    let (code, out, text) = run(&["--lease-dir=/nonexistent"], &variables);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(text.starts_with("flanneld cannot start: RUST_LOG: \"flanneld=loud\" is no filter"), "{text}");
}
