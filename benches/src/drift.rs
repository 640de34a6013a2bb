//! How long somebody else's change lasts: one object of each kind after the other, 20 times each.

use std::time::{Duration, Instant};

use flannel_plan::diff::Change;
use flannel_plan::mac::Mac;
use flannel_plan::state::{Item, Link, PROTOCOL_BOOT};

use crate::cluster::{Cluster, Eye};
use crate::figure::Figure;

const TIMES: usize = 20;
/// What the issue promises for all of them.
const GOAL_MS: f64 = 100.0;

/// What to change to break something; the number tells which of several objects.
type Breakage = fn(&Eye, usize) -> Vec<Change>;

/// Breaks and waits.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let kinds: [(&str, Breakage); 9] = [
        ("a route", |eye, n| removal(eye, "route", n)),
        ("a wrong route", wrong_route),
        ("an FDB entry", |eye, n| removal(eye, "fdb", n)),
        ("a neighbour", |eye, n| removal(eye, "neighbour", n)),
        ("an address", |eye, n| removal(eye, "address", n)),
        ("the MAC", |eye, _| altered_link(eye, |link| link.mac = Some(Mac([2, 9, 9, 9, 9, 9])))),
        ("the MTU", |eye, _| altered_link(eye, |link| link.mtu = 1400)),
        ("link down", |eye, _| altered_link(eye, |link| link.up = false)),
        ("flannel.1 itself", |eye, n| removal(eye, "link", n)),
    ];
    let mut figures = Vec::new();
    for (name, breakage) in kinds {
        // A daemon of its own for each kind: ten repairs of one object within ten seconds would be a fight.
        let mut times = Vec::new();
        while times.len() < TIMES {
            let cluster = Cluster::up(u32::try_from(TIMES)?)?;
            let rounds = if is_one_object(name) { 5 } else { TIMES };
            times.extend(cluster.inside(|eye| rounds_of(eye, breakage, rounds))?);
        }
        figures.push(Figure::median(format!("repair of {name}"), times).at_most(GOAL_MS));
    }
    Ok(figures)
}

fn is_one_object(name: &str) -> bool {
    !["a route", "a wrong route", "an FDB entry", "a neighbour"].contains(&name)
}

fn rounds_of(eye: &mut Eye, breakage: Breakage, rounds: usize) -> anyhow::Result<Vec<Duration>> {
    let round = |n: usize| {
        let changes = breakage(eye, n);
        eye.meddle(&changes)?;
        eye.until_healed(Instant::now())
    };
    (0..rounds).map(round).collect()
}

fn removal(eye: &Eye, kind: &str, n: usize) -> Vec<Change> {
    let items: Vec<&Item> = eye.desired.iter().filter(|item| item.key().kind() == kind).collect();
    let item = items.get(n % items.len().max(1));
    item.map(|item| Change::Remove((*item).clone())).into_iter().collect()
}

/// The next peer's route, led to somebody else.
fn wrong_route(eye: &Eye, n: usize) -> Vec<Change> {
    let removal = removal(eye, "route", n);
    let Some(Change::Remove(Item::Route(right))) = removal.first() else { return Vec::new() };
    let mut wrong = *right;
    wrong.via = Some(std::net::Ipv4Addr::new(11, 99, 99, 0).into());
    wrong.protocol = PROTOCOL_BOOT;
    vec![Change::Replace { from: Item::Route(*right), to: Item::Route(wrong) }]
}

fn altered_link(eye: &Eye, alter: impl Fn(&mut Link)) -> Vec<Change> {
    let links =
        eye.desired.iter().filter_map(|item| if let Item::Link(link) = item { Some(link) } else { None });
    links
        .map(|link| {
            let mut altered = link.clone();
            alter(&mut altered);
            Change::Replace { from: Item::Link(link.clone()), to: Item::Link(altered) }
        })
        .collect()
}
