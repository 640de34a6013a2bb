//! One measured figure with its goal, and how figures are shown.

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The most that it may be, if there is a goal.
    pub goal: Option<f64>,
    /// How it was come by.
    pub note: String,
}

impl Figure {
    /// A figure without a goal.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, goal: None, note: String::new() }
    }

    /// The median of times, in milliseconds; the note gives the largest.
    pub fn median(name: impl Into<String>, mut times: Vec<Duration>) -> Self {
        times.sort();
        let millis = |time: &Duration| time.as_secs_f64() * 1000.0;
        let middle = times.get(times.len() / 2).map_or(f64::NAN, millis);
        let worst = times.last().map_or(f64::NAN, millis);
        Self::new(name, middle, "ms").note(format!("median of {}, worst {worst:.1} ms", times.len()))
    }

    /// The same with a goal.
    pub fn at_most(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self
    }

    /// The same with a note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether the goal is met, if there is one.
    pub fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| self.value <= goal)
    }
}

/// The figures as a table.
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(["figure", "measured", "goal", "", "how"]);
    for figure in figures {
        let goal = figure.goal.map_or(String::new(), |goal| format!("≤ {goal} {}", figure.unit));
        let verdict = match figure.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let measured = format!("{:.1} {}", figure.value, figure.unit);
        table.add_row([&figure.name, &measured, &goal, verdict, &figure.note]);
    }
    table
}
