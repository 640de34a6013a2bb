//! Finding networks in a folder.

use std::fs;
use std::path::Path;

use flannel_cni::runtime::{LoadError, Network};
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// The programs of a network's plugins, or why there is none.
fn summary(found: Result<Network, LoadError>, folder: &Path) -> String {
    match found {
        Ok(network) => network.plugins.into_iter().map(|plugin| plugin.program).collect::<Vec<_>>().join(" "),
        Err(why) => why.to_string().replace(&folder.display().to_string(), "DIR"),
    }
}

fn find(files: &[(&str, &str)], name: &str) -> String {
    let folder = folder(files);
    summary(Network::find(folder.path(), name), folder.path())
}

fn first(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    summary(Network::first(folder.path()), folder.path())
}

const LIST: &str = r#"{"name":"net","plugins":[{"type":"of-list"}]}"#;
const SINGLE: &str = r#"{"name":"net","type":"of-single"}"#;

#[test]
fn a_network_is_found_by_name_in_lists_first() {
    let other = r#"{"name":"other","plugins":[{"type":"x"}]}"#;
    assert_eq!(find(&[("10.conf", SINGLE), ("20.conflist", other), ("30.conflist", LIST)], "net"), "of-list");
    assert_eq!(find(&[("10.conf", SINGLE), ("20.conflist", other)], "net"), "of-single");
    assert_eq!(find(&[("10.json", SINGLE)], "net"), "of-single");
}

#[test]
fn the_first_file_of_a_name_wins() {
    let second = r#"{"name":"net","plugins":[{"type":"second"}]}"#;
    assert_eq!(find(&[("20.conflist", second), ("10.conflist", LIST)], "net"), "of-list");
}

#[test]
fn what_is_not_found_is_told_from_what_is_not_there() {
    let none = r#"no net configuration with name "net" in DIR"#;
    let other = r#"{"name":"other","type":"x"}"#;
    assert_eq!(find(&[], "net"), "no net configurations found in DIR");
    assert_eq!(find(&[("deeper/10.conflist", LIST)], "net"), "no net configurations found in DIR");
    assert_eq!(
        find(&[("10.conflist.bak", LIST), ("10.CONF", SINGLE)], "net"),
        "no net configurations found in DIR"
    );
    assert_eq!(find(&[("10.conflist", LIST)], "x"), none.replace("net\"", "x\""));
    assert_eq!(find(&[("10.conf", other)], "net"), none);
    let missing = Path::new("/nowhere/net.d");
    assert_eq!(summary(Network::find(missing, "net"), missing), "no net configurations found in DIR");
}

#[test]
fn a_broken_file_on_the_way_is_an_error_that_names_it() {
    assert_eq!(
        find(&[("10.conflist", "{nonsense"), ("20.conflist", LIST)], "net"),
        "DIR/10.conflist: error parsing configuration list: key must be a string at line 1 column 2"
    );
    assert_eq!(
        find(&[("10.conf", r#"{"name":"x"}"#), ("20.conf", SINGLE)], "net"),
        "DIR/10.conf: error parsing configuration: missing 'type'"
    );
    assert_eq!(find(&[("10.conflist", LIST), ("20.conflist", "{nonsense")], "net"), "of-list");
}

#[test]
fn plugins_of_the_networks_folder_are_added_unless_only_those_of_the_list_are_wanted() {
    let beside = [
        ("net/20-b.conf", r#"{"type":"b"}"#),
        ("net/10-a.conf", r#"{"type":"a"}"#),
        ("net/30-c.json", r#"{"type":"c"}"#),
    ];
    let with = |list: &str, has_folder: bool| {
        let mut files = vec![("10.conflist", list)];
        files.extend(beside.iter().take(if has_folder { 3 } else { 0 }));
        find(&files, "net")
    };
    let list = |switch: &str, plugins: &str| format!(r#"{{"name":"net"{switch}{plugins}}}"#);
    let (only, all) = (r#","loadOnlyInlinedPlugins":true"#, r#","loadOnlyInlinedPlugins":"false""#);
    let inlined = r#","plugins":[{"type":"own"}]"#;
    let no_key = "DIR/10.conflist: error parsing configuration list: `loadOnlyInlinedPlugins` is true, and no 'plugins' key";
    let none = "DIR/10.conflist: no plugin configs found";
    assert_eq!(with(&list(only, inlined), true), "own");
    assert_eq!(with(&list(only, inlined), false), "own");
    assert_eq!(with(&list(only, ""), true), no_key);
    assert_eq!(with(&list(only, ""), false), no_key);
    for switch in [all, ""] {
        assert_eq!(with(&list(switch, inlined), true), "own a b");
        assert_eq!(with(&list(switch, inlined), false), "own");
        assert_eq!(with(&list(switch, ""), true), "a b");
        assert_eq!(with(&list(switch, ""), false), none);
    }
    let wrong = list(r#","loadOnlyInlinedPlugins":"sphagnum""#, inlined);
    assert_eq!(
        with(&wrong, true),
        r#"DIR/10.conflist: error parsing configuration list: invalid value "sphagnum" for loadOnlyInlinedPlugins"#
    );
}

#[test]
fn an_empty_folder_of_the_networks_name_is_nothing() {
    let folder = folder(&[("10.conflist", LIST)]);
    fs::create_dir(folder.path().join("net")).unwrap();
    assert_eq!(summary(Network::find(folder.path(), "net"), folder.path()), "of-list");
}

#[test]
fn kubernetes_takes_the_first_file_whatever_its_kind() {
    assert_eq!(first(&[("20.conflist", LIST), ("10.conf", SINGLE), ("30.json", "{")]), "of-single");
    assert_eq!(first(&[("10-flannel.conflist", LIST), ("10-flannel.conflist.tmp", "{")]), "of-list");
    assert_eq!(first(&[("05.json", "[]"), ("10.conflist", LIST)]).split(':').next(), Some("DIR/05.json"));
    assert_eq!(first(&[]), "no net configurations found in DIR");
}
