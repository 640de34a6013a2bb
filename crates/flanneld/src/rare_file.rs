//! Writes a JSON file whole, then renames it, and not too often. What could not be written is tried again.

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
    /// Whether there is something new; until it is written.
    waiting: bool,
    /// Why the last write failed: told once.
    trouble: Option<String>,
}

impl RareFile {
    /// A file that is not written yet.
    pub fn new(path: impl Into<PathBuf>, pause: Duration) -> Self {
        let earliest = Instant::now() + pause;
        Self { path: path.into(), pause, earliest, is_there: false, waiting: false, trouble: None }
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

    /// Writes what is new, if it is time: then the content is asked for, which may turn out to be none. Gives why that
    /// failed, unless the last write failed for the same reason.
    pub fn write_if_due<C: Serialize>(&mut self, content: impl FnOnce() -> Option<C>) -> io::Result<()> {
        let begun = Instant::now();
        if self.due().is_none_or(|due| due > begun) {
            return Ok(());
        }
        let written = content().map_or(Ok(()), |content| self.write(&content));
        self.waiting = written.is_err();
        // Also after a failure: a full disk is not tried again at once. A large file is written more rarely, since
        // the loop waits for it.
        self.earliest = Instant::now() + self.pause.max(begun.elapsed() * SHARE);
        let trouble = written.as_ref().err().map(ToString::to_string);
        let is_told = trouble == self.trouble;
        self.trouble = trouble;
        if is_told { Ok(()) } else { written }
    }

    fn write(&mut self, content: &impl Serialize) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that may be written at any time, and a folder in whose place something else stands.
    fn stage(name: &str) -> (RareFile, PathBuf) {
        let folder = std::env::temp_dir().join(format!("flanneld-rare-file-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        (RareFile::new(folder.join("place/state.json"), Duration::ZERO), folder)
    }

    fn write(file: &mut RareFile, content: u8) -> io::Result<()> {
        let due = file.due().unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        file.write_if_due(|| Some(content))
    }

    #[test]
    fn what_cannot_be_written_is_told_once_and_tried_until_it_can() {
        let (mut file, folder) = stage("retry");
        fs::write(folder.join("place"), "no folder").unwrap();
        file.touch();
        assert!(write(&mut file, 1).is_err());
        assert!(write(&mut file, 2).is_ok(), "the same trouble is old news");
        fs::remove_file(folder.join("place")).unwrap();
        assert!(write(&mut file, 3).is_ok());
        assert_eq!((file.due(), fs::read_to_string(file.path()).unwrap().as_str()), (None, "3\n"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_without_content_is_not_due_for_ever() {
        let (mut file, folder) = stage("nothing");
        file.touch();
        assert!(file.write_if_due(|| None::<u8>).is_ok());
        assert_eq!((file.due(), file.path().exists()), (None, false));
        fs::remove_dir_all(folder).unwrap();
    }
}
