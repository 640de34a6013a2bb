//! What the kernel keeps beside tables, chains and rules without looking at it: kind, length, bytes.
//!
//! `nft` writes and shows the comment there, and skips kinds that it does not know: so does ours.

use crate::firewall::abi::{NFTNL_UDATA_COMMENT, NFTNL_UDATA_COMMENT_MAXLEN};
use crate::firewall::netfilter::text;

/// Our own kind: who the rule belongs to.
const TAG: u8 = 0x66;
/// The kernel keeps at most 256 bytes, the comment takes at most 131 of them.
const LONGEST_TAG: usize = 120;

/// Writes a comment and a tag; what is too long for the kernel is cut off.
pub(crate) fn write(comment: Option<&str>, tag: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut entry = |kind: u8, value: &str, longest: usize| {
        let value = &value[..value.floor_char_boundary(longest)];
        bytes.extend([kind, u8::try_from(value.len() + 1).unwrap_or(u8::MAX)]);
        bytes.extend(value.as_bytes());
        bytes.push(0);
    };
    if let Some(comment) = comment {
        entry(NFTNL_UDATA_COMMENT, comment, NFTNL_UDATA_COMMENT_MAXLEN);
    }
    if let Some(tag) = tag {
        entry(TAG, tag, LONGEST_TAG);
    }
    bytes
}

/// Reads the comment and the tag.
pub(crate) fn read(mut bytes: &[u8]) -> (Option<Box<str>>, Option<Box<str>>) {
    let (mut comment, mut tag) = (None, None);
    while let [kind, length, rest @ ..] = bytes {
        let Some((value, rest)) = rest.split_at_checked((*length).into()) else { break };
        match *kind {
            NFTNL_UDATA_COMMENT => comment = Some(text(value).into()),
            TAG => tag = Some(text(value).into()),
            _ => {}
        }
        bytes = rest;
    }
    (comment, tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_what_nft_writes_and_a_tag_stands_behind_it() {
        assert_eq!(write(Some("hello"), None), b"\x00\x06hello\x00");
        assert_eq!(write(Some("hello"), Some("me")), b"\x00\x06hello\x00\x66\x03me\x00");
        assert_eq!(write(None, None), b"");
    }

    #[test]
    fn what_is_written_is_read_back_and_unknown_kinds_are_skipped() {
        let long = "é".repeat(100);
        let cut = "é".repeat(64);
        assert_eq!(read(&write(Some(&long), Some("me"))), (Some(cut.into()), Some("me".into())));
        assert_eq!(read(b"\x01\x04abcd\x00\x02x\x00"), (Some("x".into()), None));
        assert_eq!(read(b"\x00\x09cut"), (None, None));
    }
}
