//! Writes a JSON file whole, then renames it, and not too often. What could not be written is tried again.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flannel_files::{Survives, folder_of, replace};
use serde::Serialize;

use crate::clock;

/// At most one part in so many of the time goes into writing.
const SHARE: u32 = 200;
/// It tells of the whole cluster, which is not for everybody.
const MODE: u32 = 0o640;

/// The file, and when it may be written again.
#[derive(Debug)]
pub struct ThrottledFile {
    path: PathBuf,
    survives: Survives,
    /// The shortest time between two writes.
    pause: Duration,
    /// Not before this. The first moments of a start change fast and are worth no file.
    earliest: Instant,
    is_there: bool,
    /// Whether there is something new; until it is written.
    waiting: bool,
    trouble: Option<String>,
}

impl ThrottledFile {
    /// A file that is not written yet.
    pub fn new(path: impl Into<PathBuf>, survives: Survives, pause: Duration) -> Self {
        let earliest = clock::now() + pause;
        Self { path: path.into(), survives, pause, earliest, is_there: false, waiting: false, trouble: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Goes to another place, and writes there as soon as there is something to write.
    pub fn move_to(&mut self, path: PathBuf) {
        self.path = path;
        self.earliest = clock::now();
        self.trouble = None;
    }

    /// Why the last write failed, if it did.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Notes that there is something new to write.
    pub fn touch(&mut self) {
        self.waiting = true;
    }

    /// Notes that the first content is worth reading: it need not wait any longer.
    pub fn hurry(&mut self) {
        if !self.is_there {
            self.earliest = clock::now();
        }
    }

    /// When it is to be written, if there is something new.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.then_some(self.earliest)
    }

    /// Writes what is new, if it is time: then the content is asked for, which may turn out to be none. Gives why that
    /// failed, unless the last write failed for the same reason.
    pub fn write_if_due<C: Serialize>(&mut self, content: impl FnOnce() -> Option<C>) -> io::Result<()> {
        let begun = clock::now();
        if self.due().is_none_or(|due| due > begun) {
            return Ok(());
        }
        let written = content().map_or(Ok(()), |content| self.write(&content));
        self.waiting = written.is_err();
        // Also after a failure: a full disk is not tried again at once. A large file is written more rarely, since
        // the loop waits for it.
        self.earliest = clock::now() + self.pause.max((clock::now() - begun) * SHARE);
        let trouble = written.as_ref().err().map(ToString::to_string);
        let is_told = trouble == self.trouble;
        self.trouble = trouble;
        if is_told { Ok(()) } else { written }
    }

    fn write(&mut self, content: &impl Serialize) -> io::Result<()> {
        self.is_there = true;
        fs::create_dir_all(folder_of(&self.path))?;
        replace(&self.path, MODE, self.survives, |out| {
            serde_json::to_writer(&mut *out, content)?;
            out.write_all(b"\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that may be written at any time, and a folder in whose place something else stands.
    fn stage(name: &str) -> (ThrottledFile, PathBuf) {
        let folder = std::env::temp_dir().join(format!("flanneld-rare-file-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        (ThrottledFile::new(folder.join("place/state.json"), Survives::Crash, Duration::ZERO), folder)
    }

    fn write(file: &mut ThrottledFile, content: u8) -> io::Result<()> {
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
