//! Runs scenarios, two at a time, and tells what came of each: ok, FAILED, or not run with the reason.

use std::process::ExitCode;
use std::time::Instant;

use scenario_harness::{Outcome, Wishes, conclude, remember_panics, say, side_by_side};

use crate::fleet::go_flanneld;
use crate::scenario::{Need, PLAYED, Scenario};

/// A lab keeps a core busy; a third one would make waiting look like failing.
const WORKERS: usize = 2;

/// Runs scenarios as the command line wants them.
pub fn run(scenarios: &[Scenario]) -> ExitCode {
    let wishes = Wishes::read();
    let chosen: Vec<_> = scenarios.iter().filter(|scenario| wishes.want(&scenario.path())).collect();
    if wishes.list {
        chosen.iter().for_each(|scenario| say(&format!("{}: test", scenario.title())));
        return ExitCode::SUCCESS;
    }
    remember_panics();
    say(&format!("\nrunning {} scenarios", chosen.len()));
    let start = Instant::now();
    conclude(&side_by_side(WORKERS, &chosen, |scenario| attempt(scenario, &wishes)), start)
}

fn attempt(scenario: &Scenario, wishes: &Wishes) -> Outcome {
    if let Some(lack) = lack(wishes, scenario) {
        return Outcome::NotRun(lack);
    }
    PLAYED.set(scenario.name);
    let start = Instant::now();
    let outcome = scenario_harness::attempt(scenario.play);
    let (title, seconds) = (scenario.title(), start.elapsed().as_secs_f32());
    match &outcome {
        Outcome::Ok | Outcome::Known(_) => say(&format!("ok       {title} ({seconds:.1} s)")),
        Outcome::NotRun(why) => say(&format!("not run  {title}: {why}")),
        Outcome::Failed(why) => say(&format!("FAILED   {title} ({seconds:.1} s)\n    {why}")),
    }
    outcome
}

/// Why a scenario cannot be tried here.
fn lack(wishes: &Wishes, scenario: &Scenario) -> Option<String> {
    scenario.needs.iter().find_map(|need| match need {
        Need::Peers if !wishes.peers => Some("they need what `make test-peers` has".to_owned()),
        Need::GoFlanneld if go_flanneld().is_none() => {
            Some("they need a Go flanneld 0.28: name one in GO_FLANNELD".to_owned())
        }
        _ => None,
    })
}
