//! Peers that change all the time, and what they write: they cost nothing worth speaking of, and nobody else waits.

use std::time::{Duration, Instant};

use cluster_tests::{Cluster, PeerLease, Picture, VXLAN, metrics, readyz, state, wait_until};
use flannel_lab::Node;
use serde_json::json;

/// How long a peer toggles.
const TOGGLING: Duration = Duration::from_secs(4);

/// Waits until a node has a line of this beginning, or has it no more.
fn wait_line(node: &Node, begin: &str, wanted: bool) {
    wait_until(&format!("{begin:?} to be there: {wanted}"), || {
        if Picture::of(node).has(begin) == wanted { Ok(()) } else { Err(node.log()) }
    });
}

/// Another peer, which comes once.
fn other(number: u32) -> PeerLease {
    PeerLease::vxlan(
        &format!("10.244.{}.0-24", 100 + number),
        &format!("other{number}"),
        &format!("10.0.0.{}", 100 + number),
        &format!("0e:00:00:00:02:{number:02x}"),
    )
}

#[test]
fn a_peer_that_toggles_is_followed_once_a_second_and_others_do_not_wait_for_it() {
    let cluster = Cluster::flat("toggling", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let toggling = |mac: &str| PeerLease::vxlan("10.244.7.0-24", "toggling", "10.0.0.77", mac);
    leases.write(&toggling("0e:00:00:00:00:01"));
    cluster.start(&["master1"]);
    let changes = || metrics(node).sum("flannel_changes_total");
    let (before, start) = (changes(), Instant::now());
    let (mut written, mut others) = (0, 0);
    while start.elapsed() < TOGGLING {
        written += 1;
        leases.write(&toggling(&format!("0e:00:00:00:01:{:02x}", written % 200)));
        if start.elapsed() > TOGGLING / 4 * (others + 1) {
            others += 1;
            leases.write(&other(others));
            wait_line(node, &format!("route 10.244.{}.0/24 ", 100 + others), true);
        }
    }
    let (made, seconds) = (changes() - before, start.elapsed().as_secs_f64());
    // A burst of five and one a second, three objects each; and the three of each other peer.
    let most = (5.0 + seconds + 1.0 + f64::from(others)) * 3.0;
    assert!(made <= most, "{made} changes in {seconds:.1} s for {written} words; {most} at most");
    assert!(written > 50, "{written}");

    leases.write(&toggling("0e:00:00:00:00:ff"));
    wait_line(node, "neighbour 10.244.7.0 dev flannel.1 lladdr 0e:00:00:00:00:ff", true);
    leases.remove("10.244.7.0-24");
    wait_line(node, "route 10.244.7.0/24 ", false);
}

#[test]
fn a_peer_that_writes_without_end_fills_no_log_and_moves_no_cursor() {
    let cluster = Cluster::flat("words", 1, VXLAN);
    let (node, leases) = (cluster.node("master1"), cluster.leases());
    let key = "10.244.7.0-24";
    cluster.start(&["master1"]);
    let (before, start) = (node.log().len(), Instant::now());
    for number in 0..10 {
        let name = format!("{number}\u{1b}[2J\u{202e}\n{}", "x".repeat(120_000));
        leases.write(
            &PeerLease::vxlan(key, "wordy", "10.0.0.77", "0e:00:00:00:00:07")
                .with("BackendType", json!(name)),
        );
        wait_until("the last word of the peer to be told", || {
            let lines = readyz(node).1;
            let is_told = |line: &String| line.contains(&format!("\"{number}\u{fffd}[2J"));
            if lines.iter().any(is_told) {
                Ok(())
            } else {
                Err(lines.join("\n").chars().take(2000).collect())
            }
        });
    }
    let log = node.log()[before..].to_owned();
    let told = log.lines().filter(|line| line.contains(key)).count();
    let minutes = usize::try_from(start.elapsed().as_secs() / 60).unwrap();
    assert!(told <= 1 + minutes, "{told} lines: {}", &log[..log.len().min(2000)]);
    assert!(log.len() < 50_000, "{} bytes", log.len());

    let acts = |line: &str| line.chars().any(|c| c.is_control() || c == '\u{202e}');
    let lines = readyz(node).1;
    wait_until("state.json to have the same", || {
        let state = state(node).to_string();
        let is_short = state.len() < 50_000 && state.contains("[2J") && !state.contains("\\u001b");
        if is_short { Ok(()) } else { Err(state.chars().take(2000).collect()) }
    });
    assert!(!lines.iter().any(|line| acts(line) || line.chars().count() > 400), "{lines:?}");
    assert!(!log.lines().any(acts), "{}", &log[..log.len().min(2000)]);
}
