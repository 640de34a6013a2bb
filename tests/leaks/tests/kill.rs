//! `kill -9` at any moment of ADD and DEL. Whatever the runtime does next, nothing may be left, no address may be
//! held twice, and the pods that live may notice nothing.

use std::time::{Duration, Instant};

use leak_tests::{
    Answer, Call, Chance, DUAL_STACK, Firewall, Network, Node, Pod, RECORDS, Scan, Step, on_a_node,
};

/// How many calls are killed while they run, with each firewall.
const KILLS: usize = 250;
/// How many pods live meanwhile.
const LIVING: u16 = 3;

#[test]
fn nothing_is_left_of_250_calls_that_were_killed_with_nftables() {
    on_a_node(|node| Massacre::begin(node, Firewall::Nftables, 1).go_on());
}

#[test]
fn nothing_is_left_of_250_calls_that_were_killed_with_iptables() {
    on_a_node(|node| Massacre::begin(node, Firewall::Iptables, 2).go_on());
}

/// What the runtime does after a call was killed.
#[derive(Clone, Copy, Debug)]
enum Aftermath {
    /// It deletes the pod.
    Del,
    /// It deletes the pod and does not remember what ADD gave.
    DelWithoutResult,
    /// It takes the namespace away first.
    DelWithoutNamespace,
    /// The node lost power as well, and a file is empty.
    DelWithEmptyRecord,
    /// It adds the pod again, with success, and deletes it.
    AddAndDel,
    /// It forgets the pod, whose namespace is gone, and collects garbage.
    Gc,
}

const AFTERMATHS: [Aftermath; 6] = [
    Aftermath::Del,
    Aftermath::DelWithoutResult,
    Aftermath::DelWithoutNamespace,
    Aftermath::DelWithEmptyRecord,
    Aftermath::AddAndDel,
    Aftermath::Gc,
];

/// A program of iptables that begins when it is let: it says so, and waits for a word.
const SLOW: &str =
    "#!/bin/sh\ntouch /run/slow/begun\nread word < /run/slow/word\nexec /usr/sbin/iptables-restore \"$@\"\n";

#[test]
fn what_a_killed_add_started_is_waited_for_and_taken_away() {
    on_a_node(|node| {
        let network = Network::new(Firewall::Iptables);
        network.warm_up(node);
        node.make_netns([VICTIM]);
        let peace = node.scan();
        let mut pod = victim();
        pod.result = Some(network.call(node, "ADD", Step::Flannel, &pod).run().result());
        let folder = slow_iptables();
        let add = network.call(node, "ADD", Step::Portmap, &pod).set("PATH", folder).start();
        node.wait("iptables-restore to begin", || {
            if std::fs::exists("/run/slow/begun").unwrap() { Ok(()) } else { Err(String::new()) }
        });
        add.kill();
        assert!(add.wait().was_killed());
        let mut del = network.call(node, "DEL", Step::Portmap, &pod).start();
        node.wait("DEL to end or to wait", || {
            if del.has_ended_or_waits() { Ok(()) } else { Err(String::new()) }
        });
        std::fs::write("/run/slow/word", "go\n").unwrap();
        del.wait().nothing();
        network.call(node, "DEL", Step::Flannel, &pod).run().nothing();
        std::fs::remove_dir_all("/run/slow").unwrap();
        node.expect(&peace, "iptables-restore outlived its plugin");
    });
}

/// Makes a folder with the programs of iptables, of which the one that makes rules is slow.
fn slow_iptables() -> &'static str {
    let folder = std::path::Path::new("/run/slow");
    std::fs::create_dir(folder).unwrap();
    for name in ["iptables", "iptables-save"] {
        std::os::unix::fs::symlink(format!("/usr/sbin/{name}"), folder.join(name)).unwrap();
    }
    let restore = folder.join("iptables-restore");
    std::fs::write(&restore, SLOW).unwrap();
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(restore, may_run).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(folder.join("word")).status().unwrap();
    assert!(pipe.success());
    "/run/slow:/usr/sbin:/usr/bin:/sbin:/bin"
}

struct Massacre<'a> {
    node: &'a Node,
    network: Network,
    chance: Chance,
    living: Vec<Pod>,
    /// The node with the living pods and an empty namespace.
    peace: Scan,
    /// How long an undisturbed call takes: ADD and DEL, flannel and portmap.
    usual: [[Duration; 2]; 2],
}

const VERBS: [&str; 2] = ["ADD", "DEL"];
const VICTIM: &str = "victim";

impl<'a> Massacre<'a> {
    fn begin(node: &'a Node, firewall: Firewall, seed: u64) -> Self {
        let network = Network::new(firewall);
        node.set_subnet_env(DUAL_STACK);
        network.warm_up(node);
        let mut living: Vec<Pod> = (1..=LIVING).map(Pod::new).collect();
        node.make_netns(living.iter().map(|pod| &*pod.id).chain([VICTIM]));
        living.iter_mut().for_each(|pod| network.add(node, pod));
        let peace = node.scan();
        peace.expect_each_address_once();
        let usual = usual(node, network);
        node.expect(&peace, "the calls were timed");
        Self { node, network, chance: Chance::new(seed), living, peace, usual }
    }

    fn go_on(mut self) {
        let mut killed = 0;
        let mut rounds = 0;
        while killed < KILLS {
            rounds += 1;
            assert!(rounds < 4 * KILLS, "most calls end before they are killed: {killed} of {rounds}");
            let (verb, place) = (self.chance.below(2), self.chance.below(2));
            let aftermath = *self.chance.one_of(&AFTERMATHS);
            let (victim, hit) = self.kill(verb, place);
            killed += usize::from(hit);
            let what = format!(
                "round {rounds}: {} of {:?} killed, then {aftermath:?}",
                VERBS[verb],
                Step::of(VERBS[verb])[place]
            );
            self.follow(victim, aftermath);
            self.node.expect(&self.peace, &what);
        }
        self.living.iter().for_each(|pod| self.network.check(self.node, pod));
        println!("{killed} calls were killed in {rounds} rounds");
    }

    /// Calls plugins as a runtime does, and kills the one at `place` at some moment, if it is not faster.
    fn kill(&mut self, verb: usize, place: usize) -> (Pod, bool) {
        let mut pod = victim();
        if VERBS[verb] == "DEL" {
            self.network.add(self.node, &mut pod);
            self.node.scan().expect_each_address_once();
        }
        let steps = Step::of(VERBS[verb]);
        for step in &steps[..place] {
            let answer = self.network.call(self.node, VERBS[verb], *step, &pod).run();
            assert_eq!(answer.status, Some(0), "{answer:?}");
            remember(&mut pod, &answer);
        }
        let usual = self.usual[verb][place];
        let moment = usual.mul_f64(f64::from(u32::try_from(self.chance.below(1050)).unwrap()) / 1000.0);
        let call = self.network.call(self.node, VERBS[verb], steps[place], &pod);
        let answer = killed_after(&call, moment, self.chance.below(2) == 0);
        if !answer.was_killed() {
            assert_eq!(answer.status, Some(0), "{answer:?}");
            remember(&mut pod, &answer);
        }
        (pod, answer.was_killed())
    }

    fn follow(&self, mut victim: Pod, aftermath: Aftermath) {
        let (node, network) = (self.node, self.network);
        match aftermath {
            Aftermath::Del => network.del(node, &victim),
            Aftermath::DelWithoutResult => {
                victim.result = None;
                network.del(node, &victim);
            }
            Aftermath::DelWithoutNamespace => {
                node.remove_netns(VICTIM);
                network.del(node, &victim);
                node.make_netns([VICTIM]);
            }
            Aftermath::DelWithEmptyRecord => {
                let record = format!("{RECORDS}/{VICTIM}");
                if std::fs::exists(&record).unwrap() {
                    std::fs::write(record, "").unwrap();
                }
                network.del(node, &victim);
            }
            Aftermath::AddAndDel => {
                network.del(node, &victim);
                victim.result = None;
                network.add(node, &mut victim);
                node.scan().expect_each_address_once();
                network.check(node, &victim);
                network.del(node, &victim);
            }
            Aftermath::Gc => {
                node.remove_netns(VICTIM);
                network.gc(node, &self.living);
                node.make_netns([VICTIM]);
            }
        }
    }
}

fn victim() -> Pod {
    Pod { id: VICTIM.into(), ..Pod::new(100) }
}

fn remember(pod: &mut Pod, answer: &Answer) {
    if !answer.stdout.is_empty() {
        pod.result = Some(answer.result());
    }
}

/// Starts a call and kills it at a moment: this is no wait for anything, the moment is what is tried.
fn killed_after(call: &Call, moment: Duration, alone: bool) -> Answer {
    let begun = Instant::now();
    let running = call.start();
    std::thread::sleep(moment.saturating_sub(begun.elapsed()));
    if alone {
        running.kill()
    } else {
        running.kill_all()
    }
    running.wait()
}

/// The shortest of several undisturbed calls: a busy machine only makes them longer.
fn usual(node: &Node, network: Network) -> [[Duration; 2]; 2] {
    let mut shortest = [[Duration::MAX; 2]; 2];
    for _ in 0..5 {
        let mut pod = victim();
        for (verb, times) in VERBS.iter().zip(&mut shortest) {
            for (step, time) in Step::of(verb).iter().zip(times) {
                let begun = Instant::now();
                let answer = network.call(node, verb, *step, &pod).run();
                *time = (*time).min(begun.elapsed());
                assert_eq!(answer.status, Some(0), "{answer:?}");
                remember(&mut pod, &answer);
            }
        }
    }
    shortest
}
