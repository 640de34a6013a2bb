//! Runs scenarios, two at a time, and tells what came of each: ok, FAILED, or not run with the reason.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::fleet::go_flanneld;
use crate::scenario::{Need, NotRun, PLAYED, Scenario};

/// A lab keeps a core busy; a third one would make waiting look like failing.
const WORKERS: usize = 2;

/// What came of a scenario.
#[derive(Debug)]
enum Outcome {
    Ok,
    NotRun(String),
    Failed(String),
}

/// What the command line asks for; what cargo passes for Rust's own harness is taken and ignored.
#[derive(Debug, Default)]
struct Wishes {
    filters: Vec<String>,
    peers: bool,
    list: bool,
}

impl Wishes {
    fn read() -> Self {
        let mut wishes = Self::default();
        for word in std::env::args().skip(1) {
            match &*word {
                "--peers" => wishes.peers = true,
                "--list" => wishes.list = true,
                _ if word.starts_with('-') => {}
                _ => wishes.filters.push(word),
            }
        }
        wishes
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let path = scenario.path();
        self.filters.is_empty() || self.filters.iter().any(|filter| path.contains(filter))
    }

    /// Why a scenario cannot be tried here.
    fn lacks(&self, scenario: &Scenario) -> Option<String> {
        scenario.needs.iter().find_map(|need| match need {
            Need::Peers if !self.peers => Some("they need what `make test-peers` has".to_owned()),
            Need::GoFlanneld if go_flanneld().is_none() => {
                Some("they need a Go flanneld 0.28: name one in GO_FLANNELD".to_owned())
            }
            _ => None,
        })
    }
}

/// Runs scenarios as the command line wants them.
pub fn run(scenarios: &[Scenario]) -> ExitCode {
    let wishes = Wishes::read();
    let chosen: Vec<_> = scenarios.iter().filter(|scenario| wishes.wants(scenario)).collect();
    if wishes.list {
        chosen.iter().for_each(|scenario| say(&format!("{}: test", scenario.title())));
        return ExitCode::SUCCESS;
    }
    set_hook(Box::new(remember));
    say(&format!("\nrunning {} scenarios", chosen.len()));
    let (start, next, outcomes) = (Instant::now(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let outcome = attempt(scenario, &wishes);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    conclude(&outcomes.into_inner().unwrap(), start)
}

fn attempt(scenario: &Scenario, wishes: &Wishes) -> Outcome {
    if let Some(lack) = wishes.lacks(scenario) {
        return Outcome::NotRun(lack);
    }
    PLAYED.set(scenario.name);
    let start = Instant::now();
    let outcome = catch_unwind(scenario.play).map_or_else(|panic| explain(panic.as_ref()), |()| Outcome::Ok);
    let (title, seconds) = (scenario.title(), start.elapsed().as_secs_f32());
    match &outcome {
        Outcome::Ok => say(&format!("ok       {title} ({seconds:.1} s)")),
        Outcome::NotRun(why) => say(&format!("not run  {title}: {why}")),
        Outcome::Failed(why) => say(&format!("FAILED   {title} ({seconds:.1} s)\n    {why}")),
    }
    outcome
}

/// What the last panics said, and where: work inside a namespace panics on a thread of its own.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// In place of printing: failures are told together with the scenario.
fn remember(panic: &PanicHookInfo<'_>) {
    let place =
        panic.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
    let text = format!("{place}: {}", panic.payload_as_str().unwrap_or("no words"));
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// What a panic said, with the place if it is remembered.
fn words(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
    let text = text.unwrap_or("no words");
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = panics.iter().position(|told| told.ends_with(text));
    known.map_or_else(|| text.to_owned(), |place| panics.swap_remove(place))
}

fn explain(panic: &(dyn Any + Send)) -> Outcome {
    match panic.downcast_ref::<NotRun>() {
        Some(NotRun(why)) => Outcome::NotRun(why.clone()),
        None => Outcome::Failed(words(panic)),
    }
}

fn conclude(outcomes: &[Outcome], start: Instant) -> ExitCode {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Outcome::NotRun(why) = outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    reasons.iter().for_each(|(why, count)| say(&format!("not run  {count} scenarios: {why}")));
    let failed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
    let passed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Ok)).count();
    let not_run: usize = reasons.values().sum();
    let seconds = start.elapsed().as_secs_f32();
    say(&format!("\n{passed} passed, {failed} failed, {not_run} not run, in {seconds:.1} s\n"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[allow(clippy::print_stdout, reason = "the harness's report is what it is for")]
fn say(line: &str) {
    println!("{line}");
}
