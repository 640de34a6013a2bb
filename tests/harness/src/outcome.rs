//! What came of scenarios, and the sum of it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

/// What came of a scenario; of several, the greatest is the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It is true.
    Ok,
    /// It is not true, and known to be.
    Known(&'static str),
    /// It cannot be tried here.
    NotRun(String),
    /// It is not true.
    Failed(String),
}

/// Tells why scenarios were not run and how many there were of each kind; fails if one did.
pub fn conclude(outcomes: &[Outcome], start: Instant) -> ExitCode {
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let passed = count(|outcome| *outcome == Outcome::Ok);
    let known = count(|outcome| matches!(outcome, Outcome::Known(_)));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Outcome::NotRun(why) = outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    reasons.iter().for_each(|(why, count)| say(&format!("not run  {count} scenarios: {why}")));
    let not_run: usize = reasons.values().sum();
    let seconds = start.elapsed().as_secs_f32();
    say(&format!(
        "\n{passed} passed, {failed} failed, {known} known, {not_run} not run, in {seconds:.1} s\n"
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a line of the report.
#[allow(clippy::print_stdout, reason = "a harness's report is what it is for")]
pub fn say(line: &str) {
    println!("{line}");
}
