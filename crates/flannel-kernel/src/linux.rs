//! The kernel of this machine behind the [`Kernel`] trait: looks by dumps, applies single changes and batches.

mod host;

use flannel_plan::diff::Change;
use flannel_plan::observation::{Observation, Scope};
use flannel_plan::ownership::{must_know_the_living, observes_entries_of};
use flannel_plan::rules::observed::RuleScope;
use flannel_plan::state::{Item, Key};

use crate::apply::{Applying, Known};
use crate::firewall::rules::Rules;
use crate::netlink::{NetlinkError, Socket};
use crate::{
    ApplyError, Failure, Kernel, ObserveError, Urgent, address, file, link, living, neighbour, route, sysctl,
};

/// The kernel of this machine, in one network namespace.
///
/// It belongs to the namespace of the thread that opened it, and must be used on a thread of that namespace:
/// kernel settings are looked up by thread.
pub struct Linux {
    socket: Socket,
    /// What observations give way to that are asked to.
    urgent: Option<Urgent>,
    /// For those: a dump that is left in the middle takes its socket along, and this one's port ID is in no notice.
    spare: Option<Socket>,
    /// How much was found at the last look: the next one finds about as much.
    last: Sizes,
    known: Known,
    /// The rules, opened by the first who asks for them, and whose they are.
    rules: Option<Rules>,
    rule_scope: RuleScope,
    /// Whether the module of bridges was tried to load.
    tried_module: bool,
}

#[derive(Clone, Copy, Default)]
struct Sizes {
    routes: usize,
    neighbours: usize,
    fdb: usize,
}

impl Linux {
    /// Opens a way to the kernel, in the namespace of this thread.
    pub fn open() -> Result<Self, ObserveError> {
        let socket = Socket::open().map_err(because("a netlink socket"))?;
        let (last, known, rule_scope) = (Sizes::default(), Known::new(), RuleScope::default());
        let (urgent, spare, rules) = (None, None, None);
        Ok(Self { socket, urgent, spare, last, known, rules, rule_scope, tried_module: false })
    }

    /// Lets observations that are asked to give way to what is more urgent do so: then the error
    /// [says so](ObserveError::gave_way).
    pub fn give_way_to(&mut self, urgent: Urgent) {
        self.urgent = Some(urgent);
    }

    /// The port ID of our netlink socket, which notices carry.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    /// The rules of this machine.
    pub fn rules(&mut self) -> &mut Rules {
        self.rules.get_or_insert_with(Rules::open)
    }

    /// Looks at everything but rules. Apart, so that a program that needs no rules does not carry what reads them.
    pub fn observe_without_rules(&mut self, scope: &Scope) -> Result<Observation, ObserveError> {
        let links = link::dump(&mut self.socket).map_err(because("links"))?;
        let names = link::names_of(&links);
        let addresses = address::dump(&mut self.socket, &names).map_err(because("addresses"))?;
        let routes = route::dump(&mut self.socket, &names, self.last.routes).map_err(because("routes"))?;
        let mut observation = Observation { links, addresses, routes, ..Observation::default() };
        self.observe_entries(&mut observation, scope)?;
        observation.sysctls = scope.sysctls.iter().filter_map(|path| sysctl::read(path)).collect();
        observation.files = scope.files.iter().filter_map(|path| file::read(path)).collect();
        if observation.links.iter().any(|fact| must_know_the_living(scope, &fact.link)) {
            observation.living = living::signs();
        }
        let devices = observation.links.iter().filter(|fact| observes_entries_of(scope, &fact.link));
        self.known = devices.map(|fact| (fact.link.name, fact.index)).collect();
        self.last = Sizes {
            routes: observation.routes.len(),
            neighbours: observation.neighbours.len(),
            fdb: observation.fdb.len(),
        };
        Ok(observation)
    }

    fn observe_giving_way(&mut self, scope: &Scope, urgent: Urgent) -> Result<Observation, ObserveError> {
        let mut spare = match self.spare.take() {
            Some(spare) => spare,
            None => Socket::open().map_err(because("a netlink socket"))?,
        };
        spare.give_way_to(urgent);
        std::mem::swap(&mut self.socket, &mut spare);
        let observation = self.observe_without_rules(scope);
        std::mem::swap(&mut self.socket, &mut spare);
        self.spare = observation.is_ok().then_some(spare);
        observation
    }

    /// Makes changes to the tables of the last look.
    fn apply_rules(&mut self, changes: &[Change]) -> Vec<Failure> {
        let scope = self.rule_scope.clone();
        let failures = self.rules().apply(&scope, changes);
        let failed = |change: &Change| {
            let key = change.key();
            let failure = failures.iter().find(|failure| Key::Rules(failure.id.clone()) == key)?;
            let (verb, object, why) = (change.verb(), key.to_string(), failure.why.to_string());
            let why = ApplyError::Rules { verb, object, why, hint: failure.hint.clone() };
            Some(Failure { change: change.clone(), why })
        };
        changes.iter().filter_map(failed).collect()
    }

    /// Adds the neighbours and forwarding entries on the devices of the scope.
    fn observe_entries(&mut self, observation: &mut Observation, scope: &Scope) -> Result<(), ObserveError> {
        let devices = observation.links.iter().filter(|fact| observes_entries_of(scope, &fact.link));
        let devices: Vec<_> = devices.map(|fact| (fact.index, fact.link.name)).collect();
        if devices.is_empty() {
            return Ok(());
        }
        observation.neighbours.reserve_exact(self.last.neighbours);
        observation.fdb.reserve_exact(self.last.fdb);
        for device in devices {
            neighbour::dump_neighbours(&mut self.socket, device, &mut observation.neighbours)
                .map_err(because("neighbours"))?;
            neighbour::dump_fdb(&mut self.socket, device, &mut observation.fdb)
                .map_err(because("forwarding entries"))?;
        }
        Ok(())
    }
}

impl Kernel for Linux {
    fn observe(&mut self, scope: &Scope) -> Result<Observation, ObserveError> {
        let options = &scope.options;
        let mut observation = match self.urgent.clone().filter(|_| options.gives_way) {
            _ if options.without_objects => Observation::default(),
            Some(urgent) => self.observe_giving_way(scope, urgent)?,
            None => self.observe_without_rules(scope)?,
        };
        if let Some(system) = scope.system {
            self.rule_scope = scope.rules();
            observation.rules = self.rules().observe(system);
        }
        observation.firewall = self.firewall_facts(&options.firewall);
        observation.bridge_netfilter = self.bridge_netfilter(&observation, &options.pod_subnets);
        Ok(observation)
    }

    fn apply(&mut self, changes: &[Change]) -> Vec<Failure> {
        let mut failures = Vec::new();
        let is_of_rules = |change: &Change| matches!(change.item(), Item::Rules(_));
        // Rules that are neighbours in the list go together, so that one program does them all.
        for part in changes.chunk_by(|a, b| is_of_rules(a) == is_of_rules(b)) {
            failures.extend(match part.first().is_some_and(is_of_rules) {
                true => self.apply_rules(part),
                false => Applying::new(&mut self.socket, &mut self.known).all(part),
            });
        }
        failures
    }
}

fn because(what: &str) -> impl FnOnce(NetlinkError) -> ObserveError {
    move |why| ObserveError { what: what.to_owned(), why }
}
