//! ARCHITECTURE.md against the repository: every file that its tree names is there, every module stands in it, and
//! every crate uses what its table allows and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn architecture() -> String {
    fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap()
}

/// What stands between a heading and the next one of its rank.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// A crate in the tree: its folder, its own line and those below.
fn crates_of_the_tree(tree: &str) -> Vec<(String, Vec<String>)> {
    let mut crates: Vec<(String, Vec<String>)> = Vec::new();
    for line in tree.lines() {
        let is_own = line.starts_with("├── ") || line.starts_with("└── ");
        let text = line.trim_start_matches(['│', '├', '└', '─', ' ']);
        match (is_own, line.starts_with(['│', ' ']), crates.last_mut()) {
            (true, _, _) => crates.push((text.split('/').next().unwrap().to_owned(), vec![line.to_owned()])),
            (false, true, Some((_, lines))) => lines.push(line.to_owned()),
            _ => {}
        }
    }
    crates
}

/// The names behind a branch of the tree: what two spaces end. A line without a branch goes on with the one before.
fn names(line: &str) -> Vec<&str> {
    let Some((_, line)) = line.split_once("── ") else { return vec![] };
    let names = line.split("  ").next().unwrap_or_default();
    names.split(' ').filter(|name| *name != "…").map(|name| name.trim_end_matches('/')).collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

fn modules(source: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_file_that_the_tree_names_is_there() {
    let text = architecture();
    let crates = crates_of_the_tree(section(&text, "The tree"));
    for (name, lines) in &crates {
        let folder = repository().join("crates").join(name);
        for file in lines.iter().skip(1).flat_map(|line| names(line)) {
            let stem = file.trim_end_matches(".rs");
            let places = [format!("src/{stem}.rs"), format!("src/{stem}"), stem.to_owned()];
            assert!(places.iter().any(|place| folder.join(place).exists()), "{name} has no {file}");
        }
    }
    assert!(crates.len() >= 8, "only {} crates were read", crates.len());
}

#[test]
fn every_crate_and_every_module_of_it_stands_in_the_tree() {
    let text = architecture();
    let crates = crates_of_the_tree(section(&text, "The tree"));
    for entry in fs::read_dir(repository().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let (_, lines) =
            crates.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name} is missing"));
        let told = lines.join("\n");
        let told = words(&told);
        for module in modules(&folder.join("src")) {
            let is_told = told.contains(&*module) || ["lib", "main"].contains(&&*module);
            assert!(is_told, "the tree has no {module} of {name}");
        }
    }
}

/// The names in the table `[dependencies]` of a crate, ours without their `flannel-`.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(repository().join("crates").join(name).join("Cargo.toml")).unwrap();
    let (_, table) = manifest.split_once("\n[dependencies]\n").unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty());
    names.map(|name| name.trim_start_matches("flannel-").to_owned()).collect()
}

#[test]
fn every_crate_uses_what_the_table_allows_and_nothing_else() {
    let text = architecture();
    let mut seen = BTreeSet::new();
    for line in section(&text, "The tree").lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, allowed, _] = cells[..] else { continue };
        let ours = [name.to_owned(), format!("flannel-{name}")];
        let Some(folder) = ours.iter().find(|name| repository().join("crates").join(name).exists()) else {
            continue;
        };
        let allowed: BTreeSet<String> = allowed.split(", ").map(str::to_owned).collect();
        assert_eq!(
            dependencies(folder),
            allowed,
            "{folder}: Cargo.toml on the left, ARCHITECTURE.md on the right"
        );
        seen.insert(folder.clone());
    }
    let crates = fs::read_dir(repository().join("crates")).unwrap();
    assert_eq!(crates.count(), seen.len(), "the table has only {seen:?}");
}
