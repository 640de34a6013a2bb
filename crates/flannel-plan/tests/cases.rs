//! Golden cases: one folder each under `tests/cases`; a bug report becomes a folder.
//!
//! `inputs.json` is what the node knows. What it finds is `look.json`, or a node that was settled on
//! `before.json`, or nothing. `plan.txt` and `changes.txt` are what must come out; `UPDATE=1` rewrites them, and
//! the difference is for review.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use flannel_plan::desired::{Plan, plan, scope};
use flannel_plan::diff::diff;
use flannel_plan::inputs::Inputs;
use flannel_plan::observation::Observation;
use flannel_plan::ownership::{self, Observed};

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn observed(folder: &Path, inputs: &Inputs) -> Observed {
    if let Some(before) = read::<Inputs>(&folder.join("before.json")) {
        return Observed { ours: plan(&before).unwrap().desired, ..Observed::default() };
    }
    let observation: Observation = read(&folder.join("look.json")).unwrap_or_default();
    ownership::observed(&scope(&inputs.node, &inputs.config, &inputs.own.subnets, &[]), &observation)
}

fn told(plan: &Plan) -> String {
    let mut text = plan.desired.to_string();
    plan.ignored.iter().for_each(|refusal| writeln!(text, "! {refusal}").unwrap());
    plan.warnings.iter().for_each(|warning| writeln!(text, "? {warning}").unwrap());
    text
}

fn compare(path: &Path, text: &str, wrong: &mut Vec<String>) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, text).unwrap();
    }
    let golden = fs::read_to_string(path).unwrap_or_default();
    if golden != text {
        wrong.push(format!("{}\n--- is\n{text}--- should be\n{golden}", path.display()));
    }
}

#[test]
fn every_case_gives_the_plan_and_the_changes_that_were_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(folders.len() > 15, "{} cases", folders.len());
    let mut wrong = Vec::new();
    for folder in folders {
        let inputs: Inputs =
            read(&folder.join("inputs.json")).unwrap_or_else(|| panic!("{}", folder.display()));
        let plan = plan(&inputs).unwrap();
        let mut observed = observed(&folder, &inputs);
        let desired = ownership::attainable(&plan.desired, &observed);
        ownership::claim(&desired, &mut observed);
        let mut changes = String::new();
        for change in diff(&desired, &observed.ours) {
            writeln!(changes, "{change}").unwrap();
        }
        observed.foreign.iter().for_each(|item| writeln!(changes, "= {item} (foreign, left alone)").unwrap());
        compare(&folder.join("plan.txt"), &told(&plan), &mut wrong);
        compare(&folder.join("changes.txt"), &changes, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
