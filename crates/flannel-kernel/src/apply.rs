//! Applies changes: addresses, neighbours, FDB entries and routes in batches, the rest one by one.

use flannel_plan::diff::Change;
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::LinkFact;
use flannel_plan::state::{Item, Link};
use rustix::io::Errno;

use crate::error::{ApplyError, Failure};
use crate::netlink::{MOST_IN_A_CHUNK, NetlinkError, Outbox, Socket};
use crate::{address, batch, file, link, neighbour, route, sysctl};

/// The devices that an observation found in its scope, and those that were made since: their names and indexes.
pub(crate) type Known = Vec<(LinkName, u32)>;

/// One pass over a list of changes.
pub(crate) struct Applying<'a> {
    socket: &'a mut Socket,
    known: &'a mut Known,
    indexes: Vec<(LinkName, Presence)>,
    outbox: Outbox,
    /// The place of the change that each request in the outbox is for, and which errors of it matter.
    places: Vec<(usize, Matters)>,
    failures: Vec<Failure>,
}

/// Where the device of a name is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    At(u32),
    Absent,
    /// Another device has the name than the one that was observed.
    Exchanged,
}

/// Which errors of a request make its change a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matters {
    Every,
    /// Nothing to remove is as good as removed.
    AllButAbsence,
    /// The request only prepares the next one, which will tell.
    None,
}

impl Matters {
    fn includes(self, why: &NetlinkError) -> bool {
        match self {
            Self::Every => true,
            Self::AllButAbsence => !why.says_absent(),
            Self::None => false,
        }
    }
}

impl<'a> Applying<'a> {
    pub(crate) fn new(socket: &'a mut Socket, known: &'a mut Known) -> Self {
        let (outbox, places, failures) = (Outbox::default(), Vec::new(), Vec::new());
        Self { socket, known, indexes: Vec::new(), outbox, places, failures }
    }

    pub(crate) fn all(mut self, changes: &[Change]) -> Vec<Failure> {
        for (place, change) in changes.iter().enumerate() {
            if fits_a_batch(change) {
                if let Err(why) = self.add_to_batch(place, change) {
                    self.fail(change, why);
                }
                // A replace may need two requests.
                if self.outbox.len() + 2 > MOST_IN_A_CHUNK {
                    self.send(changes);
                }
            } else {
                self.send(changes);
                if let Err(why) = self.one(change) {
                    self.fail(change, why);
                }
            }
        }
        self.send(changes);
        self.failures
    }

    fn fail(&mut self, change: &Change, why: ApplyError) {
        self.failures.push(Failure { change: change.clone(), why });
    }

    fn add_to_batch(&mut self, place: usize, change: &Change) -> Result<(), ApplyError> {
        let (item, removes) = match change {
            Change::Create(item) | Change::Replace { to: item, .. } => (item, false),
            Change::Remove(item) => (item, true),
        };
        let link = match item.link() {
            None => None,
            Some(name) => match self.presence(name).map_err(|why| ApplyError::refused(change, why))? {
                Presence::At(index) => Some(index),
                Presence::Absent | Presence::Exchanged if removes => return Ok(()), // what was on it went with it
                Presence::Absent => return Err(ApplyError::no_device(change, name)),
                Presence::Exchanged => return Err(ApplyError::exchanged(change, name)),
            },
        };
        if must_go_first(change) {
            write_remove(&mut self.outbox, item, link);
            self.places.push((place, Matters::None));
        }
        if removes {
            write_remove(&mut self.outbox, item, link);
        } else {
            write_create(&mut self.outbox, item, link);
        }
        self.places.push((place, if removes { Matters::AllButAbsence } else { Matters::Every }));
        Ok(())
    }

    fn send(&mut self, changes: &[Change]) {
        let outcome = batch::send(self.socket, &mut self.outbox);
        match outcome {
            Ok(all) => {
                for refusal in all {
                    let (place, matters) = self.places[refusal.place];
                    if matters.includes(&refusal.why) {
                        self.try_again(&changes[place], refusal.why);
                    }
                }
            }
            Err(why) => {
                let places = std::mem::take(&mut self.places);
                for (place, _) in places.into_iter().filter(|(_, matters)| *matters != Matters::None) {
                    let change = &changes[place];
                    self.fail(change, ApplyError::refused(change, why.clone()));
                }
            }
        }
        self.outbox.clear();
        self.places.clear();
    }

    /// Some routes can be made in a longer way; all else has failed.
    fn try_again(&mut self, change: &Change, why: NetlinkError) {
        if let Change::Create(Item::Route(route)) | Change::Replace { to: Item::Route(route), .. } = change
            && route::needs_a_stepping_stone(route, &why)
            && let Some(name) = route.link
            && let Ok(Presence::At(link)) = self.presence(name)
            && route::create_by_a_stepping_stone(self.socket, route, link).is_ok()
        {
            return;
        }
        self.fail(change, ApplyError::refused(change, why));
    }

    fn one(&mut self, change: &Change) -> Result<(), ApplyError> {
        let because = |why| ApplyError::refused(change, why);
        match (change.item(), change) {
            (Item::Link(link), Change::Create(_)) => self.create_link(change, link),
            (Item::Link(to), Change::Replace { from: Item::Link(from), .. }) => {
                self.replace_link(change, from, to)
            }
            (Item::Link(link), Change::Remove(_)) => self.remove_link(change, link),
            (Item::Sysctl(_), Change::Remove(_)) => Ok(()), // a setting always has a value; ours is as good as any
            (Item::Sysctl(sysctl), _) => match sysctl.link() {
                Some(name) if self.presence(name).map_err(because)? == Presence::Exchanged => {
                    Err(ApplyError::exchanged(change, name))
                }
                _ => sysctl::set(&sysctl.path, &sysctl.value).map_err(because),
            },
            (Item::File(file), Change::Remove(_)) => file::remove(file).map_err(because),
            (Item::File(file), _) => file::write(file).map_err(because),
            (Item::Link(_) | Item::Rules(_), _)
            | (Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_) | Item::Route(_), _) => {
                Err(ApplyError::unknown(change))
            }
        }
    }

    fn create_link(&mut self, change: &Change, link: &Link) -> Result<(), ApplyError> {
        self.indexes.clear();
        if !link.kind.is_made_here() {
            return Err(ApplyError::unknown(change));
        }
        let lower = match link.kind.lower() {
            None => 0,
            Some(name) => match self.presence(name).map_err(|why| ApplyError::refused(change, why))? {
                Presence::At(index) => index,
                Presence::Absent | Presence::Exchanged => return Err(ApplyError::no_device(change, name)),
            },
        };
        let made = link::create(self.socket, link, lower);
        self.forget(link.name);
        let index = made.map_err(|why| self.why_no_link(change, link, why))?;
        self.known.push((link.name, index));
        Ok(())
    }

    fn replace_link(&mut self, change: &Change, from: &Link, to: &Link) -> Result<(), ApplyError> {
        // A device of a kind that we never make is not ours to delete, whatever its name is.
        if !from.kind.is_made_here() {
            return Err(ApplyError::name_taken(change, from));
        }
        if from.kind.must_be_rebuilt(&to.kind) {
            self.remove_link(change, from)?;
            return self.create_link(change, to);
        }
        let Some(index) = self.same(change, from)? else {
            return Err(ApplyError::no_device(change, from.name));
        };
        link::alter(self.socket, index, from, to).map_err(|why| self.why_no_link(change, to, why))
    }

    fn remove_link(&mut self, change: &Change, link: &Link) -> Result<(), ApplyError> {
        let Some(index) = self.same(change, link)? else { return Ok(()) };
        self.forget(link.name);
        link::remove(self.socket, index).map_err(|why| ApplyError::refused(change, why))
    }

    /// The index of the device that was observed; none if it is gone. Somebody may have put another one in its place
    /// since: that is not ours to change.
    fn same(&mut self, change: &Change, link: &Link) -> Result<Option<u32>, ApplyError> {
        let found = link::find(self.socket, link.name).map_err(|why| ApplyError::refused(change, why))?;
        let Some(LinkFact { index, link: found, .. }) = found else { return Ok(None) };
        if found.kind.name() != link.kind.name() {
            return Err(ApplyError::name_taken(change, &found));
        }
        let is_same = found.alias == link.alias && found.kind.excludes(&link.kind);
        if is_same { Ok(Some(index)) } else { Err(ApplyError::exchanged(change, link.name)) }
    }

    fn forget(&mut self, name: LinkName) {
        self.indexes.clear();
        self.known.retain(|(known, _)| *known != name);
    }

    /// Looks for the culprit, so that the error can name it.
    fn why_no_link(&mut self, change: &Change, link: &Link, why: NetlinkError) -> ApplyError {
        if !why.is(Errno::EXIST) && !why.is(Errno::ADDRINUSE) {
            return ApplyError::refused(change, why);
        }
        let others = link::dump(self.socket).unwrap_or_default();
        let of_that_name = others.iter().find(|other| other.link.name == link.name);
        match of_that_name.filter(|_| why.is(Errno::EXIST)) {
            Some(found) => ApplyError::name_taken(change, &found.link),
            None => link::culprit(link, &why, &others).unwrap_or_else(|| ApplyError::refused(change, why)),
        }
    }

    /// Where a device is; asked once a pass, and again after a device was made or deleted.
    fn presence(&mut self, name: LinkName) -> Result<Presence, NetlinkError> {
        if let Some((_, presence)) = self.indexes.iter().find(|(known, _)| *known == name) {
            return Ok(*presence);
        }
        let known = self.known.iter().find(|(known, _)| *known == name).map(|(_, index)| *index);
        let presence = match link::find(self.socket, name)?.map(|fact| fact.index) {
            None => Presence::Absent,
            Some(index) if known.is_some_and(|known| known != index) => Presence::Exchanged,
            Some(index) => Presence::At(index),
        };
        self.indexes.push((name, presence));
        Ok(presence)
    }
}

fn fits_a_batch(change: &Change) -> bool {
    match change.item() {
        Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_) | Item::Route(_) => true,
        Item::Link(_) | Item::Sysctl(_) | Item::Rules(_) | Item::File(_) => false,
    }
}

/// Whether an entry must be removed before it is made anew, in the same batch.
///
/// The kernel never puts a mark on an entry that was made without one, and does not turn an entry of several
/// ways, or of a group of them, into one of a single way; it answers the first with success.
fn must_go_first(change: &Change) -> bool {
    let Change::Replace { from: Item::Fdb(from), to: Item::Fdb(to) } = change else { return false };
    from.destination.is_none() || (to.marked && !from.marked)
}

fn write_create(outbox: &mut Outbox, item: &Item, link: Option<u32>) {
    match (item, link) {
        (Item::Address(address), Some(link)) => address::create(outbox, address, link),
        (Item::Fdb(entry), Some(link)) => neighbour::create_fdb(outbox, entry, link),
        (Item::Neighbour(neighbour), Some(link)) => neighbour::create_neighbour(outbox, neighbour, link),
        (Item::Route(route), link) => route::create(outbox, route, link),
        (Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_), None) => {}
        (Item::Link(_) | Item::Sysctl(_) | Item::Rules(_) | Item::File(_), _) => {}
    }
}

fn write_remove(outbox: &mut Outbox, item: &Item, link: Option<u32>) {
    match (item, link) {
        (Item::Address(address), Some(link)) => address::remove(outbox, address.address, link),
        (Item::Fdb(entry), Some(link)) => neighbour::remove_fdb(outbox, entry, link),
        (Item::Neighbour(neighbour), Some(link)) => neighbour::remove_neighbour(outbox, neighbour, link),
        (Item::Route(route), link) => route::remove(outbox, route, link),
        (Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_), None) => {}
        (Item::Link(_) | Item::Sysctl(_) | Item::Rules(_) | Item::File(_), _) => {}
    }
}
