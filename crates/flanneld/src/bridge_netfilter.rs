//! Whether packets between pods of one bridge meet the rules of the host: without it, answers through a Service come
//! from an address that nobody asked, and are dropped. Takes a look at the node, gives what to tell the operator.

use std::fs;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use flannel_kernel::bridge_probe::{meets_rules, path_of_setting};
use flannel_kernel::module;
use flannel_plan::family::{ByFamily, Family};
use flannel_plan::observation::Observation;
use flannel_plan::pod_bridge;
use ipnet::IpNet;
use tracing::{debug, info};

const MODULE: &str = "br_netfilter";
/// Trying takes three namespaces and a moment: not while a node starts and everybody waits for pods.
const FIRST_MOMENTS: Duration = Duration::from_secs(50);

/// Makes bridges ask netfilter, as far as it may, and says where they do not.
#[derive(Debug, Default)]
pub struct BridgeNetfilter {
    /// Loading a module is tried once: what keeps it from being loaded does not go away by itself.
    tried: bool,
    /// Since when a bridge has pods.
    since: Option<Instant>,
    /// What trying showed, once it is over; none where it is not begun.
    trials: ByFamily<Arc<OnceLock<bool>>>,
}

impl BridgeNetfilter {
    /// What is to be told about a node with these subnets; nothing while no bridge holds its pods.
    pub fn notes(
        &mut self,
        observation: &Observation,
        subnets: &ByFamily<IpNet>,
        now: Instant,
    ) -> Vec<String> {
        let bridged =
            subnets.iter().filter(|(_, subnet)| pod_bridge::of(observation, subnet).next().is_some());
        bridged.filter_map(|(family, _)| self.note(family, now)).collect()
    }

    fn note(&mut self, family: Family, now: Instant) -> Option<String> {
        let read = || fs::read_to_string(path_of_setting(family)).ok().map(|text| text.trim().to_owned());
        let mut value = read();
        if value.is_none() && !std::mem::replace(&mut self.tried, true) {
            load();
            value = read();
        }
        let is_calm = now >= *self.since.get_or_insert(now) + FIRST_MOMENTS;
        if is_calm && self.trials.get(family).is_none() {
            *self.trials.slot(family) = Some(begin_trial(family, value.clone()));
        }
        let shown = self.trials.get(family).and_then(|trial| trial.get().copied());
        judge(family, value.as_deref(), shown)
    }
}

/// What to tell, by what the setting says and by what trying showed. What was seen counts for more: in a container the
/// setting may be hidden.
fn judge(family: Family, value: Option<&str>, shown: Option<bool>) -> Option<String> {
    let name = path_of_setting(family).trim_start_matches("/proc/sys/").replace('/', ".");
    let harm = "Services do not answer pods of this node that run on the same node as what is behind them";
    match (value, shown) {
        (Some("0"), _) => {
            Some(format!("{name} is 0: {harm}; set it with `sysctl -w {name}=1`, and in /etc/sysctl.d"))
        }
        (_, Some(true)) | (Some(_), None) => None,
        (Some(value), Some(false)) => Some(format!(
            "{name} is {value}, and yet packets over a bridge that was tried met no rule: {harm}; load {MODULE} of the \
             kernel that runs (`modprobe {MODULE}`), or boot one that has it"
        )),
        (None, _) => Some(format!(
            "the kernel module {MODULE} is not loaded, and could not be: {harm}; `modprobe {MODULE}`, and name it in \
             /etc/modules-load.d"
        )),
    }
}

/// Tries on a thread of its own; the next look finds what came of it.
fn begin_trial(family: Family, setting: Option<String>) -> Arc<OnceLock<bool>> {
    let outcome = Arc::new(OnceLock::new());
    let result = Arc::clone(&outcome);
    let work = move || match meets_rules(family, setting.as_deref()) {
        Ok(met) => {
            debug!(%family, met, "tried whether packets over a bridge meet rules");
            let _ = result.set(met);
        }
        Err(error) => debug!(%family, %error, "whether packets over a bridge meet rules cannot be tried"),
    };
    if let Err(error) = thread::Builder::new().name("bridge-trial".into()).spawn(work) {
        debug!(%error, "no thread to try a bridge");
    }
    outcome
}

fn load() {
    match module::load(MODULE) {
        Ok(()) => info!(module = MODULE, "kernel module loaded"),
        Err(error) => debug!(module = MODULE, %error, "kernel module not loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_plan::observation::{AddressFact, LinkFact};
    use flannel_plan::state::{Link, LinkKind};

    fn observe(kind: &str, address: &str) -> Observation {
        let name = "cni0".parse().unwrap();
        let (mac, kind) = ("02:00:00:00:00:01".parse().unwrap(), LinkKind::Other(kind.into()));
        let link = Link { name, mac, mtu: 1450, up: true, alias: "".into(), kind };
        let address = AddressFact {
            link: name,
            address: address.parse().unwrap(),
            permanent: true,
            temporary: false,
            deprecated: false,
            unusable: false,
        };
        let fact = LinkFact { index: 7, link, running: true, loopback: false };
        Observation { links: vec![fact], addresses: vec![address], ..Observation::default() }
    }

    #[test]
    fn what_was_seen_counts_for_more_than_what_is_said() {
        let told = |value, shown| judge(Family::V4, value, shown).unwrap_or_default();
        for (value, shown) in [(Some("1"), None), (Some("1"), Some(true)), (None, Some(true))] {
            assert_eq!(told(value, shown), "", "{value:?} {shown:?}");
        }
        assert!(told(Some("0"), None).starts_with("net.bridge.bridge-nf-call-iptables is 0: "));
        assert!(told(Some("1"), Some(false)).contains("met no rule"));
        assert!(told(None, None).contains("`modprobe br_netfilter`"));
        assert!(told(None, Some(false)).contains("`modprobe br_netfilter`"));
    }

    #[test]
    fn a_bridge_is_tried_once_and_not_in_the_first_moments() {
        let (mut bridges, begin) = (BridgeNetfilter::default(), Instant::now());
        let (observation, subnets) =
            (observe("bridge", "10.244.3.1/24"), ByFamily { v4: "10.244.3.0/24".parse().ok(), v6: None });
        bridges.notes(&observation, &subnets, begin);
        assert!(bridges.trials.get(Family::V4).is_none());
        bridges.notes(&observation, &subnets, begin + FIRST_MOMENTS);
        let trial = bridges.trials.get(Family::V4).cloned().unwrap();
        bridges.notes(&observation, &subnets, begin + 2 * FIRST_MOMENTS);
        assert!(Arc::ptr_eq(&trial, bridges.trials.get(Family::V4).unwrap()));
    }
}
