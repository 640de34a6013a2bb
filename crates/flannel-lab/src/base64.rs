//! Base 64, in which etcd's JSON gateway and Kubernetes write bytes.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    let group = |chunk: &[u8]| {
        let bits = (0..3).fold(0u32, |bits, place| bits << 8 | u32::from(*chunk.get(place).unwrap_or(&0)));
        let letter = move |place: usize| {
            let index = (bits >> (18 - 6 * place)) & 63;
            LETTERS.get(usize::try_from(index).unwrap_or(0)).map_or('=', |letter| char::from(*letter))
        };
        let used = chunk.len() + 1;
        (0..4).map(move |place| if place < used { letter(place) } else { '=' }).collect::<String>()
    };
    bytes.as_ref().chunks(3).map(group).collect()
}

/// Text as bytes; it ends at the first letter that does not belong.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let value = |letter: u8| LETTERS.iter().position(|known| *known == letter);
    let values = text.bytes().map_while(value).filter_map(|value| u32::try_from(value).ok());
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for value in values {
        bits = bits << 6 | value;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.extend(u8::try_from(bits >> count & 0xff));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648_come_out_and_back() {
        let examples = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in examples {
            assert_eq!((encode(bytes), decode(text)), (text.to_owned(), bytes.as_bytes().to_vec()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), all);
    }
}
