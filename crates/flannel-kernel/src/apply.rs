//! Applies changes: addresses, neighbours, forwarding entries and routes in batches, the rest one by one.

use flannel_plan::diff::{Change, must_be_rebuilt};
use flannel_plan::link_name::LinkName;
use flannel_plan::state::{Item, Link, LinkKind, Vxlan};
use rustix::io::Errno;

use crate::error::{ApplyError, Failure};
use crate::netlink::{MOST_IN_A_CHUNK, NetlinkError, Outbox, Socket};
use crate::{address, batch, file, link, neighbour, route, sysctl};

/// The devices that a look found in its scope, and those that were made since: their names and numbers.
pub(crate) type Known = Vec<(LinkName, u32)>;

/// One pass over a list of changes.
pub(crate) struct Applying<'a> {
    socket: &'a mut Socket,
    known: &'a mut Known,
    indexes: Vec<(LinkName, Place)>,
    outbox: Outbox,
    /// The place of the change that each request in the outbox is for, and which refusals of it matter.
    places: Vec<(usize, Matters)>,
    failures: Vec<Failure>,
}

/// Where the device of a name is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    At(u32),
    Absent,
    /// Another device has the name than the one that was looked at.
    Exchanged,
}

/// Which refusals of a request make its change a failure.
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

    /// Applies all changes and returns the failures.
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
            Some(name) => match self.place(name).map_err(|why| ApplyError::refused(change, why))? {
                Place::At(index) => Some(index),
                Place::Absent | Place::Exchanged if removes => return Ok(()), // what was on it went with it
                Place::Absent => return Err(ApplyError::no_device(change, name)),
                Place::Exchanged => return Err(ApplyError::exchanged(change, name)),
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
            && let Ok(Place::At(link)) = self.place(name)
            && route::create_by_a_stepping_stone(self.socket, route, link).is_ok()
        {
            return;
        }
        self.fail(change, ApplyError::refused(change, why));
    }

    fn one(&mut self, change: &Change) -> Result<(), ApplyError> {
        let because = |why| ApplyError::refused(change, why);
        match change {
            Change::Create(Item::Sysctl(sysctl)) | Change::Replace { to: Item::Sysctl(sysctl), .. } => {
                match sysctl.link() {
                    Some(name) if self.place(name).map_err(because)? == Place::Exchanged => {
                        Err(ApplyError::exchanged(change, name))
                    }
                    _ => sysctl::write(sysctl).map_err(because),
                }
            }
            Change::Create(Item::File(file)) | Change::Replace { to: Item::File(file), .. } => {
                file::write(file).map_err(because)
            }
            Change::Remove(Item::File(file)) => file::remove(file).map_err(because),
            Change::Remove(Item::Sysctl(_)) => Ok(()), // a setting always has a value; ours is as good as any
            Change::Create(Item::Link(link)) => self.create_link(change, link),
            Change::Replace { from: Item::Link(from), to: Item::Link(to) } => {
                self.replace_link(change, from, to)
            }
            Change::Remove(Item::Link(link)) => self.remove_link(change, link),
            _ => Err(ApplyError::unknown(change)),
        }
    }

    fn create_link(&mut self, change: &Change, link: &Link) -> Result<(), ApplyError> {
        self.indexes.clear();
        let LinkKind::Vxlan(vxlan) = &link.kind else { return Err(ApplyError::unknown(change)) };
        let parent = match vxlan.parent {
            None => 0,
            Some(name) => match self.place(name).map_err(|why| ApplyError::refused(change, why))? {
                Place::At(index) => index,
                Place::Absent | Place::Exchanged => return Err(ApplyError::no_device(change, name)),
            },
        };
        let made = link::create(self.socket, link, vxlan, parent);
        self.forget(link.name);
        let index = made.map_err(|why| self.why_no_link(change, (link, vxlan), why))?;
        self.known.push((link.name, index));
        Ok(())
    }

    fn replace_link(&mut self, change: &Change, from: &Link, to: &Link) -> Result<(), ApplyError> {
        // A device of a kind that we never make is not ours to delete, whatever its name is.
        if let LinkKind::Other(found) = &from.kind {
            let (verb, found) = (change.verb(), found.clone());
            return Err(ApplyError::NameTaken { verb, name: to.name, found });
        }
        if must_be_rebuilt(from, to) {
            self.remove_link(change, from)?;
            return self.create_link(change, to);
        }
        let LinkKind::Vxlan(vxlan) = &to.kind else { return Err(ApplyError::unknown(change)) };
        let Some(index) = self.same(change, from)? else {
            return Err(ApplyError::no_device(change, from.name));
        };
        link::alter(self.socket, index, from, to).map_err(|why| self.why_no_link(change, (to, vxlan), why))
    }

    fn remove_link(&mut self, change: &Change, link: &Link) -> Result<(), ApplyError> {
        let Some(index) = self.same(change, link)? else { return Ok(()) };
        self.forget(link.name);
        match link::remove(self.socket, index) {
            Err(why) if !why.says_absent() => Err(ApplyError::refused(change, why)),
            _ => Ok(()),
        }
    }

    /// The number of the device that was looked at; none if it is gone. Somebody may have put another one in its place
    /// since: that is not ours to change.
    fn same(&mut self, change: &Change, link: &Link) -> Result<Option<u32>, ApplyError> {
        let found = link::find(self.socket, link.name).map_err(|why| ApplyError::refused(change, why))?;
        match found {
            None => Ok(None),
            Some(found) if kind_name(&found.link) != kind_name(link) => Err(ApplyError::NameTaken {
                verb: change.verb(),
                name: link.name,
                found: kind_name(&found.link).into(),
            }),
            Some(found) if is_same(&found.link, link) => Ok(Some(found.index)),
            Some(_) => Err(ApplyError::exchanged(change, link.name)),
        }
    }

    fn forget(&mut self, name: LinkName) {
        self.indexes.clear();
        self.known.retain(|(known, _)| *known != name);
    }

    /// Looks for the culprit, so that the error can name it.
    fn why_no_link(
        &mut self,
        change: &Change,
        (link, vxlan): (&Link, &Vxlan),
        why: NetlinkError,
    ) -> ApplyError {
        let others = match why.errno {
            Errno::EXIST | Errno::ADDRINUSE => link::dump(self.socket).unwrap_or_default(),
            _ => return ApplyError::refused(change, why),
        };
        let (name, port) = (link.name, vxlan.port);
        if why.is(Errno::EXIST) {
            if let Some(found) = others.iter().find(|other| other.link.name == name) {
                return ApplyError::NameTaken {
                    verb: change.verb(),
                    name,
                    found: kind_name(&found.link).into(),
                };
            }
            let same =
                |other: &Vxlan| (other.vni, other.port) == (vxlan.vni, port) && same_family(other, vxlan);
            return ApplyError::VniTaken { name, vni: vxlan.vni, port, by: vxlan_that(&others, same) };
        }
        let others: Vec<_> =
            others.into_iter().filter(|other| other.link.up && other.link.name != name).collect();
        match vxlan_that(&others, |other| other.port == port && other.gbp != vxlan.gbp) {
            Some(by) => ApplyError::GbpClash { name, gbp: vxlan.gbp, port, by },
            None => ApplyError::PortTaken { name, port },
        }
    }

    /// Where a device is; asked once a pass, and again after a device was made or deleted.
    fn place(&mut self, name: LinkName) -> Result<Place, NetlinkError> {
        if let Some((_, place)) = self.indexes.iter().find(|(known, _)| *known == name) {
            return Ok(*place);
        }
        let known = self.known.iter().find(|(known, _)| *known == name).map(|(_, index)| *index);
        let place = match link::find(self.socket, name)?.map(|fact| fact.index) {
            None => Place::Absent,
            Some(index) if known.is_some_and(|known| known != index) => Place::Exchanged,
            Some(index) => Place::At(index),
        };
        self.indexes.push((name, place));
        Ok(place)
    }
}

/// Whether a device bears the same mark, and is the same as far as that cannot be altered.
fn is_same(found: &Link, link: &Link) -> bool {
    let number = |link: &Link| match &link.kind {
        LinkKind::Vxlan(vxlan) => Some((vxlan.vni, vxlan.port)),
        LinkKind::Other(_) => None,
    };
    found.alias == link.alias && number(found) == number(link)
}

fn vxlan_that(
    links: &[flannel_plan::observation::LinkFact],
    is_it: impl Fn(&Vxlan) -> bool,
) -> Option<LinkName> {
    let found = links.iter().find(|fact| matches!(&fact.link.kind, LinkKind::Vxlan(vxlan) if is_it(vxlan)));
    found.map(|fact| fact.link.name)
}

fn same_family(a: &Vxlan, b: &Vxlan) -> bool {
    let is_v6 = |vxlan: &Vxlan| vxlan.local.is_some_and(|local| local.is_ipv6());
    is_v6(a) == is_v6(b)
}

fn kind_name(link: &Link) -> &str {
    match &link.kind {
        LinkKind::Vxlan(_) => "vxlan",
        LinkKind::Other(kind) => kind,
    }
}

fn fits_a_batch(change: &Change) -> bool {
    let (Change::Create(item) | Change::Remove(item) | Change::Replace { to: item, .. }) = change;
    matches!(item, Item::Address(_) | Item::Fdb(_) | Item::Neighbour(_) | Item::Route(_))
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
        _ => {}
    }
}

fn write_remove(outbox: &mut Outbox, item: &Item, link: Option<u32>) {
    match (item, link) {
        (Item::Address(address), Some(link)) => address::remove(outbox, address.address, link),
        (Item::Fdb(entry), Some(link)) => neighbour::remove_fdb(outbox, entry, link),
        (Item::Neighbour(neighbour), Some(link)) => neighbour::remove_neighbour(outbox, neighbour, link),
        (Item::Route(route), link) => route::remove(outbox, route, link),
        _ => {}
    }
}
