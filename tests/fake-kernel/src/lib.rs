//! A kernel in memory, for tests of what is built upon [`Kernel`].
//!
//! It takes changes as Linux does, and forgets dependents as Linux does: that is what repairs are tested with.

use std::collections::BTreeMap;

use flannel_plan::diff::Change;
use flannel_plan::firewall_backend::{FirewallFacts, FirewallQuery, Translated, Untrack};
use flannel_plan::link_name::LinkName;
use flannel_plan::observation::{AddressFact, LinkFact, Observation, RouteFact, Scope};
use flannel_plan::ownership::observes_entries_of;
use flannel_plan::rules::edit::{applied, edits};
use flannel_plan::rules::found::RuleObservation;
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::rules::{RuleTable, TableId};
use flannel_plan::state::{Address, Item, Key, Link, Route};
use rustix::io::Errno;

use flannel_kernel::{ApplyError, Failure, Kernel, NetlinkError, ObserveError};

/// A kernel in memory.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    /// All that there is; a test may change it, as somebody else would.
    pub now: Observation,
    /// The objects whose changes are refused, and why.
    pub refuses: BTreeMap<Key, NetlinkError>,
    /// Every change that was made, in order.
    pub made: Vec<Change>,
    /// Whether something is more urgent than an observation that gives way.
    pub urgent: bool,
    /// Whose rules were looked for last.
    rule_scope: RuleScope,
}

impl Kernel for Fake {
    fn observe(&mut self, scope: &Scope) -> Result<Observation, ObserveError> {
        if self.urgent && scope.options.gives_way {
            let why = NetlinkError { errno: Errno::CANCELED, message: None };
            return Err(ObserveError { what: "the kernel".to_owned(), why });
        }
        let firewall = self.firewall_facts(&scope.options.firewall);
        if scope.options.without_objects {
            return Ok(Observation { firewall, ..Observation::default() });
        }
        let mut observation = Observation { firewall, ..self.now.clone() };
        match scope.system {
            Some(_) => self.rule_scope = scope.rules(),
            None => observation.rules = RuleObservation::default(),
        }
        let in_scope: Vec<_> = observation
            .links
            .iter()
            .filter(|fact| observes_entries_of(scope, &fact.link))
            .map(|fact| fact.link.name)
            .collect();
        observation.neighbours.retain(|neighbour| in_scope.contains(&neighbour.link));
        observation.fdb.retain(|entry| in_scope.contains(&entry.link));
        observation.sysctls.retain(|sysctl| scope.sysctls.contains(&sysctl.path));
        observation.files.retain(|file| scope.files.contains(&file.path));
        Ok(observation)
    }

    fn apply(&mut self, changes: &[Change]) -> Vec<Failure> {
        let failures = changes.iter().filter_map(|change| {
            let why = self.make(change).err()?;
            Some(Failure { change: change.clone(), why })
        });
        failures.collect()
    }
}

impl Fake {
    /// A kernel in which there is this.
    pub fn new(now: Observation) -> Self {
        Self { now, ..Self::default() }
    }

    /// Removes a device as somebody else would, with all that hangs on it.
    pub fn lose_link(&mut self, name: LinkName) {
        self.now.links.retain(|fact| fact.link.name != name);
        self.forget(name, |_| true);
    }

    /// What is asked of the firewall. What a test does not say of it is harmless: nothing is unreadable or translated.
    fn firewall_facts(&self, query: &FirewallQuery) -> FirewallFacts {
        let host = &self.now.firewall;
        let tools = query.tools.as_ref().map(|_| host.tools.unwrap_or_default());
        let mut facts = FirewallFacts { tools, ..FirewallFacts::default() };
        if !query.suspects.is_empty() {
            let unreadable = host.unreadable.iter().flatten().filter(|table| query.suspects.contains(table));
            facts.unreadable = Some(unreadable.cloned().collect());
        }
        for (_, family) in &query.untrack {
            let found = host.untrack.get(*family).copied().unwrap_or(Untrack::Impossible);
            *facts.untrack.slot(*family) = Some(found);
        }
        for (family, _) in &query.ports {
            let found = host.translated.get(*family).cloned().unwrap_or(Translated::No);
            *facts.translated.slot(*family) = Some(found);
        }
        facts
    }

    fn make(&mut self, change: &Change) -> Result<(), ApplyError> {
        if let Some(why) = self.refuses.get(&change.key()) {
            return Err(ApplyError::refused(change, why.clone()));
        }
        match change {
            Change::Create(item) => self.put(change, item)?,
            Change::Replace { from: Item::Link(from), to: Item::Link(to) } => self.alter(from, to),
            Change::Replace { to: Item::Rules(table), .. } => self.put_rules(&table.id, Some(table)),
            Change::Replace { from, to } => {
                self.take(from);
                self.put(change, to)?;
            }
            Change::Remove(item) => self.take(item),
        }
        self.made.push(change.clone());
        Ok(())
    }

    fn put(&mut self, change: &Change, item: &Item) -> Result<(), ApplyError> {
        let is_there = |name: LinkName| self.now.links.iter().any(|fact| fact.link.name == name);
        if let Some(missing) = item.link().filter(|name| !is_there(*name)) {
            return Err(ApplyError::no_device(change, missing));
        }
        if let Item::Route(Route { via: Some(via), .. }) = item
            && self.now.addresses.iter().any(|fact| fact.address.addr() == *via)
        {
            let message = Some("Nexthop has invalid gateway.".into());
            return Err(ApplyError::refused(change, NetlinkError { errno: Errno::INVAL, message }));
        }
        self.drop_item(item);
        match item.clone() {
            Item::Link(link) => self.put_link(*link),
            Item::Address(address) => self.now.addresses.push(fact_of(address)),
            Item::Sysctl(sysctl) => self.now.sysctls.push(*sysctl),
            Item::Fdb(entry) => self.now.fdb.push(entry),
            Item::Neighbour(neighbour) => self.now.neighbours.push(neighbour),
            Item::Route(route) => self.now.routes.push(RouteFact { route, metric: 0, source: None }),
            Item::Rules(table) => self.put_rules(&table.id, Some(&table)),
            Item::File(file) => self.now.files.push(*file),
        }
        Ok(())
    }

    fn put_rules(&mut self, id: &TableId, want: Option<&RuleTable>) {
        let tables = &mut self.now.rules.tables;
        let at = tables.iter().position(|table| table.id == *id);
        let found = at.map(|at| tables.swap_remove(at));
        let steps = edits(&self.rule_scope, want, found.as_ref());
        tables.extend(applied(found.as_ref(), id, &steps));
    }

    fn put_link(&mut self, link: Link) {
        let index = self.now.links.iter().map(|fact| fact.index).max().unwrap_or_default() + 1;
        let running = link.up;
        self.now.links.push(LinkFact { index, link, running, loopback: false });
    }

    fn alter(&mut self, from: &Link, to: &Link) {
        if from.kind.must_be_rebuilt(&to.kind) {
            self.lose_link(from.name);
            return self.put_link(to.clone());
        }
        for fact in self.now.links.iter_mut().filter(|fact| fact.link.name == to.name) {
            fact.link = to.clone();
            fact.running = to.up;
        }
        if !to.up {
            self.forget(to.name, |item| match item {
                Item::Address(address) => address.address.addr().is_ipv6(),
                Item::Route(_) | Item::Neighbour(_) => true,
                Item::Link(_) | Item::Sysctl(_) | Item::Fdb(_) | Item::Rules(_) | Item::File(_) => false,
            });
        } else if from.mac != to.mac {
            self.forget(to.name, |item| matches!(item, Item::Neighbour(_)));
        }
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Link(link) => self.lose_link(link.name),
            Item::Rules(table) => self.put_rules(&table.id, None),
            Item::Address(address) => {
                self.drop_item(item);
                self.forget_without_address(address);
            }
            Item::Sysctl(_) | Item::Fdb(_) | Item::Neighbour(_) | Item::Route(_) | Item::File(_) => {
                self.drop_item(item);
            }
        }
    }

    /// With the last IPv4 address of a device its IPv4 routes and neighbours go; IPv6 has the link-local one.
    fn forget_without_address(&mut self, address: &Address) {
        let is_last =
            !self.now.addresses.iter().any(|fact| fact.link == address.link && fact.address.addr().is_ipv4());
        if address.address.addr().is_ipv4() && is_last {
            self.forget(address.link, |item| match item {
                Item::Route(route) => route.destination.addr().is_ipv4(),
                Item::Neighbour(neighbour) => neighbour.address.is_ipv4(),
                Item::Link(_) | Item::Address(_) | Item::Sysctl(_) | Item::Fdb(_) => false,
                Item::Rules(_) | Item::File(_) => false,
            });
        }
    }

    fn drop_item(&mut self, item: &Item) {
        let now = &mut self.now;
        match item {
            Item::Link(link) => now.links.retain(|fact| fact.link.name != link.name),
            Item::Address(gone) => {
                now.addresses.retain(|fact| (fact.link, fact.address) != (gone.link, gone.address));
            }
            Item::Sysctl(gone) => now.sysctls.retain(|sysctl| sysctl.path != gone.path),
            Item::Fdb(gone) => now.fdb.retain(|entry| (entry.link, entry.mac) != (gone.link, gone.mac)),
            Item::Neighbour(gone) => {
                now.neighbours.retain(|other| (other.link, other.address) != (gone.link, gone.address));
            }
            // A route with a metric is another object than the one without.
            Item::Route(gone) => {
                now.routes.retain(|fact| fact.metric != 0 || fact.route.destination != gone.destination);
            }
            Item::Rules(_) => {} // what is there is not forgotten, only changed
            Item::File(gone) => now.files.retain(|file| file.path != gone.path),
        }
    }

    /// Forgets what hangs on a device, where `goes` says so.
    fn forget(&mut self, name: LinkName, goes: impl Fn(&Item) -> bool) {
        let stays = |item: Item| item.link() != Some(name) || !goes(&item);
        let now = &mut self.now;
        now.addresses.retain(|fact| stays(Item::Address(Address { link: fact.link, address: fact.address })));
        now.fdb.retain(|entry| stays(Item::Fdb(*entry)));
        now.neighbours.retain(|neighbour| stays(Item::Neighbour(*neighbour)));
        now.routes.retain(|fact| stays(Item::Route(fact.route)));
    }
}

fn fact_of(address: Address) -> AddressFact {
    AddressFact {
        link: address.link,
        address: address.address,
        permanent: true,
        temporary: false,
        deprecated: false,
        unusable: false,
    }
}
