//! The resolver's configuration as a result carries it: takes the text of a `resolv.conf`, gives name servers.

use crate::result::Dns;

/// Reads the text of a `resolv.conf`; lines that mean nothing to us are passed over.
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut fields = line.split_whitespace().map(str::to_owned);
        let (Some(key), Some(first)) = (fields.next(), fields.next()) else { continue };
        match key.as_str() {
            "nameserver" => dns.nameservers.push(first),
            "domain" => dns.domain = first,
            "search" => dns.search.extend([first].into_iter().chain(fields)),
            "options" => dns.options.extend([first].into_iter().chain(fields)),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_comments_are_not() {
        let text = "\n\t nameserver 192.0.2.0\nnameserver 192.0.2.2 # x\ndomain a.example\ndomain example.com\n\
            ;nameserver comment\n  #nameserver comment\nsearch example.net example.org\nsearch example.gov\n\
            options one two three\noptions four\nnameserver\nsortlist 10.0.0.0\n";
        let expected = Dns {
            nameservers: vec!["192.0.2.0".into(), "192.0.2.2".into()],
            domain: "example.com".into(),
            search: vec!["example.net".into(), "example.org".into(), "example.gov".into()],
            options: vec!["one".into(), "two".into(), "three".into(), "four".into()],
        };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), Dns::default());
    }
}
