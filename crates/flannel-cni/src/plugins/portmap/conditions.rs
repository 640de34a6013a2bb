//! Conditions of nftables, which come as words for `nft`: the usual ones we read ourselves, for others `nft` is
//! run.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use flannel_kernel::child;
use flannel_plan::family::Family;
use flannel_plan::rules::{Is, Match, Side};
use ipnet::IpNet;

use super::config::Transport;
use crate::error::CniError;

/// How long `nft` may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Conditions, understood or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conditions {
    /// What they say.
    Known(Vec<Match>),
    /// Their words, which only `nft` understands.
    Foreign(String),
}

/// Reads conditions for packets of a family.
pub(super) fn read(family: Family, words: &[String]) -> Conditions {
    let text = words.join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    match matches(family, &words) {
        Some(matches) => Conditions::Known(matches),
        None => Conditions::Foreign(text),
    }
}

fn matches(family: Family, mut words: &[&str]) -> Option<Vec<Match>> {
    let mut matches = Vec::new();
    while !words.is_empty() {
        let (key, rest) = match words {
            ["meta", key @ ("iifname" | "oifname"), rest @ ..] => (["meta", key], rest),
            [key @ ("iifname" | "oifname"), rest @ ..] => (["meta", key], rest),
            [of, field, rest @ ..] => ([*of, *field], rest),
            _ => return None,
        };
        let (is, value, rest) = match rest {
            ["!=", value, rest @ ..] => (Is::Different, value, rest),
            ["==", value, rest @ ..] | [value, rest @ ..] => (Is::Equal, value, rest),
            [] => return None,
        };
        read_one(family, key, (is, value), &mut matches)?;
        words = rest;
    }
    Some(matches)
}

fn read_one(family: Family, key: [&str; 2], (is, value): (Is, &str), matches: &mut Vec<Match>) -> Option<()> {
    let it = match (family, key) {
        (Family::V4, ["ip", "saddr"]) | (Family::V6, ["ip6", "saddr"]) => {
            address(family, Side::Source, is, value)?
        }
        (Family::V4, ["ip", "daddr"]) | (Family::V6, ["ip6", "daddr"]) => {
            address(family, Side::Destination, is, value)?
        }
        (_, ["meta", "iifname"]) => Match::InLink(is, device(value)?),
        (_, ["meta", "oifname"]) => Match::OutLink(is, device(value)?),
        (_, [transport, "dport"]) => {
            let transport = Transport::ALL.into_iter().find(|known| known.name == transport)?;
            matches.push(Match::Protocol(Is::Equal, transport.protocol));
            Match::DestinationPort(is, value.parse().ok()?)
        }
        _ => return None,
    };
    matches.push(it);
    Some(())
}

fn address(family: Family, side: Side, is: Is, text: &str) -> Option<Match> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let fits = Family::of(first) == family && Family::of(last) == family && first < last;
        return fits.then_some(Match::Range(side, is, first, last));
    }
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    (Family::of_net(network) == family).then(|| match side {
        Side::Source => Match::Source(is, network.trunc()),
        Side::Destination => Match::Destination(is, network.trunc()),
    })
}

fn device(text: &str) -> Option<Box<str>> {
    let name = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let is_plain = !name.is_empty() && name.len() < 16 && name.bytes().all(plain);
    is_plain.then(|| name.into())
}

/// Runs `nft` on a script.
pub(super) fn run_nft(script: &str) -> Result<(), CniError> {
    let failed = |why: String| {
        let text = format!("unable to set up nftables rules for port mappings: nft: {why}");
        CniError::internal(text)
            .details("the conditions are more than we read ourselves, so nft has to be there")
    };
    let output = child::run(Command::new("nft").args(["-f", "-"]), script.as_bytes(), LIMIT);
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use flannel_plan::rules::TCP;

    use super::*;

    fn read_text(text: &str) -> Conditions {
        read(Family::V4, &text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_usual_conditions_are_read_without_nft() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let known = |matches: &[Match]| Conditions::Known(matches.to_vec());
        assert_eq!(read(Family::V4, &[]), known(&[]));
        assert_eq!(
            read_text("ip daddr != 192.0.2.0/24 iifname \"eth0\" tcp dport 80"),
            known(&[
                Match::Destination(Is::Different, net("192.0.2.0/24")),
                Match::InLink(Is::Equal, "eth0".into()),
                Match::Protocol(Is::Equal, TCP),
                Match::DestinationPort(Is::Equal, 80),
            ])
        );
        assert_eq!(
            read(Family::V6, &["ip6 saddr == fd00::1".to_owned(), "meta oifname != lo".to_owned()]),
            known(&[Match::source(net("fd00::1/128")), Match::OutLink(Is::Different, "lo".into()),])
        );
    }

    #[test]
    fn everything_else_is_left_to_nft_in_its_words() {
        for text in [
            "ip daddr { 10.0.0.1, 10.0.0.2 }",
            "ct state new",
            "ip daddr != @mine",
            "a b",
            "ip6 daddr ::1",
            "ip daddr ::1",
        ] {
            assert_eq!(read_text(text), Conditions::Foreign(text.to_owned()));
        }
    }
}
