//! Conditions of nftables, which come as words for `nft`: the usual ones we read ourselves, for others `nft` is
//! run.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use flannel_kernel::child;
use flannel_plan::family::Family;
use flannel_plan::rules::{Is, Match, SCTP, Side, TCP, UDP};
use ipnet::IpNet;

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

fn matches<'a>(family: Family, mut words: &'a [&'a str]) -> Option<Vec<Match>> {
    let mut matches = Vec::new();
    while !words.is_empty() {
        let (it, rest) = one(family, words, &mut matches)?;
        matches.push(it);
        words = rest;
    }
    Some(matches)
}

fn one<'a>(family: Family, words: &'a [&'a str], before: &mut Vec<Match>) -> Option<(Match, &'a [&'a str])> {
    let own = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    match words {
        ["meta", rest @ ..] if matches!(rest.first(), Some(&("iifname" | "oifname"))) => {
            one(family, rest, before)
        }
        [of, side @ ("saddr" | "daddr"), rest @ ..] if *of == own => {
            let side = if *side == "saddr" { Side::Source } else { Side::Destination };
            value(rest, |is, text| address(family, side, is, text))
        }
        ["iifname", rest @ ..] => value(rest, |is, text| Some(Match::InLink(is, device(text)?))),
        ["oifname", rest @ ..] => value(rest, |is, text| Some(Match::OutLink(is, device(text)?))),
        [transport @ ("tcp" | "udp" | "sctp"), "dport", rest @ ..] => {
            let protocol = match *transport {
                "tcp" => TCP,
                "udp" => UDP,
                _ => SCTP,
            };
            before.push(Match::Protocol(Is::Equal, protocol));
            value(rest, |is, text| Some(Match::DestinationPort(is, text.parse().ok()?)))
        }
        _ => None,
    }
}

fn value<'a>(
    words: &'a [&'a str],
    read: impl Fn(Is, &str) -> Option<Match>,
) -> Option<(Match, &'a [&'a str])> {
    match words {
        ["!=", text, rest @ ..] => Some((read(Is::Different, text)?, rest)),
        ["==", text, rest @ ..] | [text, rest @ ..] => Some((read(Is::Equal, text)?, rest)),
        [] => None,
    }
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
