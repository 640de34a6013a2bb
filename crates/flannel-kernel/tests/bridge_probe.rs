//! Do packets over a bridge meet rules? Asked on this kernel, with the setting on and off.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use flannel_kernel::bridge_probe::{meets_rules, path_of_setting};
use flannel_plan::family::Family;

#[test]
fn packets_over_a_bridge_meet_rules_if_the_setting_says_so() {
    for family in Family::BOTH {
        // Elsewhere the module is missing, and no packet meets a rule, whatever is set.
        let has_module = std::path::Path::new(path_of_setting(family)).exists();
        assert!(!meets_rules(family, Some("0")).unwrap(), "{family} off");
        assert_eq!(meets_rules(family, Some("1")).unwrap(), has_module, "{family} on");
        assert_eq!(meets_rules(family, None).unwrap(), has_module, "{family} as it comes");
    }
}
