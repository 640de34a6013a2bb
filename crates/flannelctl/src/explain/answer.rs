//! What becomes of a packet, as words and as JSON.

use std::fmt::Write;
use std::net::IpAddr;

use flannel_plan::rules::explain::{Explanation, Fate, PlacedRule};
use serde::Serialize;

/// Whether a packet comes to the rules about sources at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It leaves this node.
    Leaves,
    /// It goes to a program of this node.
    EndsHere,
}

/// What becomes of the source address of a packet, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    source: IpAddr,
    destination: IpAddr,
    port: Option<u16>,
    protocol: Option<u8>,
    mark: u32,
    out_link: Option<Box<str>>,
    fate: Fate,
    /// Whether it goes to this node itself, where no rule about sources is met.
    ends_here: bool,
    /// Whether the answer holds whatever else is true of the packet.
    certain: bool,
    /// The rule that decided.
    decisive: Option<MatchedRule>,
    /// All rules that matched, in the packet's order.
    matched: Vec<MatchedRule>,
    /// Rules that would decide otherwise, if something that is not known of the packet were so.
    perhaps: Vec<MatchedRule>,
    /// Where rules could not be read, and why.
    unseen: Vec<String>,
    #[serde(skip)]
    words: String,
}

/// A rule, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MatchedRule {
    table: String,
    chain: Box<str>,
    /// From 1 on.
    place: usize,
    /// In the words of iptables.
    rule: String,
}

impl From<&PlacedRule> for MatchedRule {
    fn from(step: &PlacedRule) -> Self {
        let PlacedRule { table, chain, place, rule } = step;
        Self { table: table.to_string(), chain: chain.clone(), place: *place, rule: rule.to_string() }
    }
}

impl Answer {
    /// An explanation, for a packet that goes this way, by rules of which some may not have been seen.
    pub fn new(explanation: &Explanation, way: Way, unseen: Vec<String>) -> Self {
        let packet = explanation.packet.clone();
        let leaves = way == Way::Leaves;
        let places = |steps: &[PlacedRule]| steps.iter().filter(|_| leaves).map(MatchedRule::from).collect();
        Self {
            source: packet.source,
            destination: packet.destination,
            port: packet.port,
            protocol: packet.protocol,
            mark: packet.mark,
            out_link: packet.out_link,
            fate: if leaves { explanation.fate } else { Fate::Kept },
            ends_here: !leaves,
            certain: !leaves || explanation.perhaps.is_empty() && unseen.is_empty(),
            decisive: explanation.decisive().filter(|_| leaves).map(MatchedRule::from),
            matched: places(&explanation.matched),
            perhaps: places(&explanation.perhaps),
            unseen,
            words: words(explanation, way),
        }
    }

    /// The answer for people.
    pub fn text(&self) -> String {
        let mut text = self.words.clone();
        for place in &self.unseen {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "! Not seen, so it may be otherwise: {place}");
        }
        text
    }
}

fn words(explanation: &Explanation, way: Way) -> String {
    let packet = &explanation.packet;
    match way {
        Way::Leaves => explanation.to_string(),
        Way::EndsHere => format!(
            "A packet from {} to {} keeps its source address.\n  \
             It goes to this node itself: only packets that leave it meet rules about sources.\n",
            packet.source, packet.destination
        ),
    }
}

#[cfg(test)]
mod tests {
    use flannel_plan::family::Family;
    use flannel_plan::rules::explain::Packet;
    use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts, System, TableId};
    use serde_json::{Value, json};

    use super::*;

    fn explanation() -> Explanation {
        let rule = Rule::new(
            [Match::Source(Is::Equal, "10.244.0.0/16".parse().unwrap())],
            Action::masquerade(SourcePorts::Randomised),
        );
        let table = TableId { system: System::IptablesNft, family: Family::V4, name: "nat".into() };
        let step = PlacedRule { table, chain: "FLANNEL-POSTRTG".into(), place: 5, rule };
        let packet = Packet {
            source: "10.244.1.2".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            protocol: Some(6),
            port: Some(443),
            mark: 0,
            out_link: None,
            to_host: None,
        };
        Explanation { packet, fate: Fate::Masqueraded, matched: vec![step], perhaps: vec![] }
    }

    fn place() -> Value {
        json!({
            "table": "iptables nat", "chain": "FLANNEL-POSTRTG", "place": 5,
            "rule": "-s 10.244.0.0/16 -j MASQUERADE --random-fully",
        })
    }

    #[test]
    fn programs_get_the_packet_its_fate_and_every_rule_on_its_way() {
        let expected = json!({
            "source": "10.244.1.2", "destination": "192.0.2.1", "port": 443, "protocol": 6, "mark": 0,
            "out_link": null, "fate": "masqueraded", "ends_here": false, "certain": true, "decisive": place(),
            "matched": [place()], "perhaps": [], "unseen": [],
        });
        let answer = Answer::new(&explanation(), Way::Leaves, vec![]);
        assert_eq!(serde_json::to_value(answer).unwrap(), expected);
    }

    #[test]
    fn what_could_not_be_read_makes_the_answer_uncertain_and_is_told() {
        let answer = Answer::new(&explanation(), Way::Leaves, vec!["nftables: no".to_owned()]);
        let last = answer.text().lines().last().map(str::to_owned);
        assert_eq!(
            (answer.certain, last),
            (false, Some("! Not seen, so it may be otherwise: nftables: no".to_owned()))
        );
    }

    #[test]
    fn a_packet_to_this_node_meets_no_rule_about_sources() {
        let answer = Answer::new(&explanation(), Way::EndsHere, vec![]);
        assert_eq!((answer.fate, answer.certain, answer.decisive.is_none()), (Fate::Kept, true, true));
        assert!(answer.text().contains("It goes to this node itself"), "{}", answer.text());
    }
}
