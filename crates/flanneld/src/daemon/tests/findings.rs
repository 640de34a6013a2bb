//! A finding is the same wherever it is told.

use fake_kernel::Fake;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use flannel_plan::finding::{Code, Finding};
use flannel_plan::state::Key;
use serde_json::json;

use super::super::*;
use super::memory::*;
use super::stage::*;
use crate::watching::{self, Named};

fn written(finding: &Finding) -> serde_json::Value {
    serde_json::to_value(finding).unwrap()
}

#[test]
fn a_lease_that_is_ignored_has_one_code_in_the_report_and_the_metrics_and_one_sentence_everywhere() {
    let mut stage = Stage::ready();
    let thief = Lease { subnets: peer(2).subnets, ..peer(4) };
    stage.store.say(|snapshot| snapshot.peers.push(Arc::new(thief)));
    stage.listen();
    stage.wait(Duration::from_secs(1));
    let cause = "10.244.2.0/24 overlaps the lease of worker2, which was here first";
    let text = "lease of worker4 (10.244.2.0/24) is ignored";
    let finding = Finding::new(Code::LeaseOverlaps, "10.244.2.0/24", text).because(cause);
    let report = stage.report();
    assert_eq!(stage.notes(), std::slice::from_ref(&finding.text));
    assert_eq!((&report["notes"], &report["reasons"]), (&json!([finding.text]), &json!([])));
    assert_eq!(report["findings"], json!([written(&finding)]));
    assert_eq!(stage.findings(), [("FL-0315".to_owned(), 1)]);
    stage.store.say(|snapshot| _ = snapshot.peers.pop());
    stage.listen();
    stage.wait(Duration::from_secs(1));
    assert_eq!(stage.report()["findings"], json!([]));
    assert_eq!(stage.findings(), []);
}

#[test]
fn what_keeps_a_node_from_being_ready_is_told_to_the_store_in_the_same_sentence() {
    let store = Memory::of(VXLAN, Some(own_lease()), &[]);
    let mut kernel: Fake = host();
    kernel.refuses.insert(Key::Link("flannel.1".parse().unwrap()), denied());
    let mut stage = Stage::start(kernel, store);
    stage.wait(Duration::from_secs(1));
    let report = stage.report();
    let finding: Finding = serde_json::from_value(report["findings"][0].clone()).unwrap();
    assert_eq!((finding.code, finding.object.as_str()), (Code::MissingCapability, "link flannel.1"));
    assert_eq!(finding.cause.as_deref(), Some(DENIED));
    assert_eq!((&stage.reasons()[0], &report["reasons"][0]), (&finding.text, &json!(finding.text)));
    assert_eq!(stage.store.heard(), Some(flannel_leases::Readiness::NotReady(finding.text)));
    assert_eq!(stage.findings(), [("FL-0105".to_owned(), 1)]);
}

/// What /readyz, the metrics and the report say of the one finding that there is.
fn standing(stage: &Stage) -> (Vec<String>, Vec<(String, u64)>, serde_json::Value) {
    (stage.notes(), stage.findings(), stage.report()["notes"].clone())
}

fn nothing() -> (Vec<String>, Vec<(String, u64)>, serde_json::Value) {
    (vec![], vec![], json!([]))
}

#[test]
fn a_watch_that_failed_is_told_until_it_is_back() {
    let mut stage = Stage::ready();
    let (is_broken, (opening, opened)) = (Arc::new(AtomicBool::new(true)), channel());
    let breaks = Arc::clone(&is_broken);
    let open = move || if breaks.load(Ordering::Relaxed) { Err("no memory") } else { Ok(()) };
    let named = Named { name: "kernel-watch", without: "drift is repaired once a minute only" };
    let failures = stage.health.metrics.watch_failures.clone();
    watching::keep(named, failures, stage.bell.clone(), open, move |()| {
        opening.send(()).unwrap();
        std::thread::park(); // nothing happens any more
        Ok(())
    });
    let soon = Instant::now() + Duration::from_secs(60);
    while stage.notes().is_empty() && Instant::now() < soon {
        stage.wait(Duration::from_secs(1));
    }
    stage.wait(Duration::from_secs(1));
    let text = "drift is repaired once a minute only until the watch is back: no memory";
    assert_eq!(standing(&stage), (vec![text.to_owned()], vec![("FL-0114".to_owned(), 1)], json!([text])));
    is_broken.store(false, Ordering::Relaxed);
    opened.recv_timeout(Duration::from_secs(60)).unwrap();
    stage.wait(Duration::from_secs(1));
    stage.wait(Duration::from_secs(1));
    assert_eq!(standing(&stage), nothing());
}

#[test]
fn files_that_cannot_be_written_are_told_until_they_can() {
    let mut stage = Stage::ready();
    stage.wait(Duration::from_secs(60));
    let name = format!("{}/subnet.env.snapshot.json", stage.folder.display());
    let name = name.trim_start_matches('/').replace('/', "-");
    let places = ["state.json".to_owned(), name].map(|name| stage.folder.join(name));
    for place in &places {
        fs::remove_file(place).unwrap();
        fs::create_dir(place).unwrap();
    }
    stage.store.say(|snapshot| _ = snapshot.peers.pop());
    stage.listen();
    stage.wait(Duration::from_secs(60));
    stage.wait(Duration::from_secs(60));
    let why = "Is a directory (os error 21)";
    let unwritten = format!("cannot write the state report: {why}");
    let unkept =
        format!("what the store says cannot be kept: a start without the store will wait for it: {why}");
    assert_eq!(stage.notes(), [unwritten, unkept.clone()]);
    assert_eq!(stage.findings(), [("FL-0326".to_owned(), 1), ("FL-0512".to_owned(), 1)]);
    places.iter().for_each(|place| fs::remove_dir(place).unwrap());
    stage.wait(Duration::from_secs(60));
    assert_eq!(stage.report()["notes"], json!([unkept]), "what is read was written");
    stage.wait(Duration::from_secs(60));
    stage.wait(Duration::from_secs(1));
    assert_eq!(standing(&stage), nothing());
}
