//! How programs write for people: as wide as the terminal, in colour where that is wanted, or as JSON.
//!
//! Takes facts about standard output once, gives tables and painted words, and errors with their causes.

mod failure;

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

pub use failure::failure_code;

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Form {
    /// Writes a value, or what people are told of it.
    pub fn write(
        self,
        out: &mut dyn Write,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Json => Ok(writeln!(out, "{}", serde_json::to_string_pretty(value)?)?),
            Self::Text => Ok(out.write_all(text().as_bytes())?),
        }
    }
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// A title.
    Title,
    /// What the eye should find.
    Key,
    /// As it should be, or added.
    Good,
    /// Not as it should be, or removed.
    Bad,
    /// Worth a look, or altered.
    Odd,
    /// Beside the point.
    Faint,
}

/// Where the output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The columns there are; none where nobody counts them, as in a pipe.
    pub width: Option<u16>,
    /// Whether colours are wanted.
    pub colour: bool,
}

impl Screen {
    /// What standard output is.
    pub fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Self {
            width: told.or_else(|| rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col)),
            colour: is_terminal && !dumb && !is_set("NO_COLOR"),
        }
    }

    /// A word in a colour, where colours are wanted.
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Title => "1;36",
            Ink::Key => "1",
            Ink::Good => "32",
            Ink::Bad => "31",
            Ink::Odd => "33",
            Ink::Faint => "2",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Puts colours into a table only where they are wanted.
    pub fn style(&self, table: &mut Table) {
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
    }

    /// A table without rows.
    pub fn table(&self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(header);
        match self.width.filter(|width| *width > 0) {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        self.style(&mut table);
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
        table
    }
}

/// A cell in a colour; a table without colours drops it.
pub fn cell(ink: Ink, text: impl ToString) -> Cell {
    let cell = Cell::new(text);
    match ink {
        Ink::Title | Ink::Key => cell.add_attribute(Attribute::Bold),
        Ink::Good => cell.fg(Color::DarkGreen),
        Ink::Bad => cell.fg(Color::DarkRed),
        Ink::Odd => cell.fg(Color::DarkYellow),
        Ink::Faint => cell.fg(Color::DarkGrey),
    }
}

/// A table as text, without white space at the ends of lines.
pub fn table_text(table: &Table) -> String {
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Writes the script by which a shell completes the words of a program.
pub fn write_completions(
    out: &mut dyn Write,
    mut program: clap::Command,
    shell: clap_complete::Shell,
) -> io::Result<()> {
    // The generator panics if it cannot write, so it writes to memory.
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut script);
    out.write_all(&script)
}

/// Values with commas between them.
pub fn listed<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    joined(values, ", ")
}

/// Values on a line each.
pub fn stacked<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    joined(values, "\n")
}

fn joined<T: ToString>(values: impl IntoIterator<Item = T>, between: &str) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(between)
}

/// How long ago something was, in the largest unit that makes sense. Clocks that went back say "just now".
pub fn ago(now: u64, then: u64) -> String {
    let seconds = now.saturating_sub(then) / 1000;
    match seconds {
        0 => "just now".to_owned(),
        1..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_in_the_largest_unit_that_makes_sense() {
        let told = [0, 999, 1000, 119_000, 120_000, 7_200_000, 172_800_000].map(|then| ago(then, 0));
        let expected = ["just now", "just now", "1 s ago", "119 s ago", "2 min ago", "2 h ago", "2 days ago"];
        assert_eq!(told, expected);
        assert_eq!(ago(0, 5000), "just now");
    }

    #[test]
    fn colours_are_written_only_where_they_are_wanted() {
        let plain = Screen { width: None, colour: false };
        let bright = Screen { width: None, colour: true };
        assert_eq!(plain.paint(Ink::Bad, "x"), "x");
        assert_eq!(bright.paint(Ink::Bad, "x"), "\x1b[31mx\x1b[0m");
        let written = |screen: Screen| {
            let mut table = screen.table(&["A", "B"]);
            table.add_row([cell(Ink::Good, "1"), cell(Ink::Faint, "2")]);
            table_text(&table)
        };
        assert_eq!(written(plain), "A  B\n1  2\n");
        assert!(written(bright).contains("\x1b["));
    }

    #[test]
    fn a_table_is_not_wider_than_the_screen() {
        let mut table = Screen { width: Some(40), colour: false }.table(&["NODE", "STATE"]);
        table.add_row(["worker1", "refused: its public address 10.0.0.3 is this node's own"]);
        let text = table_text(&table);
        assert!(text.lines().all(|line| line.len() <= 40), "{text}");
        assert!(text.lines().count() > 2, "{text}");
    }
}
