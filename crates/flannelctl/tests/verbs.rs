//! The verbs that documents and messages name are the verbs that there are. Needs a built flannel-lab.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Verbs = BTreeSet<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that `--help` lists; none where there is no more to choose.
fn verbs_of(words: &[&str]) -> Verbs {
    let help = output(Command::new(env!("CARGO_BIN_EXE_flannelctl")).args(words).arg("--help"));
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs = listed.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help");
    verbs.map(str::to_owned).collect()
}

/// The verbs of flannelctl, and of each the verbs behind it.
fn flannelctl() -> BTreeMap<String, Verbs> {
    verbs_of(&[]).into_iter().map(|verb| (verb.clone(), verbs_of(&[&verb]))).collect()
}

fn make() -> Verbs {
    let help = output(Command::new("make").arg("help").current_dir(root()));
    let verbs = help.lines().filter_map(|line| line.trim().strip_prefix("make ")?.split_whitespace().next());
    verbs.map(str::to_owned).collect()
}

/// All files below a folder that have this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path, ending),
        false if path.extension().is_some_and(|found| found == ending) => vec![path],
        false => Vec::new(),
    };
    entries.flat_map(below).collect()
}

/// What stands between backquotes, and every line between fences.
fn code(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut code = Vec::new();
    for line in text.lines() {
        match (line.trim_start().starts_with("```"), is_fenced) {
            (true, _) => is_fenced = !is_fenced,
            (false, true) => code.push(line.trim()),
            (false, false) => code.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    code
}

/// The words behind a program, up to the first that can be no verb. `add|del` is two verbs in one place.
fn words_behind<'a>(program: &str, code: &'a str) -> Vec<Vec<&'a str>> {
    let Some(rest) = code.strip_prefix(program).and_then(|rest| rest.strip_prefix(' ')) else {
        return Vec::new();
    };
    let is_verb =
        |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase() || "-|".contains(letter));
    rest.split_whitespace().take_while(is_verb).map(|word| word.split('|').collect()).collect()
}

/// What people are told to type, and the file where they are.
fn commands() -> Vec<(PathBuf, String)> {
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "STYLE.md", "CHANGELOG.md"];
    let documents =
        documents.map(|name| root().join(name)).into_iter().chain(files(&root().join("docs"), "md"));
    let found = documents.chain(files(&root().join("crates"), "rs")).flat_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        code(&text).into_iter().map(|code| (path.clone(), code.to_owned())).collect::<Vec<_>>()
    });
    found.collect()
}

/// The verbs of a command, and which of them are not there.
fn judged<'a>(command: &'a str, flannelctl: &BTreeMap<String, Verbs>, make: &Verbs) -> (usize, Vec<&'a str>) {
    let of_flannelctl = words_behind("flannelctl", command);
    let first = of_flannelctl.first().cloned().unwrap_or_default();
    let behind = first.first().and_then(|verb| flannelctl.get(*verb)).cloned().unwrap_or_default();
    let second = of_flannelctl.get(1).filter(|_| !behind.is_empty()).cloned().unwrap_or_default();
    let of_lab = words_behind("flannel-lab", command).first().cloned().unwrap_or_default();
    let of_make = words_behind("make", command).concat();
    let count = first.len() + second.len() + of_lab.len() + of_make.len();
    let missing = [
        first.into_iter().filter(|verb| !flannelctl.contains_key(*verb)).collect::<Vec<_>>(),
        second.into_iter().filter(|verb| !behind.contains(*verb)).collect(),
        of_lab.into_iter().filter(|verb| !flannelctl["lab"].contains(*verb)).collect(),
        of_make.into_iter().filter(|verb| !make.contains(*verb)).collect(),
    ];
    (count, missing.concat())
}

#[test]
fn the_verbs_that_people_are_told_to_type_are_there() {
    let (flannelctl, make) = (flannelctl(), make());
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, command) in commands() {
        let (count, missing) = judged(&command, &flannelctl, &make);
        seen += count;
        wrong.extend(
            missing.iter().map(|verb| format!("{}: `{command}`: there is no {verb}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} verbs are found in all documents");
}

/// The words between two texts of ARCHITECTURE.md, without the lines of the tree.
fn listed(before: &str, after: &str) -> Verbs {
    let text = read("ARCHITECTURE.md");
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in ARCHITECTURE.md"));
    let (list, _) = rest.split_once(after).unwrap();
    list.split(',')
        .map(|verb| verb.trim_matches(|letter: char| !letter.is_ascii_lowercase()).to_owned())
        .collect()
}

#[test]
fn the_tree_lists_the_verbs_of_both_programs() {
    let verbs = flannelctl();
    assert_eq!(listed("the verbs:", "\n"), verbs.keys().cloned().collect());
    assert_eq!(listed("the program of the same name:", "\n"), verbs["lab"]);
}

#[test]
fn the_readme_promises_for_later_only_verbs_that_are_not_there() {
    let (readme, verbs) = (read("README.md"), verbs_of(&[]));
    let tools = readme.lines().find(|line| line.starts_with("| tools |")).unwrap();
    let cells: Vec<Vec<&str>> = tools.trim_matches('|').split('|').map(code).collect();
    let [_, now, later] = &cells[..] else { panic!("{tools}") };
    let verb = |code: &&str| code.trim_start_matches("flannelctl ").split(' ').next().unwrap().to_owned();
    let own = ["version", "completions"].map(str::to_owned);
    assert_eq!(now.iter().map(verb).chain(own).collect::<Verbs>(), verbs);
    assert!(later.iter().map(verb).all(|verb| !verbs.contains(&verb)), "{tools}");
}

#[test]
fn help_and_the_list_of_targets_that_are_no_files_agree() {
    let makefile = read("Makefile");
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
    let phony: Verbs = phony.split_whitespace().map(str::to_owned).collect();
    let target = |line: &str| {
        line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')).map(|(name, _)| name.to_owned())
    };
    let is_target = |name: &String| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    let targets: Verbs = makefile.lines().filter_map(target).filter(is_target).collect();
    assert_eq!(targets, phony);
    assert!(make().is_subset(&targets));
}

#[test]
fn the_lab_speaks_of_itself_as_it_was_called_and_takes_words_as_they_are() {
    let lab = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flannelctl")).arg("lab").args(words).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = lab(&["up", "--no-such-flag"]);
    assert!(code == 2 && said.contains("\nUsage: flannelctl lab up [OPTIONS]"), "{said}");
    // Behind -- it is a word for flanneld, and only what stands before it is wrong.
    let expected = (1, "flannelctl: --etcd-members is for --store etcd\n".to_owned());
    assert_eq!(lab(&["up", "--etcd-members", "3", "--", "--no-such-flag"]), expected);
}

#[test]
fn a_node_without_the_lab_is_told_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("flannelctl");
    fs::copy(env!("CARGO_BIN_EXE_flannelctl"), &alone).unwrap();
    let output = Command::new(&alone).args(["lab", "list"]).env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let beside = folder.path().join("flannel-lab");
    let expected =
        format!("flannelctl: flannel-lab, which makes labs, is neither {} nor in the PATH", beside.display());
    assert!(said.starts_with(&expected), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
