//! Notices that the store changed: inotify on the directory and on its leases.
//!
//! Takes the kernel's events and gives [`Suspects`]: what to read again. It never says what happened.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use flannel_files::watch::{Inotify, Notice};

use super::{CONFIG, LEASES, lease_file, leases_of};
use crate::StoreError;
use crate::readable::Readable;

/// What may have changed since the last reading, beyond what a file's stamp tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Suspects {
    /// Something may have changed at all.
    pub touched: bool,
    /// Events were lost: no stamp is to be trusted.
    pub all: bool,
    pub leases: BTreeSet<Box<str>>,
    /// The directory itself went away: nothing will be noticed any more.
    pub lost: bool,
}

impl Suspects {
    /// Whether a file must be read even if its stamp is the same.
    pub(super) fn include(&self, file_name: &str) -> bool {
        self.all || self.leases.contains(file_name)
    }

    fn note(&mut self, notice: Notice<'_>, directory: i32) {
        if notice.is_gone || notice.is_overflow() {
            self.touched = true;
            self.all = true;
            self.lost |= notice.watch == directory;
            return;
        }
        let Ok(name) = std::str::from_utf8(notice.name) else { return };
        if notice.watch == directory {
            self.touched |= name == CONFIG || name == LEASES;
        } else if lease_file::key(name).is_some() {
            self.touched = true;
            self.leases.insert(name.into());
        }
    }
}

/// A watch over one store.
#[derive(Debug)]
pub(super) struct Notices {
    events: Readable<Inotify>,
    dir: PathBuf,
    directory: i32,
}

impl Notices {
    /// Begins to watch; needs a tokio runtime.
    pub(super) fn begin(dir: &Path) -> Result<Self, StoreError> {
        let wrong = |cause: io::Error| StoreError::Watch { path: dir.to_owned(), cause };
        let events = Inotify::new().map_err(wrong)?;
        let directory = events.watch(dir).map_err(wrong)?;
        let events = Readable::new(events).map_err(wrong)?;
        Ok(Self { events, dir: dir.to_owned(), directory })
    }

    /// Watches the leases too, as soon as they have a directory; to be called before every reading, because
    /// that directory may be made, or replaced, at any time.
    pub(super) fn follow_leases(&self) -> Result<(), StoreError> {
        let path = leases_of(&self.dir);
        match self.events.get_ref().watch(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(StoreError::Watch { path, cause }),
            _ => Ok(()),
        }
    }

    /// Waits until there is something to read, and adds it to what is known already. A burst is one.
    pub(super) async fn wait(&mut self, suspects: &mut Suspects) -> Result<(), StoreError> {
        while !suspects.touched {
            let read = self.events.read(|events| events.read(|notice| suspects.note(notice, self.directory)));
            read.await.map_err(|cause| StoreError::Watch { path: self.dir.clone(), cause })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn noticed(notices: &Notices) -> Suspects {
        let mut suspects = Suspects::default();
        let _ = notices.events.get_ref().read(|notice| suspects.note(notice, notices.directory));
        suspects
    }

    #[tokio::test]
    async fn only_what_is_a_config_or_a_lease_is_noticed_and_a_burst_is_noticed_once() {
        let store = tempfile::tempdir().unwrap();
        let dir = store.path();
        let leases = leases_of(dir);
        let notices = Notices::begin(dir).unwrap();
        for name in ["lock", ".config.json.swp", "config.json~"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        assert_eq!(noticed(&notices), Suspects::default());
        fs::create_dir(&leases).unwrap();
        assert_eq!(noticed(&notices), Suspects { touched: true, ..Suspects::default() });
        notices.follow_leases().unwrap();
        notices.follow_leases().unwrap();
        for name in [".unfinished", "README", ".10.244.1.0-24.json"] {
            fs::write(leases.join(name), "x").unwrap();
        }
        assert_eq!(noticed(&notices), Suspects::default());
        for name in ["a.json", "b.json", "a.json"] {
            fs::write(leases.join(name), "x").unwrap();
        }
        fs::rename(dir.join("config.json~"), dir.join(CONFIG)).unwrap();
        let named = BTreeSet::from(["a.json".into(), "b.json".into()]);
        assert_eq!(noticed(&notices), Suspects { touched: true, leases: named, ..Suspects::default() });
        assert_eq!(noticed(&notices), Suspects::default());
    }
}
