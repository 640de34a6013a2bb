//! Writes a JSON file whole, then renames it, and not too often.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

/// At most one part in so many of the time goes into writing.
const SHARE: u32 = 200;

/// The file, and when it may be written again.
#[derive(Debug)]
pub struct RareFile {
    path: PathBuf,
    /// The shortest time between two writes.
    pause: Duration,
    /// Not before this. The first moments of a start change fast and are worth no file.
    earliest: Instant,
    is_there: bool,
    waiting: bool,
}

impl RareFile {
    /// A file that is not written yet.
    pub fn new(path: impl Into<PathBuf>, pause: Duration) -> Self {
        let earliest = Instant::now() + pause;
        Self { path: path.into(), pause, earliest, is_there: false, waiting: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that there is something new to write.
    pub fn touch(&mut self) {
        self.waiting = true;
    }

    /// Notes that the first content is worth reading: it need not wait any longer.
    pub fn hurry(&mut self) {
        if !self.is_there {
            self.earliest = Instant::now();
        }
    }

    /// When it is to be written, if there is something new.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.then_some(self.earliest)
    }

    /// Whether now is the time.
    pub fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Writes it.
    pub fn write(&mut self, content: &impl Serialize) -> io::Result<()> {
        let begun = Instant::now();
        let outcome = self.write_now(content);
        // Also after a failure: a full disk is not tried again at once. A large file is written more rarely, since
        // the loop waits for it.
        self.earliest = Instant::now() + self.pause.max(begun.elapsed() * SHARE);
        outcome
    }

    fn write_now(&mut self, content: &impl Serialize) -> io::Result<()> {
        self.waiting = false;
        self.is_there = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or(Ok(()), fs::create_dir_all)?;
        let draft = self.path.with_extension("json.new");
        let outcome = write_whole(&draft, content).and_then(|()| fs::rename(&draft, &self.path));
        if outcome.is_err() {
            // The draft may not even exist; the first error is the one that matters.
            _ = fs::remove_file(&draft);
        }
        outcome
    }
}

fn write_whole(draft: &Path, content: &impl Serialize) -> io::Result<()> {
    let file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(draft)?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, content)?;
    out.write_all(b"\n")?;
    out.flush()
}
