//! A hardware address in the one form that Go flannel writes: six lower-case hex pairs with colons.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quoted::quoted;

/// An Ethernet hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// A locally administered unicast address made of six random bytes, as Go flannel makes it.
    pub fn from_random(mut bytes: [u8; 6]) -> Self {
        bytes[0] = (bytes[0] & 0xfe) | 0x02;
        Self(bytes)
    }

    /// Whether one device can have it: not multicast, not all zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// A text that is no hardware address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is not a hardware address such as 0e:53:5b:a8:75:1d", quoted(.0))]
pub struct MacError(String);

const LENGTH: usize = 17;

/// The byte of two hex digits, with what separates it from the next.
fn pair(part: &[u8]) -> Option<u8> {
    let (&[high, low], [] | [b':' | b'-']) = part.split_first_chunk::<2>()? else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        // Byte by byte: whenever a peer changes, those of thousands are read.
        let mut bytes = [0; 6];
        let mut parts = text.as_bytes().chunks(3);
        for (byte, part) in bytes.iter_mut().zip(&mut parts) {
            *byte = pair(part).ok_or_else(|| MacError(text.to_owned()))?;
        }
        if text.len() == LENGTH { Ok(Self(bytes)) } else { Err(MacError(text.to_owned())) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_written_as_go_writes_it() {
        assert_eq!("0E:53:5B:a8:75:1d".parse::<Mac>().unwrap().to_string(), "0e:53:5b:a8:75:1d");
    }

    #[test]
    fn texts_that_are_no_hardware_address_are_refused() {
        for text in [
            "",
            "0e:53:5b:a8:75",
            "0e:53:5b:a8:75:1d:00",
            "0e:53:5b:a8:75:g1",
            "0e535ba8751d",
            "+e:53:5b:a8:75:1d",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_random_address_is_local_and_unicast() {
        let mac = Mac::from_random([0xff; 6]);
        assert_eq!(mac.to_string(), "fe:ff:ff:ff:ff:ff");
        assert!(mac.is_unicast());
    }
}
