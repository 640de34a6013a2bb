//! Where answers go: standard output, with colour only if a person looks at it.

use std::io::{self, Write};

use comfy_table::{Table, presets};

use flannel_screen::{Ink, Screen};

/// A place to write to that knows whether it shows colours.
pub struct Terminal {
    out: Box<dyn Write>,
    screen: Screen,
}

impl Terminal {
    /// Standard output.
    pub fn stdout() -> Self {
        Self { out: Box::new(io::stdout()), screen: Screen::of_stdout() }
    }

    /// A table with borders.
    pub fn table<T: ToString>(&self, header: impl IntoIterator<Item = T>) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(header.into_iter().map(|cell| cell.to_string()));
        self.screen.style(&mut table);
        table
    }

    /// The text in a colour, where colours are shown.
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        self.screen.paint(ink, text)
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
