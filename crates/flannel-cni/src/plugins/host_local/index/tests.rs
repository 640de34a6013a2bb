use proptest::prelude::*;

use super::*;

const BOOT: &str = "88a5af9c-4dbd-48de-bbeb-dedcf3562288";
const SEAL: Time = (1_794_775_861, 310_368_701);

fn record(address: &str, standing: Standing) -> Record {
    let address: IpAddr = address.parse().unwrap();
    let file = FileId { inode: 7, changed: -3 };
    Record { address, owner: fingerprint(b"c0ffee\r\neth0"), file, standing }
}

fn records() -> Vec<Record> {
    vec![
        record("10.22.0.2", Standing::Ours),
        record("10.22.0.3", Standing::Unstamped),
        record("10.22.0.10", Standing::Past),
        record("fd00::2", Standing::Blank),
        record("fd00::3", Standing::Odd),
    ]
}

fn file(records: &[Record], seal: Time, boot: &str) -> Vec<u8> {
    let (bytes, _) = encode_records(records, 0);
    [encode_header(records.len(), seal, boot).to_vec(), bytes].concat()
}

#[test]
fn what_is_written_is_read() {
    let cached = Cached { records: records(), seal: Some(SEAL) };
    assert_eq!(decode(&file(&records(), SEAL, BOOT), BOOT), cached);
}

#[test]
fn a_part_goes_where_it_is_in_the_whole() {
    let (tail, offset) = encode_records(&records(), 3);
    let whole = file(&records(), SEAL, BOOT);
    assert_eq!(whole[usize::try_from(offset).unwrap()..], tail);
}

#[test]
fn bytes_behind_the_last_record_do_not_count() {
    let longer = [file(&records()[..2], SEAL, BOOT), vec![1; 300]].concat();
    assert_eq!(decode(&longer, BOOT), Cached { records: records()[..2].to_vec(), seal: Some(SEAL) });
}

#[test]
fn what_was_ours_in_another_boot_is_of_the_past_and_nothing_is_sealed() {
    let mut expected = records();
    expected[0].standing = Standing::Past;
    let other = "00000000-4dbd-48de-bbeb-dedcf3562288";
    assert_eq!(decode(&file(&records(), SEAL, other), BOOT), Cached { records: expected, seal: None });
}

#[test]
fn nothing_is_sealed_or_freed_if_the_boot_is_not_known() {
    let expected = Cached { records: records(), seal: None };
    assert_eq!(decode(&file(&records(), SEAL, BOOT), ""), expected);
    assert_eq!(decode(&file(&records(), SEAL, ""), ""), expected);
}

#[test]
fn a_file_that_is_no_cache_says_nothing() {
    for bytes in [&b""[..], b"hello", &[0; 500]] {
        assert_eq!(decode(bytes, BOOT), Cached::default());
    }
}

#[test]
fn fingerprints_differ_by_every_byte_and_by_length() {
    let prints =
        ["", "a", "a\0", "b", "c0ffee01\r\neth0", "c0ffee01\r\neth1", "c0ffee01", "c0ffee02\r\neth0"];
    let mut seen: Vec<u64> = prints.map(|content| fingerprint(content.as_bytes())).to_vec();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), prints.len());
}

proptest! {
    #[test]
    fn a_cache_that_was_cut_or_changed_seals_nothing_or_says_the_same(
        place in 0_usize..(80 + 5 * 56), change in 1_u8..=255, length in 0_usize..(80 + 5 * 56),
    ) {
        let whole = file(&records(), SEAL, BOOT);
        let mut changed = whole.clone();
        changed[place] ^= change;
        for bytes in [&whole[..length], &changed[..]] {
            let cached = decode(bytes, BOOT);
            prop_assert_eq!(cached.seal, None);
            // Whatever is left of the records is what was written.
            prop_assert!(cached.records.iter().all(|record| records().contains(record)));
        }
    }
}
