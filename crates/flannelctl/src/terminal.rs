//! Where answers go: standard output, with colour only if a person looks at it.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, Color, Table, presets};

/// What a piece of text is, which decides how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A title.
    Title,
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
    /// What the eye should find.
    Key,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Title => "1;36",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Key => "1",
        }
    }
}

/// A place to write to that knows whether it shows colours.
pub struct Terminal {
    out: Box<dyn Write>,
    has_colour: bool,
}

impl Terminal {
    /// Standard output; `NO_COLOR` and dumb terminals are heeded.
    pub fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colour = io::stdout().is_terminal() && !refused && !is_dumb;
        Self { out: Box::new(io::stdout()), has_colour }
    }

    /// A table in the look of all our tables.
    pub fn table<T: ToString>(&self, header: impl IntoIterator<Item = T>) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(header.into_iter().map(|cell| cell.to_string()));
        if self.has_colour {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        table
    }

    /// The text in its tone, where colours are shown.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        if self.has_colour { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
    }
}

/// A cell of a table in its tone; painted text would make the column too wide.
pub fn cell(tone: Tone, text: impl ToString) -> Cell {
    let cell = Cell::new(text);
    match tone {
        Tone::Title | Tone::Key => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::Green),
        Tone::Bad => cell.fg(Color::Red),
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_alone() {
        let shown = |has_colour| Terminal { out: Box::new(io::sink()), has_colour }.paint(Tone::Bad, "x");
        assert_eq!([shown(true), shown(false)], ["\x1b[1;31mx\x1b[0m", "x"]);
    }
}
