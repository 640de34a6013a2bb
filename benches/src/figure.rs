//! One measured figure with its goal, and how figures are shown.

use std::borrow::Cow;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::{Deserialize, Serialize};

/// What a figure must be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// One measured figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: Cow<'static, str>,
    /// What it must be, if there is a goal.
    pub goal: Option<Goal>,
    /// How it was come by.
    pub note: String,
}

impl Figure {
    /// A figure without a goal.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit: unit.into(), goal: None, note: String::new() }
    }

    /// The median of times, in milliseconds; the note gives the largest.
    pub fn median(name: impl Into<String>, mut times: Vec<Duration>) -> Self {
        times.sort();
        let millis = |time: &Duration| time.as_secs_f64() * 1000.0;
        let middle = times.get(times.len() / 2).map_or(f64::NAN, millis);
        let worst = times.last().map_or(f64::NAN, millis);
        Self::new(name, middle, "ms").note(format!("median of {}, worst {worst:.1} ms", times.len()))
    }

    /// The lower quartile of times, in milliseconds: what a busy machine adds to short times is mostly above it.
    pub fn quartile(name: impl Into<String>, mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |place: usize| times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
        let (count, last) = (times.len(), times.len().saturating_sub(1));
        let note = format!(
            "quartile of {count}, {:.1} to {:.1} ms, median {:.1} ms",
            at(0),
            at(last),
            at(count / 2)
        );
        Self::new(name, at(count / 4), "ms").note(note)
    }

    /// The same with a limit.
    pub fn at_most(mut self, goal: f64) -> Self {
        self.goal = Some(Goal::AtMost(goal));
        self
    }

    /// The same with a number to reach.
    pub fn at_least(mut self, goal: f64) -> Self {
        self.goal = Some(Goal::AtLeast(goal));
        self
    }

    /// The same with a note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether the goal is met, if there is one.
    pub fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| match goal {
            Goal::AtMost(most) => self.value <= most,
            Goal::AtLeast(least) => self.value >= least,
        })
    }
}

/// The figures as a table.
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(["figure", "measured", "goal", "", "how"]);
    for figure in figures {
        let goal = match figure.goal {
            Some(Goal::AtMost(most)) => format!("≤ {most} {}", figure.unit),
            Some(Goal::AtLeast(least)) => format!("≥ {least} {}", figure.unit),
            None => String::new(),
        };
        let verdict = match figure.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let measured = format!("{:.2} {}", figure.value, figure.unit);
        table.add_row([&figure.name, &measured, &goal, verdict, &figure.note]);
    }
    table
}
