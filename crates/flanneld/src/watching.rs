//! Watches that come back: each listens on a thread of its own, and is opened again when it fails.
//!
//! Without one, drift is found by the safety look only, once a minute; so nobody should have to find that out by waiting.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flannel_kernel::firewall::rules::watch::RuleWatch;
use flannel_kernel::watch::WatchError;
use flannel_plan::backoff::Backoff;
use flannel_plan::finding::{Code, Finding};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::{debug, warn};

use crate::culprits::Culprits;
use crate::metrics::Labels;
use crate::wake::{Bell, Wake};

/// How long to wait before a watch is opened again; ever longer while that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What lasted so long had worked.
const WORKED: Duration = Duration::from_secs(10);

/// What a watch is called.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its thread, and its label in /metrics.
    pub name: &'static str,
    /// What is lost without it, for the log.
    pub without: &'static str,
}

/// How often watches failed, and which of them are not back yet; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    counted: Family<Labels<1>, Counter>,
    standing: Arc<Mutex<BTreeMap<&'static str, Finding>>>,
}

impl Failures {
    /// None so far.
    pub fn new(counted: Family<Labels<1>, Counter>) -> Self {
        Self { counted, standing: Arc::default() }
    }

    /// What is wrong while watches are not back.
    pub fn findings(&self) -> Vec<Finding> {
        self.standing().values().cloned().collect()
    }

    /// Notes what is lost without a watch, and rings for it to be told.
    fn note(&self, watch: &'static str, what: String, why: impl Display, bell: &Bell) {
        let finding = Finding::new(Code::WatchFailed, watch, what).because(why);
        if self.standing().insert(watch, finding).is_none() {
            bell.ring(Wake::Observation);
        }
    }

    fn standing(&self) -> MutexGuard<'_, BTreeMap<&'static str, Finding>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a watch on a thread of its own, and opens it again when it fails.
pub fn keep<W, E: Display>(
    named: Named,
    failures: Failures,
    bell: Bell,
    open: impl Fn() -> Result<W, E> + Send + 'static,
    wait: impl Fn(&mut W) -> Result<(), E> + Send + 'static,
) {
    let Named { name, without } = named;
    let (noted, bell_of_loop) = (failures.clone(), bell.clone());
    let work = move || {
        let mut setback = Setback::default();
        loop {
            let begun = Instant::now();
            let open = || open().inspect(|_| _ = failures.standing().remove(name));
            let Err(error) = listen(&bell, open, &wait);
            failures.counted.get_or_create(&[("watch", name)]).inc();
            failures.note(name, format!("{without} until the watch is back"), &error, &bell);
            let (pause, is_new) = setback.after(begun.elapsed(), error.to_string());
            if is_new {
                warn!(watch = name, %error, code = %Code::WatchFailed, "{without} until the watch is back");
            } else {
                debug!(watch = name, %error, ?pause, "the watch failed again");
            }
            thread::sleep(pause);
        }
    };
    if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
        warn!(watch = name, %error, code = %Code::WatchFailed, "{without}: there is no thread for it");
        noted.note(name, format!("{without}: there is no thread for it"), &error, &bell_of_loop);
    }
}

/// Opens a watch, rings for what happened before, and then for what happens until it fails.
pub fn listen<W, E>(
    bell: &Bell,
    open: impl Fn() -> Result<W, E>,
    wait: impl Fn(&mut W) -> Result<(), E>,
) -> Result<Infallible, E> {
    let mut watch = open()?;
    loop {
        bell.ring(Wake::Observation);
        wait(&mut watch)?;
    }
}

/// Keeps a watch over rules; who changes them is noted.
pub fn keep_rules(
    named: Named,
    failures: Failures,
    open: impl Fn() -> Result<RuleWatch, WatchError> + Send + 'static,
    (bell, culprits): (Bell, Culprits),
) {
    keep(named, failures, bell, open, move |watch| {
        let notice = watch.wait()?;
        debug!(%notice, "the kernel changed");
        notice.by.iter().for_each(|program| culprits.note(program));
        Ok(())
    });
}

/// How often a watch has failed in a row, and why.
#[derive(Debug)]
struct Setback {
    backoff: Backoff,
    why: String,
}

impl Default for Setback {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), why: String::new() }
    }
}

impl Setback {
    /// How long to wait after a failure, and whether it is worth telling.
    fn after(&mut self, lasted: Duration, why: String) -> (Duration, bool) {
        if lasted >= WORKED {
            *self = Self::default();
        }
        let is_new = self.why != why;
        self.why = why;
        (self.backoff.grow(), is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::Alarm;
    use std::sync::mpsc::channel;

    #[test]
    fn a_watch_that_keeps_failing_is_tried_ever_more_rarely_and_told_once_a_reason() {
        let mut setback = Setback::default();
        let mut after = |lasted: u64, why: &str| {
            let (pause, is_new) = setback.after(Duration::from_secs(lasted), why.to_owned());
            (pause.as_millis(), is_new)
        };
        let told: Vec<_> = (0..10).map(|_| after(0, "no memory")).collect();
        let pauses = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000];
        assert_eq!(told, pauses.map(|pause| (pause, pause == 100)));
        assert_eq!([after(0, "no files"), after(3600, "no files")], [(30_000, true), (100, true)]);
    }

    #[test]
    fn a_watch_that_failed_is_opened_again_and_counted() {
        let (bell, (failing, failed)) = (Bell::default(), channel());
        let failures = Failures::default();
        let named = Named { name: "test", without: "nothing is lost" };
        keep(
            named,
            failures.clone(),
            bell.clone(),
            || Ok::<_, &str>(()),
            move |()| {
                failing.send(()).unwrap();
                Err("it breaks at once")
            },
        );
        let soon = Duration::from_secs(60);
        (0..3).for_each(|_| failed.recv_timeout(soon).unwrap());
        assert_eq!(Alarm::new(bell).wait(Instant::now() + soon), Some(Wake::Observation));
        assert!(failures.counted.get_or_create(&[("watch", "test")]).get() >= 2);
    }
}
