//! Packets from 127.0.0.1: the device that they leave by is told to take them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod sandbox;

use flannel_kernel::firewall::localnet::let_localhost_reach;
use sandbox::*;

#[test]
fn the_device_towards_the_address_is_told_and_no_other() {
    with_an_ipv4_nic(|_| {
        let settings = || {
            ["nic", "far", "lo", "all"].map(|device| {
                sh(&format!("cat /proc/sys/net/ipv4/conf/{device}/route_localnet")).trim() == "1"
            })
        };
        let_localhost_reach([192, 0, 2, 1].into()).unwrap();
        assert_eq!(settings(), [false; 4]);
        let_localhost_reach([10, 0, 0, 9].into()).unwrap();
        assert_eq!(settings(), [true, false, false, false]);
        let_localhost_reach([10, 0, 0, 9].into()).unwrap();
    });
}
