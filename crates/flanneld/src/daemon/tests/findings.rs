//! A finding is the same wherever it is told.

use fake_kernel::Fake;
use flannel_plan::finding::{Code, Finding};
use flannel_plan::state::Key;
use serde_json::json;

use super::super::*;
use super::memory::*;
use super::stage::*;

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
