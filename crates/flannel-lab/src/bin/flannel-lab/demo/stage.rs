//! What every scene of the demo uses: numbered titles, sentences, and the interrupt.

use std::io::{self, Write};

use flannel_lab::Interrupt;
use flannel_screen::{Ink, Screen};

/// Where the demo is shown.
pub struct Stage<'a> {
    out: &'a mut dyn Write,
    pub interrupt: Interrupt,
    scene: u32,
}

impl<'a> Stage<'a> {
    pub fn new(out: &'a mut dyn Write, interrupt: &Interrupt) -> Self {
        Self { out, interrupt: interrupt.clone(), scene: 0 }
    }

    /// Begins a scene, unless somebody wants to stop.
    pub fn scene(&mut self, title: &str) -> anyhow::Result<()> {
        self.interrupt.check()?;
        self.scene += 1;
        let title = self.paint(Ink::Title, &format!("── {}. {title} ──", self.scene));
        Ok(writeln!(self.out, "\n{title}")?)
    }

    /// Says something to the reader.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Shows something that is as it should be.
    pub fn good(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(Ink::Good, text);
        self.say(&text)
    }

    /// Shows something that was broken.
    pub fn bad(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(Ink::Bad, text);
        self.say(&text)
    }

    pub fn paint(&self, tone: Ink, text: &str) -> String {
        Screen::of_stdout().paint(tone, text)
    }
}
