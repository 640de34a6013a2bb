//! The keys of a JSON object by the rules of Go's decoder, for which the net-confs of the world were written.
//!
//! Takes JSON text; gives typed values, and notes a fault for each that is not of its type. Keys match
//! without regard to case, unknown ones are ignored, the last of several wins, and `null` changes nothing.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::faults::ConfigFault;
use super::non_masquerade::CidrFault;
use crate::family::Family;

/// The value was there and wrong, and a fault says so.
#[derive(Debug)]
pub(crate) struct Noted;

/// The keys of one object with their values, in the order of the text, and the faults found so far.
pub(crate) struct Fields<'a> {
    inside: &'static str,
    entries: Vec<(String, &'a RawValue)>,
    faults: Vec<ConfigFault>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of_document(text: &'a str) -> Result<Self, ConfigFault> {
        let at_start =
            |problem: &str| ConfigFault::Document { line: 1, column: 1, problem: problem.to_owned() };
        if text.starts_with('\u{feff}') {
            return Err(at_start("a byte order mark; save the text as UTF-8 without one"));
        }
        if text.trim().is_empty() {
            return Err(at_start("no text; expected a JSON object such as {\"Network\":\"10.244.0.0/16\"}"));
        }
        match serde_json::from_str(text) {
            Ok(Entries(entries)) => Ok(Self { inside: "", entries, faults: Vec::new() }),
            Err(error) => Err(document_fault(&error)),
        }
    }

    /// Reads the object that a key holds; none if the value is not an object.
    pub(crate) fn of_object(&self, key: &'static str) -> Option<Self> {
        let Entries(entries) = serde_json::from_str(self.last(key)?).ok()?;
        Some(Self { inside: key, entries, faults: Vec::new() })
    }

    /// Whether the key is there, whatever its value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.last(key).is_some()
    }

    /// Notes that the value of a key cannot be.
    pub(crate) fn note(&mut self, key: &str, expected: impl Into<String>) -> Noted {
        let key_text = if self.inside.is_empty() { key.to_owned() } else { format!("{}.{key}", self.inside) };
        let value = self.last_not_null(key).or(self.last(key)).unwrap_or("absent").to_owned();
        self.faults.push(ConfigFault::Key { key: key_text, value, expected: expected.into() });
        Noted
    }

    /// Adds faults that were found elsewhere.
    pub(crate) fn add_faults(&mut self, faults: Vec<ConfigFault>) {
        self.faults.extend(faults);
    }

    pub(crate) fn into_faults(self) -> Vec<ConfigFault> {
        self.faults
    }

    /// A boolean; the default if it is absent or wrong.
    pub(crate) fn flag(&mut self, key: &str, default: bool) -> bool {
        let flag = self.read(key, "true or false", |text| serde_json::from_str(text).ok());
        flag.ok().flatten().unwrap_or(default)
    }

    pub(crate) fn text(&mut self, key: &str, expected: &str) -> Result<Option<String>, Noted> {
        self.read(key, expected, |text| serde_json::from_str(text).ok())
    }

    /// A whole number that is accepted.
    pub(crate) fn number<T: TryFrom<u64> + Copy>(
        &mut self,
        key: &str,
        expected: &str,
        is_accepted: impl Fn(T) -> bool,
    ) -> Result<Option<T>, Noted> {
        self.read(key, expected, |text| {
            let number = T::try_from(serde_json::from_str::<u64>(text).ok()?).ok()?;
            Some(number).filter(|number| is_accepted(*number))
        })
    }

    /// A network of one family, its host part dropped.
    pub(crate) fn network(&mut self, key: &str, family: Family) -> Result<Option<IpNet>, Noted> {
        let expected = match family {
            Family::V4 => "an IPv4 network such as \"10.244.0.0/16\"",
            Family::V6 => "an IPv6 network such as \"fd00:244::/48\"",
        };
        if self.last(key) == Some("null") {
            return Err(self.note(key, expected));
        }
        self.read(key, expected, |text| {
            let net: IpNet = serde_json::from_str::<String>(text).ok()?.parse().ok()?;
            Some(net.trunc()).filter(|net| Family::of_net(*net) == family)
        })
    }

    /// An address of one family; the unspecified one is as good as none.
    pub(crate) fn address(&mut self, key: &str, family: Family) -> Result<Option<IpAddr>, Noted> {
        let expected = format!("an {family} address");
        // Go keeps the v6 ones behind a pointer, where null is nothing; for the v4 ones it is an error.
        if family == Family::V4 && self.last(key) == Some("null") {
            return Err(self.note(key, expected));
        }
        let address = self.read(key, &expected, |text| {
            let address: IpAddr = serde_json::from_str::<String>(text).ok()?.parse().ok()?;
            Some(address).filter(|address| Family::of(*address) == family)
        })?;
        Ok(address.filter(|address| !address.is_unspecified()))
    }

    /// A list of networks, at most so many; each entry that `read` refuses is a fault of its own.
    pub(crate) fn networks(
        &mut self,
        key: &str,
        expected: &str,
        (most, too_many): (u64, String),
        read: impl Fn(&str) -> Result<IpNet, CidrFault>,
    ) -> Result<Vec<IpNet>, Noted> {
        let list = self.read(key, expected, |text| serde_json::from_str(text).ok())?;
        let entries: Vec<Value> = list.unwrap_or_default();
        if u64::try_from(entries.len()).unwrap_or(u64::MAX) > most {
            let (key, value) = (key.to_owned(), format!("a list of {}", entries.len()));
            self.faults.push(ConfigFault::Key { key, value, expected: too_many });
            return Err(Noted);
        }
        let mut networks = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            match read(entry.as_str().unwrap_or_default()) {
                Ok(network) => networks.push(network),
                Err(fault) => {
                    let (key, value, expected) =
                        (format!("{key}[{at}]"), entry.to_string(), fault.to_string());
                    self.faults.push(ConfigFault::Key { key, value, expected });
                }
            }
        }
        Ok(networks)
    }

    fn read<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Noted> {
        match self.last_not_null(key).map(parse) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(self.note(key, expected)),
        }
    }

    fn last(&self, key: &str) -> Option<&'a str> {
        self.all(key).next_back()
    }

    fn last_not_null(&self, key: &str) -> Option<&'a str> {
        self.all(key).rfind(|text| *text != "null")
    }

    fn all(&self, key: &str) -> impl DoubleEndedIterator<Item = &'a str> {
        let is_it = move |entry: &&(String, &'a RawValue)| entry.0.eq_ignore_ascii_case(key);
        self.entries.iter().filter(is_it).map(|(_, value)| value.get())
    }
}

fn document_fault(error: &serde_json::Error) -> ConfigFault {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    ConfigFault::Document {
        line: error.line().max(1),
        column: error.column().max(1),
        problem: text.strip_suffix(&place).unwrap_or(&text).to_owned(),
    }
}

struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
