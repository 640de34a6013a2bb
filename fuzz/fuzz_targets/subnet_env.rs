//! subnet.env, as flanneld finds it after a restart: perhaps Go's, perhaps a person's. What is understood and
//! written again is understood the same.
#![no_main]

use flannel_plan::family::Family;
use flannel_plan::subnet_env::{SubnetEnv, previous_subnets};
use ipnet::IpNet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let subnets = previous_subnets(text);
    let Ok(env) = SubnetEnv::parse(text) else { return };
    assert_eq!(env.subnets, subnets);
    // A subnet is written by the bridge's address, the second of it, so it needs two; net-confs allow no less than
    // four.
    let has_a_bridge = |(family, subnet): (Family, &IpNet)| subnet.prefix_len() < family.bits();
    if env.subnets.iter().all(has_a_bridge) {
        assert_eq!(SubnetEnv::parse(&env.to_string()), Ok(env));
    }
});
