//! Base64 with padding, as Go writes the bytes of a configuration into the cache.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of some bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * position) & 63) as usize];
            text.push(if position > group.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

/// The bytes of a text; none if it is not Base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len() / 4;
    for (number, group) in text.as_bytes().chunks(4).enumerate() {
        let letters = group.iter().rposition(|letter| *letter != b'=')? + 1;
        if letters < 2 || (letters < 4 && number + 1 != last) {
            return None;
        }
        let bits = group[..letters].iter().try_fold(0u32, |bits, letter| {
            let value = ALPHABET.iter().position(|known| known == letter)?;
            Some(bits << 6 | u32::try_from(value).ok()?)
        })?;
        let bits = bits << (6 * (4 - letters));
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend(&[first, second, third][..letters - 1]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_come_out_and_go_back() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{ff}", "w78="),
        ];
        for (bytes, text) in pairs {
            assert_eq!((encode(bytes.as_bytes()).as_str(), decode(text)), (text, Some(bytes.into())));
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in ["Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm=v", "Zm\n9"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
