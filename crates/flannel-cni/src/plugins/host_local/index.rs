//! What is known of a folder of reservations without opening its files: whose each is, and of which boot.
//! Takes and gives bytes; the file that holds them is a cache beside the folder, so all of it is checked.
//!
//! The duplicate check needs the owner of every reservation, and Go opens every file for it: 26 ms at 1,000
//! reservations. Here the owners are kept under /run, in the order of addresses, with a *seal*: the time of
//! the folder's last change. We set that time ourselves, to one that nobody else's change can give it. So a
//! seal that fits says that nothing came or went since we wrote; else the folder is listed, and only files
//! that are not the known ones (by inode and time) are read.

use std::net::{IpAddr, Ipv6Addr};

const MAGIC: u64 = u64::from_le_bytes(*b"fl-hl-01");
const HEADER: usize = 80;
const RECORD: usize = 56;
const BOOT: usize = 40;

/// A time of the file system, in seconds and nanoseconds.
pub type Time = (i64, i64);

/// What tells a file from another one of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The inode; one that is free again is used again at once.
    pub inode: u64,
    /// The time of the last change; nanoseconds since 1970.
    pub changed: i64,
}

/// What a reservation is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not stamped: Go's, or ours where nothing could be stamped. Only DEL and GC free it, or need.
    Unstamped,
    /// Ours, of this boot.
    Ours,
    /// Ours, of another boot: no container of that time lives, so it is free.
    Past,
    /// Without an owner: what a crash left of a file. Free, since whoever writes holds the lock.
    Blank,
    /// Not to be read, or no file at all: not free, and not ours to touch.
    Odd,
}

impl Standing {
    const ALL: [Self; 5] = [Self::Unstamped, Self::Ours, Self::Past, Self::Blank, Self::Odd];

    /// Whether the address may be given to somebody else.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Past | Self::Blank)
    }

    fn number(self) -> u64 {
        match self {
            Self::Unstamped => 0,
            Self::Ours => 1,
            Self::Past => 2,
            Self::Blank => 3,
            Self::Odd => 4,
        }
    }
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The address.
    pub address: IpAddr,
    /// The fingerprint of its content without the space around it: says surely who is *not* the owner.
    pub owner: u64,
    /// The file.
    pub file: FileId,
    /// What it is to us.
    pub standing: Standing,
}

/// What a cache held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// The reservations, in the order of addresses.
    pub records: Vec<Record>,
    /// The time of the folder's last change when they were all; none if that is not known.
    pub seal: Option<Time>,
}

/// Reads a cache; what was written in another boot is of another boot, and seals nothing.
///
/// Records that were cut by a crash are left out, and without all of them there is no seal.
pub fn decode(bytes: &[u8], boot: &str) -> Cached {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Cached::default() };
    let Some(header) = Header::decode(header) else { return Cached::default() };
    let same_boot = header.boot == padded(boot) && !boot.is_empty();
    let whole = rest.chunks_exact(RECORD).take(header.count);
    let mut records: Vec<Record> = Vec::with_capacity(whole.len());
    records.extend(whole.filter_map(Record::decode));
    if !same_boot {
        for record in &mut records {
            if record.standing == Standing::Ours && !boot.is_empty() {
                record.standing = Standing::Past;
            }
        }
    }
    let is_whole = records.len() == header.count && records.is_sorted_by(|a, b| a.address < b.address);
    if !is_whole {
        records.sort_unstable_by_key(|record| record.address);
        records.dedup_by_key(|record| record.address);
    }
    Cached { records, seal: Some(header.seal).filter(|_| is_whole && same_boot) }
}

/// The bytes of records, and where in the file they go if `first` are there already.
pub fn encode_records(records: &[Record], first: usize) -> (Vec<u8>, u64) {
    let new = records.get(first..).unwrap_or_default();
    let mut bytes = Vec::with_capacity(new.len() * RECORD);
    for record in new {
        bytes.extend_from_slice(&record.encode());
    }
    (bytes, u64::try_from(HEADER + first * RECORD).unwrap_or(u64::MAX))
}

/// The first bytes of the file, to be written last: they make the records count.
pub fn encode_header(count: usize, seal: Time, boot: &str) -> [u8; HEADER] {
    Header { boot: padded(boot), count, seal }.encode()
}

/// The fingerprint of a reservation's content.
pub fn fingerprint(content: &[u8]) -> u64 {
    let words = content.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    mix(words.chain([u64::try_from(content.len()).unwrap_or(u64::MAX)]))
}

/// FNV-1a over words instead of bytes, with a shift that brings high bits down.
fn mix(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^ (hash >> 29)
    })
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let address = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let [high, low] = halves(u128::from(address));
        let changed = u64::from_ne_bytes(self.file.changed.to_ne_bytes());
        let words = [high, low, self.owner, self.file.inode, changed, self.standing.number()];
        checked(words)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [high, low, owner, inode, changed, standing] = unchecked(bytes)?;
        let address = (u128::from(high) << 64) | u128::from(low);
        Some(Self {
            address: IpAddr::V6(Ipv6Addr::from(address)).to_canonical(),
            owner,
            file: FileId { inode, changed: i64::from_ne_bytes(changed.to_ne_bytes()) },
            standing: Standing::ALL.into_iter().find(|known| known.number() == standing)?,
        })
    }
}

/// What makes the records count.
struct Header {
    boot: [u8; BOOT],
    count: usize,
    seal: Time,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let word = |number: i64| u64::from_ne_bytes(number.to_ne_bytes());
        let count = u64::try_from(self.count).unwrap_or(u64::MAX);
        let mut words = [0; 9];
        words[..4].copy_from_slice(&[MAGIC, count, word(self.seal.0), word(self.seal.1)]);
        for (to, from) in words[4..].iter_mut().zip(self.boot.chunks_exact(8)) {
            *to = u64::from_le_bytes(<[u8; 8]>::try_from(from).unwrap_or_default());
        }
        checked(words)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let words: [u64; 9] = unchecked(bytes)?;
        let number = |word: u64| i64::from_ne_bytes(word.to_ne_bytes());
        let mut boot = [0; BOOT];
        boot.chunks_exact_mut(8)
            .zip(&words[4..])
            .for_each(|(to, from)| to.copy_from_slice(&from.to_le_bytes()));
        let count = usize::try_from(words[1]).ok()?;
        (words[0] == MAGIC).then_some(Self { boot, count, seal: (number(words[2]), number(words[3])) })
    }
}

/// Words as bytes, with a word behind them that tells whether they are whole.
fn checked<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let all = words.into_iter().chain([mix(words.into_iter())]);
    bytes.chunks_exact_mut(8).zip(all).for_each(|(to, from)| to.copy_from_slice(&from.to_le_bytes()));
    bytes
}

fn unchecked<const WORDS: usize>(bytes: &[u8]) -> Option<[u64; WORDS]> {
    let mut all = bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    let mut words = [0; WORDS];
    for word in &mut words {
        *word = all.next()?;
    }
    (all.next()? == mix(words.into_iter())).then_some(words)
}

fn halves(number: u128) -> [u64; 2] {
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or_default();
    [half(number >> 64), half(number)]
}

fn padded(boot: &str) -> [u8; BOOT] {
    let mut padded = [0; BOOT];
    padded.iter_mut().zip(boot.as_bytes()).for_each(|(to, from)| *to = *from);
    padded
}

#[cfg(test)]
mod tests;
