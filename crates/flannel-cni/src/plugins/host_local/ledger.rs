//! The reservations of a network: takes addresses and owners, gives who has what. The files of the folder alone are
//! the truth; they are read once, under the lock.

use std::net::IpAddr;
use std::path::Path;

use rustix::io::Errno;

use super::folder::{Content, Folder, Missing};
use super::machine::Machine;
use crate::error::{CniError, OrInternal};
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
        match content {
            content if content == self.content => Some(Form::Whole),
            content if content == self.id => Some(Form::IdOnly),
            _ => None,
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

/// What a reservation is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not stamped: Go's, or ours where nothing could be stamped. Only DEL and GC free it, or need.
    Unstamped,
    /// Ours, of this boot.
    Ours,
    /// Ours, of another boot: no container of that time lives, so it is free.
    Past,
    /// Without an owner: what a crash left of a file. Free, since whoever writes holds the lock.
    Blank,
    /// Not to be read, or no file at all: not free, and not ours to touch.
    Odd,
}

impl Standing {
    fn of(content: Option<&Content>, machine: &Machine) -> Self {
        let Some(content) = content else { return Self::Odd };
        match (&content.stamp, &machine.boot) {
            _ if content.owner.is_empty() => Self::Blank,
            (Some(stamp), Some(boot)) if stamp == boot.as_bytes() => Self::Ours,
            (Some(_), Some(_)) => Self::Past,
            _ => Self::Unstamped,
        }
    }

    /// Whether the address may be given to somebody else.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Past | Self::Blank)
    }
}

/// A reservation of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub address: IpAddr,
    pub form: Form,
    pub standing: Standing,
}

/// A file of the folder, as it was read.
struct Reservation {
    address: IpAddr,
    content: Content,
    standing: Standing,
}

/// The reservations of a network, locked.
pub struct Ledger<'a> {
    pub folder: Folder,
    machine: &'a Machine,
    /// In the order of addresses.
    reservations: Vec<Reservation>,
}

impl<'a> Ledger<'a> {
    /// Locks the folder of a network, and reads what is in it.
    pub fn open(path: &Path, missing: Missing, machine: &'a Machine) -> Result<Option<Self>, CniError> {
        let locked = Folder::lock(path, missing).or_internal(format_args!("cannot lock {}", path.display()));
        let Some(folder) = locked? else { return Ok(None) };
        folder.remove_index(&machine.run);
        let mut ledger = Self { folder, machine, reservations: Vec::new() };
        ledger.reload()?;
        Ok(Some(ledger))
    }

    /// Reads the files of the folder again: what this ledger changed, and what others changed without the lock.
    pub fn reload(&mut self) -> Result<(), CniError> {
        let listed = self.folder.list().map_err(|errno| self.failure("list", errno))?;
        let reservation = |(address, content): (IpAddr, Option<Content>)| {
            let standing = Standing::of(content.as_ref(), self.machine);
            Reservation { address, content: content.unwrap_or_default(), standing }
        };
        self.reservations = listed.into_iter().map(reservation).collect();
        self.reservations.sort_unstable_by_key(|reservation| reservation.address);
        Ok(())
    }

    /// Whether an address has an owner.
    pub fn is_taken(&self, address: IpAddr) -> bool {
        self.find(address).is_some_and(|reservation| !reservation.standing.is_free())
    }

    /// The reservations of an owner.
    pub fn held_by(&self, owner: &Owner) -> Vec<Holding> {
        let holding = |Reservation { address, content, standing }: &Reservation| {
            Some(Holding { address: *address, form: owner.form_of(&content.owner)?, standing: *standing })
        };
        self.reservations.iter().filter_map(holding).collect()
    }

    /// Those that are not stamped, the oldest first: what may be freed in need if nothing uses it.
    pub fn unstamped(&self) -> Vec<IpAddr> {
        let unstamped = |reservation: &&Reservation| reservation.standing == Standing::Unstamped;
        let mut unstamped: Vec<&Reservation> = self.reservations.iter().filter(unstamped).collect();
        unstamped.sort_unstable_by_key(|reservation| (reservation.content.modified, reservation.address));
        unstamped.into_iter().map(|reservation| reservation.address).collect()
    }

    /// Those whose owner is none of the valid ones; of an entry without interface the id counts.
    pub fn without_owner(&self, valid: &[AttachmentId]) -> Vec<IpAddr> {
        let valid: Vec<Owner> = valid.iter().map(|id| Owner::new(&id.container_id, &id.ifname)).collect();
        let is_garbage = |reservation: &&Reservation| match reservation.standing {
            Standing::Odd => false,
            Standing::Blank => true,
            _ => !valid.iter().any(|owner| owner.form_of(&reservation.content.owner).is_some()),
        };
        self.reservations.iter().filter(is_garbage).map(|reservation| reservation.address).collect()
    }

    /// Gives an address of a set to an owner; whoever had it has it no more.
    ///
    /// None if the address has a file after all, of which nothing was known.
    pub fn reserve(&self, address: IpAddr, owner: &Owner, set: usize) -> Result<Option<()>, CniError> {
        if self.find(address).is_some() {
            self.release(address)?;
        }
        match self.folder.create(address, &owner.content, self.machine.boot.as_deref()) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(self.failure(&format!("reserve {address} in"), errno)),
        }
        if let Err(errno) = self.folder.set_last_reserved(set, address) {
            // The address was not given: it must not stay taken. The first error is the one to tell.
            let _ = self.release(address);
            return Err(self.failure(&format!("note {address} as the last reserved address in"), errno));
        }
        Ok(Some(()))
    }

    /// Frees an address.
    pub fn release(&self, address: IpAddr) -> Result<(), CniError> {
        self.folder.remove(address).map_err(|errno| self.failure(&format!("release {address} in"), errno))
    }

    fn find(&self, address: IpAddr) -> Option<&Reservation> {
        let at = self.reservations.binary_search_by_key(&address, |reservation| reservation.address).ok()?;
        self.reservations.get(at)
    }

    fn failure(&self, what: &str, errno: Errno) -> CniError {
        CniError::internal(format!("cannot {what} {}: {errno}", self.folder.path().display()))
    }
}
