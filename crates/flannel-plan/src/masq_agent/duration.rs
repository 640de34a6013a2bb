//! Times as Go's `time.ParseDuration` reads them: `60s`, `1h30m`, `1.5m`. Takes a text, gives nanoseconds.

/// The units of Go, in nanoseconds; the micro sign and the letter mu look alike.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// The nanoseconds of a text; none if it is no time, or longer than Go counts.
pub fn nanoseconds(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    let mut rest = Some(rest).filter(|rest| !rest.is_empty())?;
    while !rest.is_empty() {
        let (part, behind) = one(rest)?;
        total = total.checked_add(part)?;
        rest = behind;
    }
    i64::try_from(sign * total).ok()
}

/// One number with its unit, and what follows.
fn one(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|letter: char| letter == '.' || letter.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(end);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // More digits than an hour has nanoseconds say nothing.
    let fraction = &fraction[..fraction.len().min(15)];
    let ten: i128 = 10;
    let parts = fraction.parse::<i128>().unwrap_or(0) * scale / ten.pow(u32::try_from(fraction.len()).ok()?);
    Some((whole.checked_mul(*scale)?.checked_add(parts)?, behind))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go() {
        let good = [
            ("60s", 60_000_000_000),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5m", 90_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("2µs", 2_000),
            ("-1s", -1_000_000_000),
            ("+1s", 1_000_000_000),
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("0.3333333333333333333h", 1_199_999_999_999),
        ];
        for (text, expected) in good {
            assert_eq!(nanoseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in
            ["", "60", "-", ".", ".s", "s", "1d", "1 s", " 1s", "1s ", "3000000h", "1e3s", "1m-1s", "١s"]
        {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
