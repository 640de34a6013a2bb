//! host-local: gives each container an address of each set of ranges, and keeps that in a folder as Go's
//! plugin of this name does, so that either can go on where the other stopped.
//!
//! Takes a request, gives addresses, routes and name servers. Everything is decided under one lock, from what
//! is known of all sets, before anything is written.

mod choose;
mod config;
mod folder;
mod ledger;
mod machine;
mod range;

use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;

use self::choose::{NoAddress, Question, choose, share_requested};
use self::config::Config;
use self::folder::Missing;
use self::ledger::{Form, Holding, Ledger, Owner};
use self::range::{Range, RangeSet};
use crate::error::{CniError, OrInternal, code};
use crate::request::Request;
use crate::result::{Attachment, Dns, Ip};

pub use self::machine::{InUseError, Machine};

/// How often a choice is made anew when the folder turns out to be another than we knew.
const MOST_CHOICES: usize = 3;

/// Reads the configuration.
pub(super) fn read(request: &Request) -> Result<(), CniError> {
    Config::read(request).map(drop)
}

/// Gives a container its addresses.
pub fn add(machine: &Machine, request: &Request) -> Result<Attachment, CniError> {
    let config = Config::read(request)?;
    let dns = config.resolv_conf.as_deref().map(name_servers).transpose()?.unwrap_or_default();
    let gone = || CniError::internal(format!("cannot make {}", config.folder.display()));
    let mut ledger = Ledger::open(&config.folder, Missing::Make, machine)?.ok_or_else(gone)?;
    let owner = Owner::new(&request.container_id, &request.ifname);
    let given = Giving { machine, request, config: &config, owner: &owner }.all(&mut ledger)?;
    let ips = given.into_iter().map(|(address, range)| result_ip(address, &range)).collect();
    Ok(Attachment { ips, routes: config.routes, dns, ..Attachment::default() })
}

/// Frees the addresses of a container. What is wrong with ranges or requested is told, as Go does, but keeps no address.
pub fn del(machine: &Machine, request: &Request) -> Result<(), CniError> {
    let folder = config::folder(request)?;
    let freed = folder.map_or(Ok(()), |folder| free(machine, request, &folder));
    freed.and(Config::read(request).map(drop))
}

fn free(machine: &Machine, request: &Request, folder: &Path) -> Result<(), CniError> {
    let Some(ledger) = Ledger::open(folder, Missing::Leave, machine)? else { return Ok(()) };
    let holdings = ledger.held_by(&Owner::new(&request.container_id, &request.ifname));
    // An entry with the id alone may be another interface's: only where nothing names ours it is ours.
    let form = holdings.iter().map(|holding| holding.form).find(|form| *form == Form::Whole);
    let form = form.unwrap_or(Form::IdOnly);
    let ours = holdings.iter().filter(|holding| holding.form == form).map(|holding| holding.address);
    release_all(&ledger, ours)
}

/// Says whether a container has the addresses that it should have.
pub fn check(machine: &Machine, request: &Request) -> Result<(), CniError> {
    let config = Config::read(request)?;
    let previous = request.prev_result()?.unwrap_or_default();
    let failure = format!("host-local: Failed to find address added by container {}", request.container_id);
    let ledger = Ledger::open(&config.folder, Missing::Leave, machine)?;
    let Some(ledger) = ledger else { return Err(CniError::internal(failure)) };
    let holdings = ledger.held_by(&Owner::new(&request.container_id, &request.ifname));
    let held: Vec<IpAddr> = valid(&holdings).collect();
    if held.is_empty() {
        return Err(CniError::internal(failure));
    }
    let expected = previous.ips.iter().map(|ip| ip.address.addr());
    let expected = expected.filter(|address| config.sets.iter().any(|set| set.range_of(*address).is_some()));
    match expected.into_iter().find(|address| !held.contains(address)) {
        None => Ok(()),
        Some(address) => Err(CniError::internal(failure)
            .details(format!("prevResult says {address}, reserved are {}", listed(&held)))),
    }
}

/// Frees the addresses that belong to no container.
pub fn gc(machine: &Machine, request: &Request) -> Result<(), CniError> {
    // Not said is not "none": without a list nothing may go.
    let (Some(folder), Some(valid)) = (config::folder(request)?, request.valid_attachments()?) else {
        return Ok(());
    };
    let Some(ledger) = Ledger::open(&folder, Missing::Leave, machine)? else { return Ok(()) };
    release_all(&ledger, ledger.without_owner(&valid).into_iter())
}

/// Says whether every set has an address to give.
pub fn status(machine: &Machine, request: &Request) -> Result<(), CniError> {
    // As Go: without a part of ours there is nothing to say.
    if config::folder(request)?.is_none() {
        return Ok(());
    }
    let config = Config::read(request)?;
    let Some(ledger) = Ledger::open(&config.folder, Missing::Leave, machine)? else { return Ok(()) };
    let nobody = Owner::new("", "");
    let giving = Giving { machine, request, config: &config, owner: &nobody };
    let unmet = config.sets.iter().enumerate().find_map(|(place, set)| {
        let question = Question { requested: None, last: ledger.folder.last_reserved(place), held: &[] };
        giving.choose(&ledger, set, question).err()
    });
    unmet.map_or(Ok(()), |error| Err(CniError { code: code::NOT_AVAILABLE, ..error }))
}

/// Giving a container its addresses: what all steps need to know.
struct Giving<'a> {
    machine: &'a Machine,
    request: &'a Request,
    config: &'a Config,
    owner: &'a Owner,
}

impl Giving<'_> {
    fn all(&self, ledger: &mut Ledger<'_>) -> Result<Vec<(IpAddr, Range)>, CniError> {
        for _ in 0..MOST_CHOICES {
            let chosen = self.choose_all(ledger)?;
            if self.take_all(ledger, &chosen)?.is_some() {
                return Ok(chosen);
            }
            ledger.reload()?;
        }
        let text = format!("{} changes without its lock", self.config.folder.display());
        Err(CniError::internal(text))
    }

    /// One address of each set, none of them taken yet.
    fn choose_all(&self, ledger: &Ledger<'_>) -> Result<Vec<(IpAddr, Range)>, CniError> {
        let held = self.held(ledger)?;
        let (shares, left) = share_requested(&self.config.sets, &self.config.requested);
        let mut chosen = Vec::with_capacity(shares.len());
        for (place, (set, requested)) in self.config.sets.iter().zip(shares).enumerate() {
            let last = if requested.is_none() { ledger.folder.last_reserved(place) } else { None };
            let choice = self.choose(ledger, set, Question { requested, last, held: &held });
            let context = format_args!("failed to allocate for range {place}");
            chosen.push(choice.map_err(|error| error.context(context))?);
        }
        if left.is_empty() {
            return Ok(chosen);
        }
        Err(CniError::internal(format!("failed to allocate all requested IPs: {}", listed(&left))))
    }

    /// What the container has; what it had in another boot is let go, lest it would have two.
    fn held(&self, ledger: &Ledger<'_>) -> Result<Vec<IpAddr>, CniError> {
        let holdings = ledger.held_by(self.owner);
        let past = holdings.iter().filter(|holding| holding.standing.is_free());
        release_all(ledger, past.map(|holding| holding.address))?;
        Ok(valid(&holdings).collect())
    }

    /// The address that a set gives; an exhausted set gives up what nobody can be using.
    fn choose(
        &self,
        ledger: &Ledger<'_>,
        set: &RangeSet,
        question: Question<'_>,
    ) -> Result<(IpAddr, Range), CniError> {
        match choose(set, question, |address| ledger.is_taken(address)) {
            Ok(choice) => Ok(choice),
            Err(why) => {
                let error = why.explain(set, &self.request.container_id);
                if why == NoAddress::Exhausted { self.free_in_need(ledger, set, error) } else { Err(error) }
            }
        }
    }

    /// The oldest reservation without a stamp that nothing uses: Go's, of a container that nobody freed.
    fn free_in_need(
        &self,
        ledger: &Ledger<'_>,
        set: &RangeSet,
        exhausted: CniError,
    ) -> Result<(IpAddr, Range), CniError> {
        let choice = |address: IpAddr| set.range_of(address).map(|range| (address, *range));
        let mut old: Vec<(IpAddr, Range)> = ledger.unstamped().into_iter().filter_map(choice).collect();
        old.retain(|(address, range)| *address != range.gateway);
        if old.is_empty() {
            return Err(exhausted);
        }
        match (self.machine.in_use)(self.request.netns.as_deref()) {
            Ok(used) => old.into_iter().find(|(address, _)| !used.contains(address)).ok_or(exhausted),
            Err(why) => Err(exhausted.details(format!("nor can any be freed: {why}"))),
        }
    }

    /// Takes all or none; none if one of them has a file of which nothing was known.
    fn take_all(&self, ledger: &Ledger<'_>, chosen: &[(IpAddr, Range)]) -> Result<Option<()>, CniError> {
        for (place, (address, _)) in chosen.iter().enumerate() {
            let outcome = ledger.reserve(*address, self.owner, place);
            if !matches!(outcome, Ok(Some(()))) {
                let taken = chosen.iter().take(place).map(|(address, _)| *address);
                let _ = release_all(ledger, taken); // the first error is the one to tell
                return outcome;
            }
        }
        Ok(Some(()))
    }
}

/// Goes on after a failure, and tells all.
fn release_all(ledger: &Ledger<'_>, addresses: impl Iterator<Item = IpAddr>) -> Result<(), CniError> {
    let failures: Vec<String> =
        addresses.filter_map(|address| ledger.release(address).err()).map(|error| error.msg).collect();
    if failures.is_empty() { Ok(()) } else { Err(CniError::internal(failures.join(";"))) }
}

fn valid(holdings: &[Holding]) -> impl Iterator<Item = IpAddr> {
    holdings.iter().filter(|holding| !holding.standing.is_free()).map(|holding| holding.address)
}

fn name_servers(path: &Path) -> Result<Dns, CniError> {
    let text = flannel_files::read(path, flannel_files::MOST_BY_HAND);
    let text = text.or_internal(format_args!("cannot read resolvConf {}", path.display()))?;
    Ok(Dns::from_resolv_conf(&String::from_utf8_lossy(&text)))
}

fn result_ip(address: IpAddr, range: &Range) -> Ip {
    let address = IpNet::new(address, range.subnet.prefix_len()).unwrap_or(IpNet::from(address));
    Ip { interface: None, address, gateway: Some(range.gateway) }
}

fn listed(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
}
