//! The reservations of a network: the folder, and what is known of it without opening its files. Takes
//! addresses and owners, gives who has what; whatever is changed is changed in the folder first.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::folder::{Content, Folder, Missing, write_at};
use super::index::{self, Cached, FileId, Record, Standing};
use super::machine::Machine;
use crate::error::CniError;
use crate::request::AttachmentId;

/// Whose a reservation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The content of a reservation's file: id and interface.
    content: Vec<u8>,
    /// The content before interfaces were written: the id alone.
    id: Vec<u8>,
}

impl Owner {
    /// The owner that an attachment is; space around the id does not count.
    pub fn new(container_id: &str, ifname: &str) -> Self {
        let id = container_id.trim();
        Self { content: format!("{id}\r\n{ifname}").into_bytes(), id: id.as_bytes().to_vec() }
    }

    fn form_of(&self, content: &[u8]) -> Option<Form> {
        if content == self.content {
            Some(Form::Whole)
        } else if content == self.id {
            Some(Form::IdOnly)
        } else {
            None
        }
    }
}

/// How a reservation names its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By id and interface.
    Whole,
    /// By the id alone, as plugins did before interfaces were written.
    IdOnly,
}

/// A reservation of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The address.
    pub address: IpAddr,
    /// How the owner is named.
    pub form: Form,
    /// What it is to us.
    pub standing: Standing,
}

/// The reservations of a network, locked.
pub struct Ledger<'a> {
    folder: Folder,
    machine: &'a Machine,
    cache: Option<Cache>,
    /// In the order of addresses.
    records: Vec<Record>,
    /// How many of the first records are in the cache as they are here.
    saved: usize,
    /// Whether the cache fits the folder as it is.
    sealed: bool,
}

/// The file that keeps for the next one what is known; the folder's lock is its lock, too.
struct Cache {
    file: OwnedFd,
    path: PathBuf,
}

impl<'a> Ledger<'a> {
    /// Locks the folder of a network, and learns what is in it.
    pub fn open(path: &Path, missing: Missing, machine: &'a Machine) -> Result<Option<Self>, CniError> {
        let because = |errno: Errno| CniError::internal(format!("cannot lock {}: {errno}", path.display()));
        let Some(folder) = Folder::lock(path, missing).map_err(because)? else { return Ok(None) };
        let cache = open_cache(&folder, machine);
        let cached = cache.as_ref().map(|cache| read_cache(&cache.file, machine)).unwrap_or_default();
        let Cached { records, seal } = cached;
        let sealed = seal.is_some() && seal == folder.changed().ok();
        let saved = if sealed { records.len() } else { 0 };
        let mut ledger = Self { folder, machine, cache, records, saved, sealed };
        if !sealed {
            ledger.look_again()?;
        }
        Ok(Some(ledger))
    }

    /// Lists the folder, and reads the files that are not the known ones.
    pub fn look_again(&mut self) -> Result<(), CniError> {
        let listed = self.folder.list().map_err(|errno| self.failure("list", errno))?;
        let known = |address, file| self.record(address).filter(|record| record.file == file).copied();
        let mut records = Vec::with_capacity(listed.len());
        for (address, file) in listed {
            records.push(known(address, file).unwrap_or_else(|| self.learn(address, file)));
        }
        records.sort_unstable_by_key(|record| record.address);
        if records != self.records {
            self.records = records;
            self.saved = 0;
            self.sealed = false;
        }
        Ok(())
    }

    fn learn(&self, address: IpAddr, file: FileId) -> Record {
        let odd = Record { address, owner: 0, file, standing: Standing::Odd };
        let Ok(Some(content)) = self.folder.read(address) else { return odd };
        let owner = index::fingerprint(&content.owner);
        Record { owner, standing: self.standing(&content), ..odd }
    }

    fn standing(&self, content: &Content) -> Standing {
        match (&content.stamp, &self.machine.boot) {
            _ if content.owner.is_empty() => Standing::Blank,
            (Some(stamp), Some(boot)) if stamp == boot.as_bytes() => Standing::Ours,
            (Some(_), Some(_)) => Standing::Past,
            _ => Standing::Unstamped,
        }
    }

    /// Whether an address has an owner.
    pub fn is_taken(&self, address: IpAddr) -> bool {
        self.record(address).is_some_and(|record| !record.standing.is_free())
    }

    /// The reservations of an owner, as the files themselves say.
    pub fn held_by(&mut self, owner: &Owner) -> Result<Vec<Holding>, CniError> {
        match self.find(owner) {
            Some(holdings) => Ok(holdings),
            // A file says another owner than we know: somebody wrote into it, which no folder's time tells.
            None => {
                self.look_again()?;
                Ok(self.find(owner).unwrap_or_default())
            }
        }
    }

    /// None if a file contradicts what is known.
    fn find(&self, owner: &Owner) -> Option<Vec<Holding>> {
        let prints = [index::fingerprint(&owner.content), index::fingerprint(&owner.id)];
        let mut holdings = Vec::new();
        for record in self.records.iter().filter(|record| prints.contains(&record.owner)) {
            let content = self.folder.read(record.address).ok()??;
            if index::fingerprint(&content.owner) != record.owner {
                return None;
            }
            let holding = |form| Holding { address: record.address, form, standing: record.standing };
            holdings.extend(owner.form_of(&content.owner).map(holding));
        }
        Some(holdings)
    }

    /// Those that are not stamped, the oldest first: what may be freed in need if nothing uses it.
    pub fn unstamped(&self) -> Vec<IpAddr> {
        let mut unstamped: Vec<&Record> =
            self.records.iter().filter(|record| record.standing == Standing::Unstamped).collect();
        unstamped.sort_unstable_by_key(|record| (record.file.changed, record.address));
        unstamped.into_iter().map(|record| record.address).collect()
    }

    /// Those whose owner is none of the valid ones; of an entry without interface the id counts.
    pub fn without_owner(&self, valid: &[AttachmentId]) -> Vec<IpAddr> {
        let prints: HashSet<u64> = valid
            .iter()
            .map(|id| Owner::new(&id.container_id, &id.ifname))
            .flat_map(|owner| [index::fingerprint(&owner.content), index::fingerprint(&owner.id)])
            .collect();
        let is_garbage = |record: &&Record| match record.standing {
            Standing::Odd => false,
            Standing::Blank => true,
            _ => !prints.contains(&record.owner),
        };
        self.records.iter().filter(is_garbage).map(|record| record.address).collect()
    }

    /// The address that a set gave last.
    pub fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        self.folder.last_reserved(set)
    }

    /// Gives an address of a set to an owner; whoever had it has it no more.
    ///
    /// None if the address has a file after all, of which nothing was known.
    pub fn reserve(&mut self, address: IpAddr, owner: &Owner, set: usize) -> Result<Option<()>, CniError> {
        if self.record(address).is_some() {
            self.release(address)?;
        }
        let boot = self.machine.boot.as_deref();
        let file = match self.folder.create(address, &owner.content, boot) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(self.failure(&format!("reserve {address} in"), errno)),
        };
        let standing = if boot.is_some() { Standing::Ours } else { Standing::Unstamped };
        let record = Record { address, owner: index::fingerprint(&owner.content), file, standing };
        if let Err(place) = self.place(address) {
            self.records.insert(place, record);
            self.touched(place);
        }
        if let Err(errno) = self.folder.set_last_reserved(set, address) {
            // The address was not given: it must not stay taken. The first error is the one to tell.
            let _ = self.release(address);
            return Err(self.failure(&format!("note {address} as the last reserved address in"), errno));
        }
        Ok(Some(()))
    }

    /// Frees an address.
    pub fn release(&mut self, address: IpAddr) -> Result<(), CniError> {
        self.folder.remove(address).map_err(|errno| self.failure(&format!("release {address} in"), errno))?;
        if let Ok(place) = self.place(address) {
            self.records.remove(place);
            self.touched(place);
        }
        Ok(())
    }

    /// Writes down what is known, for the next one. Without it the next one only has to read more.
    pub fn close(self) {
        match &self.cache {
            // With the last container goes what was only there for others.
            Some(cache) if self.records.is_empty() => drop(rustix::fs::unlink(&cache.path)),
            Some(cache) if !self.sealed => self.write_down(&cache.file),
            _ => {}
        }
    }

    fn write_down(&self, cache: &OwnedFd) {
        let (bytes, offset) = index::encode_records(&self.records, self.saved);
        // In this order: whenever we are killed, what is written does not fit the folder's time.
        let Ok(()) = write_at(cache, &bytes, offset) else { return };
        let Ok(Some(seal)) = self.folder.mark() else { return };
        let boot = self.machine.boot.as_deref().unwrap_or_default();
        let _ = write_at(cache, &index::encode_header(self.records.len(), seal, boot), 0);
    }

    fn record(&self, address: IpAddr) -> Option<&Record> {
        self.place(address).ok().and_then(|place| self.records.get(place))
    }

    fn place(&self, address: IpAddr) -> Result<usize, usize> {
        self.records.binary_search_by_key(&address, |record| record.address)
    }

    fn touched(&mut self, place: usize) {
        self.saved = self.saved.min(place);
        self.sealed = false;
    }

    fn failure(&self, what: &str, errno: Errno) -> CniError {
        CniError::internal(format!("cannot {what} {}: {errno}", self.folder.path().display()))
    }
}

/// The cache of a folder; none if it cannot be had.
fn open_cache(folder: &Folder, machine: &Machine) -> Option<Cache> {
    let (device, inode) = folder.identity().ok()?;
    let network = folder.path().file_name().unwrap_or_default().to_string_lossy();
    // By identity: one path can be two folders, in two mount namespaces that share /run.
    let path = machine.run.join(format!("{network}-{device:x}-{inode:x}"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let file = match open() {
        Err(Errno::NOENT) => {
            DirBuilder::new().recursive(true).mode(0o755).create(&machine.run).ok()?;
            open().ok()?
        }
        outcome => outcome.ok()?,
    };
    Some(Cache { file, path })
}

fn read_cache(cache: &OwnedFd, machine: &Machine) -> Cached {
    let size = rustix::fs::fstat(cache).map_or(0, |stat| usize::try_from(stat.st_size).unwrap_or_default());
    let mut bytes = vec![0; size];
    let length = rustix::io::pread(cache, &mut bytes, 0).unwrap_or_default();
    index::decode(bytes.get(..length).unwrap_or_default(), machine.boot.as_deref().unwrap_or_default())
}
