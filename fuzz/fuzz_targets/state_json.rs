//! state.json, as the next flanneld and flannelctl find it. What is read and written again reads the same, and
//! whatever inputs it holds, a plan is made of them or refused.
#![no_main]

use flannel_plan::desired::plan;
use flannel_plan::diff::diff;
use flannel_plan::report::NodeReport;
use flannel_plan::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(report) = serde_json::from_str::<NodeReport<'_>>(text) else { return };
    let again = serde_json::to_string(&report).expect("a report can be written");
    assert_eq!(serde_json::from_str::<NodeReport<'_>>(&again).expect("and read"), report, "{again}");
    let Some(inputs) = report.inputs else { return };
    let Ok(plan) = plan(&inputs) else { return };
    assert_eq!(diff(&plan.desired, &plan.desired), []);
    assert_eq!(diff(&plan.desired, &State::default()).len(), plan.desired.len());
});
