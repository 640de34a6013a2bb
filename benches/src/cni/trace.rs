//! Where the time of one ADD goes, as `strace` tells it: the kernel's answers over netlink, locks, and the rest.
//! The times hold what `strace` itself adds to every call, so they are for comparing, and the numbers of calls count.

use std::fs;
use std::time::Duration;

use anyhow::Context;

use super::chain::{CROWD, Contender, Pod, Ports, at_once, run};
use super::node;
use crate::figure::Figure;

const FILE: &str = "/run/strace";
/// Netlink is the only thing that a plugin says over sockets.
const NETLINK: [&str; 6] = ["sendto", "sendmsg", "recvfrom", "recvmsg", "recvmmsg", "socket"];

/// What is told of every call: its name, and the system calls that count.
const PARTS: [(&str, Option<&[&str]>); 3] =
    [("in the kernel", None), ("netlink", Some(&NETLINK)), ("lock", Some(&["flock"]))];
const ROUNDS: usize = 9;

/// How long the parts of a call took, in seconds, and of how many system calls each consists.
type Parts = [(f64, usize); PARTS.len()];

/// Follows the calls for one pod with a host port, and the lock among many pods; the fastest of some rounds counts.
pub(super) fn measure(contender: &Contender) -> anyhow::Result<Vec<Figure>> {
    node::make_pods((0..CROWD).map(|number| Pod::new(number).id))?;
    // The first pod brings the bridge and what all share.
    let (first, pod) = (Pod::new(0), Pod::new(1));
    let ports = Ports::One("nftables");
    contender.add(&first, ports)?;
    let mut fastest = cycle(contender, &pod, ports)?;
    for _ in 1..ROUNDS {
        for ((_, fastest), (_, parts)) in fastest.iter_mut().zip(cycle(contender, &pod, ports)?) {
            for (fastest, part) in fastest.iter_mut().zip(parts) {
                *fastest = if part.0 < fastest.0 { part } else { *fastest };
            }
        }
    }
    contender.del(&first, ports)?;
    let figure = |call: &str, part: &str, (time, number): (f64, usize)| {
        let note = format!("least of {ROUNDS}, {number} system calls, by strace");
        Figure::new(format!("{call}: {part}"), time * 1e3, "ms").note(note)
    };
    let of_call = |(call, parts): &(String, Parts)| {
        let named = PARTS.iter().zip(*parts);
        named.map(|((part, _), sum)| figure(call, part, sum)).collect::<Vec<_>>()
    };
    let mut figures: Vec<Figure> = fastest.iter().flat_map(of_call).collect();
    figures.push(lock_in_a_crowd(contender)?);
    Ok(figures)
}

/// Attaches and detaches a pod; the parts of each call by its name.
fn cycle(contender: &Contender, pod: &Pod, ports: Ports) -> anyhow::Result<Vec<(String, Parts)>> {
    let (result, parts) = followed(contender, "ADD", "flannel", pod, &contender.flannel())?;
    let mut all = vec![("ADD of flannel".to_owned(), parts)];
    let result = serde_json::from_slice(&result)?;
    let steps = [
        ("ADD", "portmap", contender.portmap(pod, ports, Some(&result))),
        ("DEL", "portmap", contender.portmap(pod, ports, None)),
        ("DEL", "flannel", contender.flannel()),
    ];
    for (verb, plugin, config) in steps {
        let (_, parts) = followed(contender, verb, plugin, pod, &config)?;
        all.push((format!("{verb} of {plugin}"), parts));
    }
    Ok(all)
}

/// How long ADDs that come at once wait for each other's lock.
fn lock_in_a_crowd(contender: &Contender) -> anyhow::Result<Figure> {
    let file = |pod: &Pod| format!("{FILE}-{}", pod.id);
    at_once(|pod| {
        let strace = ["strace", "-f", "-T", "-qqq", "-e", "trace=flock", "-o", &file(pod)];
        run(&mut contender.call_under(&strace, "ADD", "flannel", pod)?, &contender.flannel()).map(drop)
    })?;
    let mut times = Vec::new();
    for pod in (0..CROWD).map(Pod::new) {
        let text = fs::read_to_string(file(&pod))?;
        times.extend(text.lines().filter_map(read_line).map(|(_, time)| Duration::from_secs_f64(time)));
    }
    at_once(|pod| contender.del(pod, Ports::None).map(drop))?;
    Ok(Figure::median(format!("{CROWD} ADDs at once: lock"), times))
}

fn followed(
    contender: &Contender,
    verb: &str,
    plugin: &str,
    pod: &Pod,
    config: &serde_json::Value,
) -> anyhow::Result<(Vec<u8>, Parts)> {
    let strace = ["strace", "-f", "-T", "-qqq", "-o", FILE];
    let (answer, _) =
        run(&mut contender.call_under(&strace, verb, plugin, pod)?, config).context("strace is needed")?;
    let text = fs::read_to_string(FILE)?;
    let calls: Vec<(&str, f64)> = text.lines().filter_map(read_line).collect();
    let sum = |names: Option<&[&str]>| {
        let counts = |name: &str| names.is_none_or(|names| names.contains(&name));
        let times = calls.iter().filter(|(name, _)| counts(name)).map(|(_, time)| time);
        (times.clone().sum(), times.count())
    };
    Ok((answer, PARTS.map(|(_, names)| sum(names))))
}

/// The name of a call, and how long it took.
fn read_line(line: &str) -> Option<(&str, f64)> {
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim_start().split_once('(')?;
    let (_, time) = rest.rsplit_once('<')?;
    Some((name, time.strip_suffix('>')?.parse().ok()?))
}
