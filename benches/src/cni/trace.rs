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

/// Follows the calls for one pod with a host port, and the lock among many pods.
pub(super) fn measure(contender: &Contender) -> anyhow::Result<Vec<Figure>> {
    node::make_pods((0..CROWD).map(|number| Pod::new(number).id))?;
    let ports = Ports::One("nftables");
    // The first pod brings the bridge and what all share.
    let (first, pod) = (Pod::new(0), Pod::new(1));
    contender.add(&first, ports)?;
    let (result, mut figures) = followed(contender, "ADD", "flannel", &pod, &contender.flannel())?;
    let result = serde_json::from_slice(&result)?;
    let steps = [
        ("ADD", "portmap", contender.portmap(&pod, ports, Some(&result))),
        ("DEL", "portmap", contender.portmap(&pod, ports, None)),
        ("DEL", "flannel", contender.flannel()),
    ];
    for (verb, plugin, config) in steps {
        figures.extend(followed(contender, verb, plugin, &pod, &config)?.1);
    }
    contender.del(&first, ports)?;
    figures.push(lock_in_a_crowd(contender)?);
    Ok(figures)
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
    at_once(|pod| contender.del(pod, Ports::None))?;
    Ok(Figure::median(format!("{CROWD} ADDs at once: lock"), times))
}

fn followed(
    contender: &Contender,
    verb: &str,
    plugin: &str,
    pod: &Pod,
    config: &serde_json::Value,
) -> anyhow::Result<(Vec<u8>, Vec<Figure>)> {
    let strace = ["strace", "-f", "-T", "-qqq", "-o", FILE];
    let answer =
        run(&mut contender.call_under(&strace, verb, plugin, pod)?, config).context("strace is needed")?;
    let text = fs::read_to_string(FILE)?;
    let calls: Vec<(&str, f64)> = text.lines().filter_map(read_line).collect();
    let sum = |names: &[&str]| {
        calls.iter().filter(|(name, _)| names.contains(name)).fold(0.0, |sum, (_, time)| sum + time)
    };
    let count = |names: &[&str]| calls.iter().filter(|(name, _)| names.contains(name)).count();
    let what = format!("{verb} of {plugin}");
    let all = calls.iter().map(|(_, time)| time).sum::<f64>();
    let figure = |part: &str, time: f64, number| {
        Figure::new(format!("{what}: {part}"), time * 1e3, "ms").note(format!("{number} calls, by strace"))
    };
    let figures = vec![
        figure("in the kernel", all, calls.len()),
        figure("netlink", sum(&NETLINK), count(&NETLINK)),
        figure("lock", sum(&["flock"]), count(&["flock"])),
    ];
    Ok((answer, figures))
}

/// The name of a call, and how long it took.
fn read_line(line: &str) -> Option<(&str, f64)> {
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim_start().split_once('(')?;
    let (_, time) = rest.rsplit_once('<')?;
    Some((name, time.strip_suffix('>')?.parse().ok()?))
}
