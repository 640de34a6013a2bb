//! A scenario ends by a panic when it fails, and when it cannot be tried: what it said becomes its outcome.

use std::any::Any;
use std::panic::{PanicHookInfo, UnwindSafe, catch_unwind, resume_unwind, set_hook};
use std::sync::{Mutex, PoisonError};

use crate::Outcome;

/// What panics said, and where, until somebody asks: work inside a namespace panics on a thread of its own.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The reason why a scenario cannot be tried here.
struct NotRun(String);

/// Ends a scenario that cannot be tried here; it is told and counted, and is neither a success nor a failure.
pub fn not_run(why: impl Into<String>) -> ! {
    resume_unwind(Box::new(NotRun(why.into())))
}

/// Has panics remembered instead of printed: failures are told together with the scenario.
pub fn remember_panics() {
    set_hook(Box::new(remember));
}

fn remember(panic: &PanicHookInfo<'_>) {
    let place =
        panic.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
    let text = format!("{place}: {}", panic.payload_as_str().unwrap_or("no words"));
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

/// Plays a scenario and gives what came of it.
pub fn attempt(play: impl FnOnce() + UnwindSafe) -> Outcome {
    match catch_unwind(play) {
        Ok(()) => Outcome::Ok,
        Err(panic) => match panic.downcast::<NotRun>() {
            Ok(not_run) => Outcome::NotRun(not_run.0),
            Err(panic) => Outcome::Failed(words(panic.as_ref())),
        },
    }
}

/// What a panic said, with the place if it is remembered.
fn words(panic: &(dyn Any + Send)) -> String {
    let owned = || panic.downcast_ref::<String>().map(|text| &**text);
    let text = panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("no words");
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = panics.iter().position(|told| told.ends_with(text));
    known.map_or_else(|| text.to_owned(), |place| panics.swap_remove(place))
}
