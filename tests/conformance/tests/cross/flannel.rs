//! The flannel plugin of Go and ours read each other's records.

use conformance_tests::version::ALL;
use conformance_tests::{Chain, Plugins, PodInterface, Stage, scenarios};
use serde_json::json;

use super::{two_sides, without_last_given};

scenarios! { "flannel":
    ALL.as_slice() => a_pod_of_flannel_is_removed_by_the_other;
}

fn a_pod_of_flannel_is_removed_by_the_other(stage: &Stage) {
    let ours = Plugins::ours();
    let env = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n";
    stage.site.write("/run/flannel/subnet.env", env);
    let flannel = json!({"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}});
    let chain = Chain {
        site: &stage.site,
        folders: Vec::new(),
        inner: None,
        version: stage.version,
        name: "cbr0",
        plugins: vec![flannel],
        capabilities: json!({}),
    };
    let mut measured = None;
    for (before, after) in two_sides(stage, &ours) {
        for (adds, deletes) in [(before, before), (before, after)] {
            stage.site.pod("pod1");
            let result = chain.with(&[adds]).add(PodInterface::of("pod1"));
            assert!(stage.site.read("/var/lib/cni/flannel/pod1").is_some(), "a record of {}", adds.display());
            chain.with(&[deletes]).del(PodInterface::of("pod1"), &result);
            assert_eq!(stage.site.devices(Some("pod1")), [""; 0]);
            stage.site.remove_pod("pod1");
            let remains = without_last_given(stage.site.remains());
            let what = format!("ADD by {}, DEL by {}", adds.display(), deletes.display());
            assert_eq!(&remains, measured.get_or_insert_with(|| remains.clone()), "{what}");
        }
    }
}
