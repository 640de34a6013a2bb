//! docs/findings.md has one entry for each code, and each code is made somewhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use flannel_plan::finding::Code;

const PARTS: [&str; 4] = ["- **Seen:** ", "- **Why:** ", "- **Do:** ", "- **Lab:** "];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn the_document_has_one_entry_for_each_code_and_no_other() {
    let document = fs::read_to_string(repository().join("docs/findings.md")).unwrap();
    let documented: Vec<_> = document.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let row = |code: &Code| format!("{code} {} ({})", code.kind(), code.severity());
    assert_eq!(documented, Code::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn an_entry_says_what_is_seen_why_what_to_do_and_how_it_is_provoked() {
    let document = fs::read_to_string(repository().join("docs/findings.md")).unwrap();
    for entry in document.split("\n### ").skip(1) {
        let body = entry.split("\n## ").next().unwrap();
        let (heading, rest) = body.split_once('\n').unwrap();
        let lines: Vec<_> = rest.lines().filter(|line| !line.is_empty()).collect();
        let has_parts = lines.len() == PARTS.len()
            && lines
                .iter()
                .zip(PARTS)
                .all(|(line, part)| line.len() > part.len() + 4 && line.starts_with(part));
        assert!(has_parts, "{heading}: {lines:#?}");
        assert!(lines[3].contains('`'), "{heading}: no command in {}", lines[3]);
    }
}

/// All sources but the table of codes itself and tests.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("finding/code.rs") {
            let file = fs::read_to_string(&path).unwrap();
            *text += file.split("#[cfg(test)]").next().unwrap();
        }
    }
}

#[test]
fn each_code_is_made_somewhere() {
    let mut text = String::new();
    for krate in fs::read_dir(repository().join("crates")).unwrap() {
        sources(&krate.unwrap().path().join("src"), &mut text);
    }
    let is_made = |code: &&Code| text.contains(&format!("Code::{code:?}"));
    assert_eq!(Code::ALL.iter().filter(|code| !is_made(code)).collect::<Vec<_>>(), [] as [&Code; 0]);
}
