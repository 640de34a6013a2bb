//! `flannelctl diff`: what should be against what is, one change a line; what is not ours after it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use flannel_plan::diff::Change;
use flannel_plan::state::{File, Item};
use flannel_screen::{Ink, Screen, listed};
use flannel_status::{Comparison, Evidence, Verdict};

use crate::evidence::{NodeArguments, gather_settled};

/// The exit code if nothing differs.
const SAME: u8 = 0;
/// The exit code if something differs.
const DIFFERENT: u8 = 1;
/// The exit code if it could not be found out.
pub const NOT_FOUND_OUT: u8 = 2;

/// It could not be found out whether something differs: an exit code of its own, as in diff(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be said what differs")]
pub struct NotFoundOut;

pub fn run(node: &NodeArguments, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let evidence = gather_settled(&node.subnet_file).context(NotFoundOut)?;
    let comparison = comparison(&evidence).context(NotFoundOut)?;
    node.output.write(out, &comparison.differences(), || text(comparison, Screen::of_stdout()))?;
    Ok(ExitCode::from(code(comparison)))
}

fn comparison(evidence: &Evidence) -> anyhow::Result<&Comparison> {
    match &evidence.comparison {
        Some(Ok(comparison)) => Ok(comparison),
        Some(Err(error)) => Err(error.clone().into()),
        None => anyhow::bail!("flanneld has no plan for this node yet: {}", listed(&evidence.report.reasons)),
    }
}

fn text(comparison: &Comparison, screen: Screen) -> String {
    let mut text = String::new();
    for change in &comparison.changes {
        text += &screen.paint(ink(change), &change.to_string());
        text += "\n";
        text += &content(change).concat();
    }
    if comparison.changes.is_empty() {
        text += &nothing(comparison);
    }
    if !comparison.foreign.is_empty() {
        text += "not ours, left alone:\n";
        text.extend(
            comparison.foreign.iter().map(|item| screen.paint(Ink::Faint, &format!("  {item}")) + "\n"),
        );
    }
    text
}

fn nothing(comparison: &Comparison) -> String {
    let (in_place, all) = (comparison.in_place(), comparison.plan.desired.len());
    if comparison.unseen.is_empty() {
        return format!("nothing differs: all {in_place} objects are as they should be\n");
    }
    let known =
        format!("nothing differs in {in_place} of {all} objects, and of the others nothing is known:\n");
    comparison.unseen.iter().fold(known, |text, line| format!("{text}  {line}\n"))
}

fn code(comparison: &Comparison) -> u8 {
    match comparison.verdict() {
        Verdict::Same => SAME,
        Verdict::Different => DIFFERENT,
        Verdict::Unknown => NOT_FOUND_OUT,
    }
}

fn ink(change: &Change) -> Ink {
    match change {
        Change::Create(_) => Ink::Good,
        Change::Replace { .. } => Ink::Odd,
        Change::Remove(_) => Ink::Bad,
    }
}

/// The lines by which a file differs: its size alone says little.
fn content(change: &Change) -> Vec<String> {
    let Change::Replace { from: Item::File(from), to: Item::File(to) } = change else { return Vec::new() };
    let only = |sign: char, one: &File, other: &File| {
        let lines = one.content.lines().filter(|line| !other.content.lines().any(|known| known == *line));
        lines.map(|line| format!("    {sign} {line}\n")).collect::<Vec<_>>()
    };
    [only('-', from, to), only('+', to, from)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_plan::desired::Plan;
    use flannel_plan::finding::Finding;

    fn file(content: &str) -> Item {
        Item::File(Box::new(File { path: "/run/subnet.env".into(), content: content.into(), mode: 0o644 }))
    }

    fn route() -> Item {
        let text = r#"{"destination":"10.244.2.0/24","kind":"unicast","via":"10.244.2.0",
            "link":"flannel.1","onlink":true,"protocol":70}"#;
        Item::Route(serde_json::from_str(text).unwrap())
    }

    const PLAIN: Screen = Screen { width: None, colour: false };

    #[test]
    fn a_change_is_a_line_and_foreign_objects_come_after_all_changes() {
        let changes = vec![
            Change::Create(route()),
            Change::Replace { from: file("A=1\nB=2\n"), to: file("A=1\nB=3\n") },
            Change::Remove(route()),
        ];
        let comparison = Comparison {
            plan: Plan::default(),
            changes,
            foreign: vec![route()],
            unseen: Vec::new(),
            bridges: Vec::new(),
        };
        let expected = "\
+ route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink
~ file /run/subnet.env (0644, 8 bytes) -> file /run/subnet.env (0644, 8 bytes)
    - B=2
    + B=3
- route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink
not ours, left alone:
  route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink
";
        assert_eq!(text(&comparison, PLAIN), expected);
    }

    #[test]
    fn a_node_that_is_as_it_should_be_is_told_so() {
        let plan = Plan { desired: [route()].into_iter().collect(), ..Plan::default() };
        let comparison = Comparison {
            plan,
            changes: Vec::new(),
            foreign: Vec::new(),
            unseen: Vec::new(),
            bridges: Vec::new(),
        };
        assert_eq!(text(&comparison, PLAIN), "nothing differs: all 1 objects are as they should be\n");
        assert_eq!(code(&comparison), SAME);
        let unreadable =
            Comparison { unseen: vec![Finding::unlisted("rules cannot be looked at")], ..comparison };
        let expected = "nothing differs in 0 of 1 objects, and of the others nothing is known:\n  rules cannot be looked at\n";
        assert_eq!((text(&unreadable, PLAIN).as_str(), code(&unreadable)), (expected, NOT_FOUND_OUT));
    }
}
