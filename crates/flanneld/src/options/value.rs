//! Texts to values, by the rules of Go's `strconv` where flannel had them. Each function takes the text of one
//! value and gives the value or, as words that end a sentence, what it should have been.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use flannel_plan::family::Family;
use flannel_plan::link_name::LinkName;
use regex::Regex;

use super::{LogFormat, Pattern};

/// What a text should have been.
pub type Why = String;

/// Yes or no, in any of Go's twelve spellings.
pub fn switch(text: &str) -> Result<bool, Why> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

/// A whole number within bounds, in Go's base 0: `0x`, `0o`, `0b`, a leading zero for octal, `_` between digits.
pub fn integer(within: RangeInclusive<i32>) -> impl Fn(&str) -> Result<i32, Why> {
    move |text| {
        let number = whole(text).ok_or_else(|| "is not a whole number".to_owned())?;
        i32::try_from(number)
            .ok()
            .filter(|number| within.contains(number))
            .ok_or_else(|| format!("is not within {} to {}", within.start(), within.end()))
    }
}

fn whole(text: &str) -> Option<i128> {
    let (sign, size) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let prefixed = |base, prefix: [&str; 2]| {
        prefix.iter().find_map(|prefix| size.strip_prefix(prefix)).map(|rest| digits(rest, base, true))
    };
    let size = prefixed(16, ["0x", "0X"])
        .or_else(|| prefixed(8, ["0o", "0O"]))
        .or_else(|| prefixed(2, ["0b", "0B"]))
        .unwrap_or_else(|| digits(size, if size.starts_with('0') { 8 } else { 10 }, false))?;
    Some(sign * i128::from(size))
}

/// Digits with single underscores between them, or between them and the prefix.
fn digits(text: &str, base: u32, after_prefix: bool) -> Option<u64> {
    let mut value = None;
    let mut may_part = after_prefix;
    for letter in text.chars() {
        if letter == '_' {
            if !may_part {
                return None;
            }
            may_part = false;
        } else {
            let digit = u64::from(letter.to_digit(base)?);
            value = Some(value.unwrap_or(0_u64).saturating_mul(u64::from(base)).saturating_add(digit));
            may_part = true;
        }
    }
    value.filter(|_| may_part)
}

/// Nothing for an empty text, as Go has it; otherwise what the other function says.
pub fn optional<T>(read: impl Fn(&str) -> Result<T, Why>) -> impl Fn(&str) -> Result<Option<T>, Why> {
    move |text| if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

/// Any text.
pub fn text(text: &str) -> Result<String, Why> {
    Ok(text.to_owned())
}

/// A path, which is never empty.
pub fn path(text: &str) -> Result<String, Why> {
    if text.is_empty() { Err("is no path".to_owned()) } else { Ok(text.to_owned()) }
}

/// An address of either family; an IPv4 one in IPv6 dress is an IPv4 one.
pub fn address(text: &str) -> Result<IpAddr, Why> {
    let address: IpAddr = text.parse().map_err(|_| "is not an IP address".to_owned())?;
    Ok(address.to_canonical())
}

/// The address that a server listens on; no text is all of them, as in Go.
pub fn listen_address(text: &str) -> Result<IpAddr, Why> {
    match text {
        "" => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => address(text),
    }
}

/// An address of one family that packets can be sent to.
pub fn address_of(family: Family) -> impl Fn(&str) -> Result<IpAddr, Why> {
    move |text| {
        let address = address(text)?;
        if Family::of(address) != family {
            let (name, other) = match family {
                Family::V4 => ("IPv4", "--public-ipv6"),
                Family::V6 => ("IPv6", "--public-ip"),
            };
            return Err(format!("is not an {name} address; use {other} for the other family"));
        }
        if address.is_unspecified() || address.is_multicast() {
            return Err("is not an address of one node".to_owned());
        }
        Ok(address)
    }
}

/// The address or the name of an interface.
pub fn interface(text: &str) -> Result<String, Why> {
    if address(text).is_ok() || text.parse::<LinkName>().is_ok() {
        return Ok(text.to_owned());
    }
    Err("is neither an IP address nor a name that an interface can have (1 to 15 characters)".to_owned())
}

/// A regular expression.
pub fn pattern(text: &str) -> Result<Pattern, Why> {
    Regex::new(text).map(Pattern).map_err(|fault| match fault {
        regex::Error::CompiledTooBig(limit) => {
            format!("needs more than {limit} bytes as a regular expression")
        }
        // The last line says what is wrong; those before it draw where.
        other => format!(
            "is not a regular expression: {}",
            other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")
        ),
    })
}

/// The form of a line in the log.
pub fn log_format(text: &str) -> Result<LogFormat, Why> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("is neither text nor json".to_owned()),
    }
}

/// klog's list of `pattern=N`, checked and dropped.
pub fn vmodule(text: &str) -> Result<(), Why> {
    let good = |part: &str| {
        part.split_once('=')
            .is_some_and(|(pattern, level)| !pattern.is_empty() && level.parse::<i32>().is_ok())
    };
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    if parts.all(good) { Ok(()) } else { Err("is not a list of PATTERN=N with commas between".to_owned()) }
}

/// klog's `file:N`, checked and dropped.
pub fn backtrace_at(text: &str) -> Result<(), Why> {
    let good = text
        .split_once(':')
        .is_some_and(|(file, line)| file.contains('.') && line.parse::<i32>().is_ok_and(|line| line > 0));
    if text.is_empty() || good { Ok(()) } else { Err("is not FILE:N with a line number N".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_of_go() {
        let good = [
            ("0", 0),
            ("60", 60),
            ("+7", 7),
            ("-7", -7),
            ("0x1F", 31),
            ("0X_1f", 31),
            ("0o17", 15),
            ("017", 15),
            ("0_17", 15),
            ("0b101", 5),
            ("1_439", 1439),
        ];
        for (text, number) in good {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        for text in
            ["", "-", "x", "0x", "1__0", "_1", "1_", "08", "1.0", " 1", "1 ", "--1", "0b2", "0x_", "1e3"]
        {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_out_of_bounds_is_told_the_bounds() {
        let margin = integer(1..=1439);
        assert_eq!(margin("1439"), Ok(1439));
        assert_eq!(margin("0"), Err("is not within 1 to 1439".to_owned()));
        assert_eq!(margin("99999999999999999999999999"), Err("is not within 1 to 1439".to_owned()));
        assert_eq!(margin("ten"), Err("is not a whole number".to_owned()));
    }

    #[test]
    fn yes_and_no_have_six_spellings_each() {
        for (words, value) in [("1 t T true TRUE True", true), ("0 f F false FALSE False", false)] {
            for word in words.split(' ') {
                assert_eq!(switch(word), Ok(value), "{word}");
            }
        }
        for word in ["", "yes", "no", "tRUE", "on", "2", " true"] {
            assert_eq!(switch(word), Err("is neither true nor false".to_owned()), "{word}");
        }
    }

    #[test]
    fn an_ipv4_address_in_ipv6_dress_is_an_ipv4_address() {
        let plain: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(address("::ffff:10.0.0.1"), Ok(plain));
        assert_eq!(address_of(Family::V4)("::ffff:10.0.0.1"), Ok(plain));
    }

    #[test]
    fn a_public_address_is_of_its_family_and_of_one_node() {
        let cases = [
            (Family::V4, "fd00::1", "is not an IPv4 address; use --public-ipv6 for the other family"),
            (Family::V6, "10.0.0.1", "is not an IPv6 address; use --public-ip for the other family"),
            (Family::V4, "0.0.0.0", "is not an address of one node"),
            (Family::V6, "ff02::1", "is not an address of one node"),
            (Family::V4, "10.0.0.1/24", "is not an IP address"),
        ];
        for (family, text, why) in cases {
            assert_eq!(address_of(family)(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn klog_lists_are_checked_as_klog_checks_them() {
        for text in ["", "a=1", "a=1,b*=2", "a=1,"] {
            assert_eq!(vmodule(text), Ok(()), "{text}");
        }
        for text in ["a", "a=", "=1", "a=b", "a=1=2"] {
            assert!(vmodule(text).is_err(), "{text}");
        }
        assert_eq!((backtrace_at(""), backtrace_at("main.go:7")), (Ok(()), Ok(())));
        for text in ["main.go", "main.go:0", "main:7", "main.go:x"] {
            assert!(backtrace_at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_regular_expression_is_told_why_in_one_line() {
        assert_eq!(pattern("eth("), Err("is not a regular expression: unclosed group".to_owned()));
    }
}
