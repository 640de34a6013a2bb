//! Which firewall backend holds the rules: asked once for a net-conf, and again where it is not the one asked for.
//!
//! Takes the net-conf and the operator's flags, asks the kernel what [`next_query`] says, and keeps what was found; which
//! backend it is, the plan decides.

use std::time::{Duration, Instant};

use flannel_kernel::{Kernel, ObserveError};
use flannel_plan::config::NetworkConfig;
use flannel_plan::family::ByFamily;
use flannel_plan::firewall::Firewall;
use flannel_plan::firewall_backend::{
    Decision, FirewallFacts, FirewallNeeds, MOST_QUERIES, decide, next_query,
};
use flannel_plan::observation::Scope;
use flannel_plan::rules::TableId;
use flannel_plan::rules::found::RuleObservation;
use flannel_plan::rules::role::Role;

use crate::options::RuleOptions;

/// What others do to the host is asked for so often: programs are installed, modules are loaded, and any rule may
/// begin to translate the tunnel's port. Shorter than the pause between two passes, so that each of those asks.
const PAUSE: Duration = Duration::from_secs(55);

/// What was found, and what was decided by it.
#[derive(Debug)]
struct Known {
    needs: FirewallNeeds,
    facts: FirewallFacts,
    decision: Decision,
    asked: Instant,
}

/// The firewall backend in use.
#[derive(Debug)]
pub struct FirewallBackend {
    options: RuleOptions,
    known: Option<Known>,
}

impl FirewallBackend {
    /// Nothing asked so far.
    pub fn new(options: RuleOptions) -> Self {
        Self { options, known: None }
    }

    /// What rules are held with under a net-conf.
    pub fn of(
        &mut self,
        config: &NetworkConfig,
        kernel: &mut impl Kernel,
        now: Instant,
    ) -> Result<Firewall, ObserveError> {
        let needs = self.needs(config);
        let known = self.known.take().filter(|known| known.needs == needs);
        let (facts, suspects, asked) = match known {
            Some(known) if now < known.asked + PAUSE => (known.facts, vec![], known.asked),
            // Another table that cannot be read is found by an observation, and is rare: reading one may take seconds.
            Some(known) if known.decision.is_makeshift => (FirewallFacts::default(), known.suspects(), now),
            Some(known) => (FirewallFacts { translated: ByFamily::default(), ..known.facts }, vec![], now),
            None => (FirewallFacts::default(), needs.tables(), now),
        };
        let facts = ask(&needs, &suspects, facts, kernel)?;
        let decision = decide(&needs, &facts);
        let firewall = decision.firewall.clone();
        self.known = Some(Known { needs, facts, decision, asked });
        Ok(firewall)
    }

    /// Whether the backend can be kept after an observation. If not, it is forgotten, and the next question finds another.
    pub fn bears(&mut self, found: &RuleObservation) -> bool {
        let bears = self
            .known
            .as_ref()
            .is_none_or(|known| known.needs.are_met_by(known.decision.firewall.system, found));
        if !bears {
            self.known = None;
        }
        bears
    }

    fn needs(&self, config: &NetworkConfig) -> FirewallNeeds {
        let RuleOptions { ip_masq, forward, source_ports, untrack, .. } = self.options;
        let roles = [(Role::Masquerade, ip_masq), (Role::Forward, forward)];
        let roles = roles.into_iter().filter_map(|(role, wanted)| wanted.then_some(role)).collect();
        let port = config.backend.tunnel().filter(|_| untrack).map(|tunnel| tunnel.port);
        let (nftables, families) = (config.nftables, config.families());
        FirewallNeeds { nftables, families, port, roles, source_ports }
    }
}

impl Known {
    /// The tables that may not be readable, if they are asked for again.
    fn suspects(&self) -> Vec<TableId> {
        let unreadable = self.facts.unreadable.clone().filter(|tables| !tables.is_empty());
        unreadable.unwrap_or_else(|| self.needs.tables())
    }
}

/// Asks the host until enough is known.
fn ask(
    needs: &FirewallNeeds,
    suspects: &[TableId],
    mut facts: FirewallFacts,
    kernel: &mut impl Kernel,
) -> Result<FirewallFacts, ObserveError> {
    for _ in 0..MOST_QUERIES {
        let Some(query) = next_query(needs, suspects, &facts) else { break };
        facts.take(kernel.observe(&Scope::of_firewall(query))?.firewall);
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use flannel_kernel::Linux;
    use flannel_kernel::netns::{Namespace, run_inside};
    use flannel_plan::rules::{SourcePorts, System};

    const OPTIONS: RuleOptions = RuleOptions {
        ip_masq: true,
        source_ports: SourcePorts::Randomised,
        forward: true,
        untrack: true,
        blackhole: false,
        resync: Duration::from_secs(5),
    };

    fn sh(script: &str) {
        assert!(Command::new("sh").args(["-ec", script]).status().unwrap().success(), "{script}");
    }

    #[test]
    fn nftables_is_used_while_iptables_cannot_read_a_table_and_not_left_before_the_pause_ends() {
        let systems = run_inside(&Namespace::Fresh, || {
            let config = NetworkConfig::parse(r#"{"Network":"10.244.0.0/16"}"#).unwrap();
            let (mut kernel, mut backend, start) =
                (Linux::open().unwrap(), FirewallBackend::new(OPTIONS), Instant::now());
            let mut system = |after| backend.of(&config, &mut kernel, start + after).unwrap().system.unwrap();
            sh("iptables -A INPUT; nft add rule ip filter INPUT ct state established accept");
            let at_start = system(Duration::ZERO);
            sh("nft flush chain ip filter INPUT");
            let at_once = system(Duration::from_secs(1));
            [at_start, at_once, system(PAUSE)]
        });
        assert_eq!(systems.unwrap(), [System::Nftables, System::Nftables, System::IptablesNft]);
    }
}
