//! Runs scenarios on plugins, side by side, and tells what came of each: ok, FAILED, known, or not run.

use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use scenario_harness::{Outcome, Wishes, conclude, remember_panics, say, side_by_side};

use crate::scenario::Others;
use crate::{Known, Plugins, Scenario, Site, Stage, Suite};

/// Runs a suite as the command line wants it.
pub fn run(suite: &Suite) -> ExitCode {
    let wishes = Wishes::read();
    let scenarios: Vec<_> = suite.scenarios.iter().filter(|scenario| wishes.want(&scenario.path())).collect();
    if wishes.list {
        scenarios.iter().for_each(|scenario| say(&format!("{}: test", scenario.title())));
        return ExitCode::SUCCESS;
    }
    remember_panics();
    let plugins = Plugins::chosen();
    let tasks: Vec<_> =
        scenarios.iter().flat_map(|scenario| plugins.iter().map(move |set| (*scenario, set))).collect();
    let names: Vec<&str> = plugins.iter().map(|set| &*set.name).collect();
    say(&format!("\nrunning {} scenarios on {}", scenarios.len(), names.join(", ")));
    let start = Instant::now();
    // As many workers as it takes to keep the cores busy: most of the time is spent waiting for processes to end.
    let workers = thread::available_parallelism().map_or(2, NonZero::get) * 2;
    let outcomes = side_by_side(workers, &tasks, |(scenario, set)| {
        let outcome = judge(suite.known, scenario, set, &wishes);
        tell(&outcome, &format!("{} {}", set.name, scenario.title()));
        outcome
    });
    conclude(&outcomes, start)
}

/// Tries a scenario in each of its versions, and holds it against what is known.
fn judge(known: &[Known], scenario: &Scenario, plugins: &Plugins, wishes: &Wishes) -> Outcome {
    if scenario.peers && !wishes.peers {
        return Outcome::NotRun("they need what `make test-peers` has".into());
    }
    if !plugins.have(scenario.plugin) {
        return Outcome::NotRun(format!("{} has no {} plugin", plugins.name, scenario.plugin));
    }
    let versions = scenario.versions.iter().filter(|version| plugins.speaks(scenario.plugin, version));
    let outcomes: Vec<_> = versions.map(|version| attempt(scenario, plugins, version)).collect();
    let Some(worst) = outcomes.iter().max().cloned() else {
        return Outcome::NotRun(format!(
            "{} of {} speaks none of {:?}",
            scenario.plugin, plugins.name, scenario.versions
        ));
    };
    let failures: Vec<_> = outcomes.iter().filter_map(failure).collect();
    match known.iter().find(|known| known.is_about(scenario, plugins)) {
        Some(known) if !failures.is_empty() => Outcome::Known(known.why),
        Some(known) if worst == Outcome::Ok && known.on != Others::GoSometimes => {
            Outcome::Failed(format!("is true here, though known.rs says: {}", known.why))
        }
        _ if failures.is_empty() => worst,
        _ => Outcome::Failed(failures.join("\n    ")),
    }
}

fn failure(outcome: &Outcome) -> Option<String> {
    if let Outcome::Failed(why) = outcome { Some(why.clone()) } else { None }
}

fn attempt(scenario: &Scenario, plugins: &Plugins, version: &'static str) -> Outcome {
    let play = || (scenario.play)(&Stage { plugins, version, site: Site::new() });
    match scenario_harness::attempt(AssertUnwindSafe(play)) {
        Outcome::Failed(why) => Outcome::Failed(format!("{version}: {why}")),
        outcome => outcome,
    }
}

fn tell(outcome: &Outcome, title: &str) {
    match outcome {
        Outcome::Ok => say(&format!("ok       {title}")),
        Outcome::Known(why) => say(&format!("known    {title} ({why})")),
        Outcome::NotRun(_) => {} // told together at the end
        Outcome::Failed(why) => say(&format!("FAILED   {title}\n    {why}")),
    }
}
