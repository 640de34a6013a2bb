//! Who is served at the port: so many at once, few of one source, and room of its own for the node itself.
//!
//! Takes connections as they come. A newcomer is always let in; if there is no room, the one of its kind that has
//! been there for longest has to go: a probe is done in milliseconds, so that is one who only holds its place.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// How many are served at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) node: usize,
    /// All others together.
    pub(super) strangers: usize,
    pub(super) one_source: usize,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Node,
    /// Elsewhere, in a pod for example. A host of IPv6 may have a whole /64 to itself: that counts as one.
    Stranger(IpAddr),
}

impl Source {
    /// Who talks to itself has the same address at both ends, or a loopback address.
    pub(super) fn of(theirs: SocketAddr, ours: SocketAddr) -> Self {
        let (theirs, ours) = (theirs.ip().to_canonical(), ours.ip().to_canonical());
        match theirs {
            own if own.is_loopback() || own == ours => Self::Node,
            IpAddr::V6(address) => Self::Stranger(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
            IpAddr::V4(_) => Self::Stranger(theirs),
        }
    }
}

/// Those who are served now.
pub(super) struct Guests {
    room: Room,
    here: Mutex<Vec<Guest>>,
}

struct Guest {
    source: Source,
    number: u64,
    conversation: AbortHandle,
}

impl Guests {
    pub(super) fn new(room: Room) -> Arc<Self> {
        Arc::new(Self { room, here: Mutex::default() })
    }

    /// Has a conversation with a newcomer, in the place of another if there is no room.
    pub(super) fn admit(
        self: &Arc<Self>,
        source: Source,
        conversation: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut here = self.here();
        let sources: Vec<_> = here.iter().map(|guest| guest.source).collect();
        if let Some(place) = gives_way(&sources, source, self.room) {
            here.remove(place).conversation.abort();
        }
        let number = here.last().map_or(0, |last| last.number + 1);
        let guests = Arc::clone(self);
        let conversation = tokio::spawn(async move {
            conversation.await;
            guests.here().retain(|guest| guest.number != number);
        });
        here.push(Guest { source, number, conversation: conversation.abort_handle() });
    }

    fn here(&self) -> MutexGuard<'_, Vec<Guest>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose place a newcomer gets, of those who came one after the other; none if there is room.
fn gives_way(here: &[Source], newcomer: Source, room: Room) -> Option<usize> {
    let oldest_of = |is_meant: &dyn Fn(&Source) -> bool, most: usize| {
        let count = here.iter().filter(|guest| is_meant(guest)).count();
        here.iter().position(is_meant).filter(|_| count >= most)
    };
    match newcomer {
        Source::Node => oldest_of(&|guest| *guest == Source::Node, room.node),
        Source::Stranger(_) => oldest_of(&|guest| *guest == newcomer, room.one_source)
            .or_else(|| oldest_of(&|guest| *guest != Source::Node, room.strangers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { node: 2, strangers: 3, one_source: 2 };

    fn stranger(address: &str) -> Source {
        Source::of(SocketAddr::new(address.parse().unwrap(), 1), "10.0.0.1:8081".parse().unwrap())
    }

    #[test]
    fn the_node_itself_is_known_by_its_address_at_both_ends_or_by_loopback() {
        let source = |theirs: &str, ours: &str| Source::of(theirs.parse().unwrap(), ours.parse().unwrap());
        for (theirs, ours) in [
            ("127.0.0.1:1", "127.0.0.1:8081"),
            ("10.0.0.1:1", "10.0.0.1:8081"),
            ("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:8081"),
            ("[::1]:1", "[::1]:8081"),
            ("[fd00::1]:1", "[fd00::1]:8081"),
        ] {
            assert_eq!(source(theirs, ours), Source::Node, "{theirs}");
        }
        let v4 = Source::Stranger("10.0.0.2".parse().unwrap());
        assert_eq!(source("[::ffff:10.0.0.2]:1", "[::ffff:10.0.0.1]:8081"), v4);
        let v6 = Source::Stranger("fd00:0:0:7::".parse().unwrap());
        assert_eq!(source("[fd00:0:0:7::9]:1", "[fd00::1]:8081"), v6);
    }

    #[test]
    fn while_there_is_room_nobody_has_to_go() {
        let here = [stranger("10.0.0.2"), Source::Node, stranger("10.0.0.3")];
        for newcomer in [Source::Node, stranger("10.0.0.2"), stranger("10.0.0.4")] {
            assert_eq!(gives_way(&here, newcomer, ROOM), None, "{newcomer:?}");
        }
    }

    #[test]
    fn a_source_that_takes_too_much_gives_way_to_itself() {
        let here = [stranger("10.0.0.3"), stranger("10.0.0.2"), stranger("10.0.0.2")];
        assert_eq!(gives_way(&here, stranger("10.0.0.2"), ROOM), Some(1));
    }

    #[test]
    fn strangers_give_way_to_strangers_and_never_the_node_to_them_nor_they_to_the_node() {
        let here = [Source::Node, stranger("10.0.0.2"), stranger("10.0.0.3"), stranger("10.0.0.4")];
        assert_eq!(gives_way(&here, stranger("10.0.0.5"), ROOM), Some(1));
        assert_eq!(gives_way(&here, Source::Node, ROOM), None);
        let here = [stranger("10.0.0.2"), Source::Node, Source::Node];
        assert_eq!(gives_way(&here, Source::Node, ROOM), Some(1));
    }
}
