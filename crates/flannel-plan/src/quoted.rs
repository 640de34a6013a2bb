//! Words of strangers: what peers, operators of other nodes and other programs wrote, as it may be shown.
//!
//! Takes any text and gives one that fits into a line of a log, a probe's answer or a terminal: it is cut, and
//! nothing in it moves a cursor, ends a line or turns the direction of reading.

use std::fmt::{self, Write};

/// So many characters of a name, a value or a message are shown.
const MOST_QUOTED: usize = 80;
/// So many characters of a whole line: more than any of ours has, whatever it quotes.
const MOST_OF_LINE: usize = 2000;

/// The longest name that Kubernetes gives to anything.
const LONGEST_NAME: usize = 253;

/// A name, a value or a message of a stranger, cut and cleaned when it is written.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a> {
    text: &'a str,
    most: usize,
}

/// What a stranger wrote, as a part of a line of ours.
pub fn quoted(text: &str) -> Quoted<'_> {
    Quoted { text, most: MOST_QUOTED }
}

/// A whole line that may quote strangers somewhere.
pub fn line(text: &str) -> Quoted<'_> {
    Quoted { text, most: MOST_OF_LINE }
}

/// Whether a text may name a node or a backend: none of Kubernetes' names is longer.
pub fn is_name(text: &str) -> bool {
    text.chars().count() <= LONGEST_NAME && text.chars().all(|character| harmless(character) == character)
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.text.chars();
        characters.by_ref().take(self.most).try_for_each(|character| f.write_char(harmless(character)))?;
        if characters.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// White space becomes a space, and what is not seen but acts a mark that is seen.
fn harmless(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => ' ',
        character if character.is_control() || acts_unseen(character) => char::REPLACEMENT_CHARACTER,
        character => character,
    }
}

/// Marks of Unicode that have no width: they turn, join or hide what stands around them.
fn acts_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_is_cut_after_eighty_characters() {
        assert_eq!(quoted("worker-1").to_string(), "worker-1");
        assert_eq!(quoted(&"ü".repeat(80)).to_string(), "ü".repeat(80));
        assert_eq!(quoted(&"ü".repeat(81)).to_string(), format!("{}…", "ü".repeat(80)));
        assert_eq!(line(&"x".repeat(9000)).to_string().chars().count(), MOST_OF_LINE + 1);
    }

    #[test]
    fn a_name_is_short_and_has_nothing_that_acts_unseen() {
        assert!(is_name("worker-1.example.com") && is_name("") && is_name(&"x".repeat(253)));
        assert!(!is_name(&"x".repeat(254)) && !is_name("two\nlines") && !is_name("turned\u{202e}"));
    }

    #[test]
    fn nothing_in_it_moves_a_cursor_ends_a_line_or_turns_the_reading() {
        let hostile = "a\nready\r\tb\u{1b}[2J\u{7f}\u{9b}c\u{202e}d\u{2066}e\u{feff}f\0";
        assert_eq!(
            quoted(hostile).to_string(),
            "a ready  b\u{fffd}[2J\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}"
        );
        assert_eq!(line(hostile).to_string(), quoted(hostile).to_string());
    }
}
