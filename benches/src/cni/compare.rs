//! Go's plugins and ours in turns, so that a busy machine disturbs them alike; the faster quarters are compared.

use std::time::{Duration, Instant};

use super::chain::{CROWD, Contender, OURS, Pod, Ports, at_once};
use super::node;
use crate::figure::Figure;

const ROUNDS: usize = 41;
const CROWD_ROUNDS: usize = 9;

/// One thing that is measured of every contender.
struct Race {
    name: &'static str,
    ports: Ports,
    verb: Verb,
    /// How many times as fast as Go's ours must be.
    goal: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Add,
    Del,
}

const NFT: Ports = Ports::One("nftables");
const IPTABLES: Ports = Ports::One("iptables");

const RACES: [Race; 6] = [
    Race { name: "ADD without ports", ports: Ports::None, verb: Verb::Add, goal: Some(8.0) },
    Race { name: "ADD with a host port (nftables)", ports: NFT, verb: Verb::Add, goal: Some(15.0) },
    Race { name: "ADD with a host port (iptables)", ports: IPTABLES, verb: Verb::Add, goal: None },
    Race { name: "DEL without ports", ports: Ports::None, verb: Verb::Del, goal: None },
    // Both plugins make the kernel wait for a grace period; side by side, that is four times as fast as Go.
    Race { name: "DEL with a host port (nftables)", ports: NFT, verb: Verb::Del, goal: Some(4.0) },
    Race { name: "DEL with a host port (iptables)", ports: IPTABLES, verb: Verb::Del, goal: None },
];
const CROWD_GOAL: f64 = 5.0;

/// Measures all contenders; the first is Go's.
pub(super) fn measure(contenders: &[Contender]) -> anyhow::Result<Vec<Figure>> {
    node::make_pods((0..CROWD).map(|number| Pod::new(number).id))?;
    let mut figures = starts(contenders)?;
    let ports = [Ports::None, NFT, IPTABLES];
    let times = ports.map(|ports| cycles(contenders, ports));
    let [none, nft, iptables] = times;
    let (none, nft, iptables) = (none?, nft?, iptables?);
    for race in &RACES {
        let of_ports = match race.ports {
            Ports::None => &none,
            NFT => &nft,
            _ => &iptables,
        };
        let verb = usize::from(race.verb == Verb::Del);
        let times = of_ports.iter().map(|times| times[verb].clone()).collect();
        figures.extend(compared(race.name, contenders, times, race.goal));
    }
    let times = crowds(contenders)?;
    figures.extend(compared(&format!("{CROWD} ADDs at once"), contenders, times, Some(CROWD_GOAL)));
    Ok(figures)
}

/// What starting a program costs: below this no plugin can be.
fn starts(contenders: &[Contender]) -> anyhow::Result<Vec<Figure>> {
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (contender, times) in contenders.iter().zip(&mut times) {
            times.push(contender.version(&Pod::new(0))?);
        }
    }
    let named = |(contender, times): (&Contender, Vec<_>)| {
        Figure::quartile(format!("start of a plugin (VERSION): {}", contender.name), times)
    };
    Ok(contenders.iter().zip(times).map(named).collect())
}

/// The times of ADD and DEL of every contender, whose turns alternate.
fn cycles(contenders: &[Contender], ports: Ports) -> anyhow::Result<Vec<[Vec<Duration>; 2]>> {
    let mut times = vec![[Vec::new(), Vec::new()]; contenders.len()];
    let pod = Pod::new(0);
    // The first pod of all brings the bridge and the shared chains.
    for round in 0..=ROUNDS {
        for (contender, [adds, dels]) in contenders.iter().zip(&mut times) {
            let (add, del) = (contender.add(&pod, ports)?, contender.del(&pod, ports)?);
            if round > 0 {
                adds.push(add);
                dels.push(del);
            }
        }
    }
    Ok(times)
}

/// The wall times of many ADDs at once.
fn crowds(contenders: &[Contender]) -> anyhow::Result<Vec<Vec<Duration>>> {
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..CROWD_ROUNDS {
        for (contender, times) in contenders.iter().zip(&mut times) {
            let begun = Instant::now();
            at_once(|pod| contender.add(pod, Ports::None).map(drop))?;
            times.push(begun.elapsed());
            at_once(|pod| contender.del(pod, Ports::None).map(drop))?;
        }
    }
    Ok(times)
}

/// The times of all, and how many times as fast as the first the others are.
fn compared(
    what: &str,
    contenders: &[Contender],
    times: Vec<Vec<Duration>>,
    goal: Option<f64>,
) -> Vec<Figure> {
    let times: Vec<Figure> = contenders
        .iter()
        .zip(times)
        .map(|(contender, times)| Figure::quartile(format!("{what}: {}", contender.name), times))
        .collect();
    let first = times.first().map_or(f64::NAN, |figure| figure.value);
    let ratios = contenders.iter().zip(&times).skip(1).map(|(contender, time)| {
        let ratio =
            Figure::new(format!("{what}: Go's time by that of {}", contender.name), first / time.value, "x");
        // The program that is shipped has to reach the goal; another C library is there to compare.
        match goal.filter(|_| contender.name == OURS) {
            Some(goal) => ratio.at_least(goal),
            None => ratio,
        }
    });
    let ratios: Vec<Figure> = ratios.collect();
    times.into_iter().chain(ratios).collect()
}
