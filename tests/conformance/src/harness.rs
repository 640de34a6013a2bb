//! Runs scenarios on plugins, side by side, and tells what came of each: ok, FAILED, known, or not run.

use std::any::Any;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::scenario::{NotRun, Others};
use crate::{Known, Plugins, Scenario, Site, Stage, Suite};

/// What came of a scenario on some plugins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ok,
    Known(&'static str),
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
}

/// Runs a suite as the command line wants it.
pub fn run(suite: &Suite) -> ExitCode {
    let wishes = Wishes::read();
    let scenarios: Vec<_> = suite.scenarios.iter().filter(|scenario| wishes.wants(scenario)).collect();
    if wishes.list {
        scenarios.iter().for_each(|scenario| say(&format!("{}: test", scenario.title())));
        return ExitCode::SUCCESS;
    }
    set_hook(Box::new(remember));
    let plugins = Plugins::chosen();
    let tasks: Vec<_> =
        scenarios.iter().flat_map(|scenario| plugins.iter().map(move |set| (*scenario, set))).collect();
    let names: Vec<&str> = plugins.iter().map(|set| &*set.name).collect();
    say(&format!("\nrunning {} scenarios on {}", scenarios.len(), names.join(", ")));
    let start = Instant::now();
    let outcomes = side_by_side(&tasks, |(scenario, set)| {
        let outcome = judge(suite.known, scenario, set, &wishes);
        tell(&outcome, &format!("{} {}", set.name, scenario.title()));
        outcome
    });
    conclude(&outcomes, start)
}

/// As many workers as it takes to keep the cores busy: most of the time is spent waiting for processes to end.
fn side_by_side<T: Sync>(tasks: &[T], work: impl Fn(&T) -> Outcome + Sync) -> Vec<Outcome> {
    let workers = thread::available_parallelism().map_or(2, NonZero::get) * 2;
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((place, task)) = take(&next, tasks) {
                    let outcome = work(task);
                    outcomes.lock().unwrap().insert(place, outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap().into_values().collect()
}

fn take<'a, T>(next: &AtomicUsize, tasks: &'a [T]) -> Option<(usize, &'a T)> {
    let place = next.fetch_add(1, Ordering::SeqCst);
    tasks.get(place).map(|task| (place, task))
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
    match catch_unwind(AssertUnwindSafe(play)) {
        Ok(()) => Outcome::Ok,
        Err(panic) => explain(panic.as_ref(), version),
    }
}

/// What the last panics said, and where: work inside a namespace panics on a thread of its own.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// In place of printing: failures are told together with the scenario, at the end.
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

fn explain(panic: &(dyn Any + Send), version: &str) -> Outcome {
    match panic.downcast_ref::<NotRun>() {
        Some(NotRun(why)) => Outcome::NotRun(why.clone()),
        None => Outcome::Failed(format!("{version}: {}", words(panic))),
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

fn conclude(outcomes: &[Outcome], start: Instant) -> ExitCode {
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let passed = count(|outcome| *outcome == Outcome::Ok);
    let known = count(|outcome| matches!(outcome, Outcome::Known(_)));
    let not_run = count(|outcome| matches!(outcome, Outcome::NotRun(_)));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Outcome::NotRun(why) = outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    reasons.iter().for_each(|(why, count)| say(&format!("not run  {count} scenarios: {why}")));
    let seconds = start.elapsed().as_secs_f32();
    say(&format!(
        "\n{passed} passed, {failed} failed, {known} known, {not_run} not run, in {seconds:.1} s\n"
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[allow(clippy::print_stdout, reason = "the harness's report is what it is for")]
fn say(line: &str) {
    println!("{line}");
}
