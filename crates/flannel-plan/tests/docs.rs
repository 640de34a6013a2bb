//! The documents of this repository: their examples are read by the code that they explain, and their links lead
//! somewhere. A block is named behind its fence: "json net-conf", "json net-conf refused 4", "json lease KEY".
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flannel_plan::config::NetworkConfig;
use flannel_plan::lease::{Announcement, subnets_from_key};

/// A fenced block of a document.
struct Block {
    /// Where it is, for messages.
    place: String,
    /// The words behind its fence.
    words: Vec<String>,
    text: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document: those at the top, and all below docs.
fn documents() -> Vec<(PathBuf, String)> {
    let top = repository();
    let folders = [top.clone(), top.join("docs"), top.join("docs/adr")];
    let files =
        folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (file, text) in documents() {
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(_), Some("")) => blocks.extend(open.take()),
                (Some(block), _) => block.text += &format!("{line}\n"),
                (None, Some(words)) => {
                    let place = format!("{}:{}", file.display(), number + 1);
                    let words = words.split_whitespace().map(str::to_owned).collect();
                    open = Some(Block { place, words, text: String::new() });
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block has no end", file.display());
    }
    blocks
}

fn words(block: &Block) -> Vec<&str> {
    block.words.iter().map(String::as_str).collect()
}

#[test]
fn every_net_conf_in_the_documents_is_what_its_fence_says() {
    let mut seen = 0;
    for block in blocks() {
        let faults = match NetworkConfig::parse(&block.text) {
            Ok(_) => 0,
            Err(faults) => faults.0.len(),
        };
        let expected = match words(&block)[..] {
            ["json", "net-conf"] => 0,
            ["json", "net-conf", "refused", count] => count.parse().unwrap(),
            _ => continue,
        };
        assert_eq!(faults, expected, "{}: {:?}", block.place, NetworkConfig::parse(&block.text));
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} net-confs were found");
}

#[test]
fn every_lease_in_the_documents_is_one() {
    let mut seen = 0;
    for block in blocks() {
        let ["json", "lease", key] = words(&block)[..] else { continue };
        assert!(subnets_from_key(key).is_ok(), "{}: {key}", block.place);
        let lease = Announcement::from_etcd(key, &block.text);
        assert!(lease.is_ok(), "{}: {lease:?}", block.place);
        seen += 1;
    }
    assert!(seen >= 1, "no lease was found");
}

#[test]
fn every_block_has_a_language_that_readers_know() {
    let known = BTreeSet::from(["json", "text", "sh", "rust"]);
    for block in blocks() {
        let language = block.words.first().map(String::as_str).unwrap_or_default();
        assert!(known.contains(language), "{}: {language:?}", block.place);
    }
}

/// The heading as the part of a link behind `#`, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

#[test]
fn every_link_between_the_documents_leads_somewhere() {
    for (file, text) in documents() {
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, part) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link} leads nowhere", file.display());
            if !part.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let found = text.lines().any(|line| line.starts_with('#') && anchor(line) == part);
                assert!(found, "{}: {link}: there is no such heading", file.display());
            }
        }
    }
}

/// Whether a line begins an item that others can use: fields and variants whose names say all need no words.
fn is_public_item(line: &str) -> bool {
    let kinds = ["fn", "async", "struct", "enum", "trait", "type"];
    line.trim_start()
        .strip_prefix("pub ")
        .is_some_and(|rest| kinds.contains(&rest.split(' ').next().unwrap()))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_and_every_public_item_says_what_it_is() {
    let mut files = Vec::new();
    sources(&repository().join("crates"), &mut files);
    let mut silent = Vec::new();
    let is_of_tests = |file: &&PathBuf| file.iter().any(|part| part == "tests" || part == "tests.rs");
    // What is public in a program is nobody else's.
    let is_of_a_program = |file: &&PathBuf| file.iter().any(|part| part == "flannelctl" || part == "bin");
    let sources = files.iter().filter(|file| file.iter().any(|part| part == "src"));
    for file in sources.filter(|file| !is_of_tests(file) && !is_of_a_program(file)) {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let mut told = false;
        for (number, line) in code.lines().enumerate() {
            let words = line.trim_start();
            if is_public_item(line) && !told || number == 0 && !line.starts_with("//!") {
                silent.push(format!("{}:{}: {words}", file.display(), number + 1));
            }
            // Attributes may stand between the words and the item, in several lines.
            told = words.starts_with("///") || told && !words.is_empty() && !words.ends_with(['{', '}', ';']);
        }
    }
    assert_eq!(silent, Vec::<String>::new());
}
