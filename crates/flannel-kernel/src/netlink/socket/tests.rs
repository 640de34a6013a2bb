//! The socket against a kernel that is played by a thread: what the real one does too seldom for a test.

use std::thread;

use super::*;
use crate::abi::{IFLA_IFNAME, RTM_DELLINK};
use crate::netns::{Namespace, run_inside};

const ENTRY: u16 = 24;

/// One answer of the kernel: its kind, its flags, and the bytes behind the header.
type Answer = (u16, u16, Vec<u8>);

/// A socket whose kernel answers each request by the next list of answers.
fn socket_with(answers: Vec<Vec<Answer>>) -> Socket {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    thread::spawn(move || {
        for list in answers {
            let mut request = [0; 1024];
            let (_, length) = rustix::net::recv(&theirs, &mut request[..], RecvFlags::empty()).unwrap();
            let sequence = messages(&request[..length]).next().unwrap().sequence;
            for (kind, flags, payload) in list {
                let mut answer = Outbox::of(kind, flags, |message| message.header(&payload));
                answer.number_from(sequence);
                rustix::net::send(&theirs, answer.as_bytes(), SendFlags::empty()).unwrap();
            }
        }
    });
    Socket { fd: ours, port: 0, sequence: 0, inbox: vec![0; INBOX].into(), urgent: None, parting: None }
}

impl Socket {
    /// Lets the kernel lose the answers to whatever is sent next: those to requests before it fill the buffer.
    pub(crate) fn lose_answers(&mut self) {
        sockopt::set_socket_recv_buffer_size(&self.fd, 1).unwrap();
        self.send(&mut removals_of_nobody()).unwrap();
        // What is lost is lost until somebody has read the rest, however much room there is.
        sockopt::set_socket_recv_buffer_size(&self.fd, RECEIVE_BUFFER).unwrap();
    }
}

/// Requests that are all refused.
fn removals_of_nobody() -> Outbox {
    let mut batch = Outbox::default();
    for _ in 0..MOST_IN_A_CHUNK {
        batch.add(RTM_DELLINK, 0, |message| {
            message.header(&[0; 16]);
            message.text(IFLA_IFNAME, "nobody");
        });
    }
    batch
}

fn entry(flags: u16, value: u8) -> Answer {
    (ENTRY, flags, vec![value, 0, 0, 0])
}

fn done() -> Answer {
    (NLMSG_DONE, 0, vec![0; 4])
}

fn error(errno: Errno, flags: u16, rest: &[u8]) -> Answer {
    let code = (-errno.raw_os_error()).to_ne_bytes();
    (NLMSG_ERROR, flags, [&code, rest].concat())
}

fn dump(socket: &mut Socket, into: &mut Vec<u8>) -> Result<(), NetlinkError> {
    socket.dump(|| Outbox::of(26, 0, |_| ()), into, |message| message.payload.first().copied())
}

#[test]
fn an_interrupted_dump_is_thrown_away_and_repeated() {
    let torn = vec![entry(0, 1), entry(NLM_F_DUMP_INTR, 2), done()];
    let torn_at_the_end = vec![entry(0, 1), (NLMSG_DONE, NLM_F_DUMP_INTR, vec![0; 4])];
    let whole = vec![entry(0, 7), entry(0, 8), done()];
    let mut found = vec![99];
    dump(&mut socket_with(vec![torn, torn_at_the_end, whole]), &mut found).unwrap();
    assert_eq!(found, [99, 7, 8]);
}

#[test]
fn a_dump_that_is_always_interrupted_is_an_error_and_no_half_answer() {
    let torn = || vec![entry(NLM_F_DUMP_INTR, 1), done()];
    let mut found = vec![99];
    let why = dump(&mut socket_with((0..MOST_DUMPS).map(|_| torn()).collect()), &mut found).unwrap_err();
    assert_eq!(why.to_string(), "Interrupted system call: the table changed during every attempt to read it");
    assert_eq!(found, [99]);
}

#[test]
fn a_dump_that_ends_with_an_error_is_refused() {
    let code = (-Errno::NOENT.raw_os_error()).to_ne_bytes();
    let mut socket = socket_with(vec![vec![entry(0, 1), (NLMSG_DONE, 0, code.to_vec())]]);
    assert_eq!(dump(&mut socket, &mut Vec::new()), Err(Errno::NOENT.into()));
}

#[test]
fn the_kernels_words_are_found_behind_a_whole_and_a_capped_echo() {
    let words = Outbox::of(0, 0, |message| message.text(NLMSGERR_ATTR_MSG, "No."));
    let words = &words.as_bytes()[16..];
    let echo = |length: u32| [&length.to_ne_bytes()[..], &[0; 12]].concat();
    let capped = [echo(500), words.to_vec()].concat();
    let whole = [echo(21), vec![0; 8], words.to_vec()].concat();
    for (flags, rest) in [(NLM_F_ACK_TLVS | NLM_F_CAPPED, capped), (NLM_F_ACK_TLVS, whole)] {
        let mut socket = socket_with(vec![vec![error(Errno::INVAL, flags, &rest)]]);
        let why = socket.request(Outbox::of(16, 0, |message| message.header(&[0; 5]))).unwrap_err();
        assert_eq!(why, NetlinkError { errno: Errno::INVAL, message: Some("No.".into()) });
    }
}

#[test]
fn an_answer_that_is_too_long_is_an_error() {
    let long = (ENTRY, 0, vec![0; INBOX + 1000]);
    assert_eq!(dump(&mut socket_with(vec![vec![long]]), &mut Vec::new()), Err(Errno::MSGSIZE.into()));
}

#[test]
fn a_batch_whose_answers_do_not_fit_is_asked_again_one_by_one() {
    let refused = run_inside(&Namespace::Fresh, || {
        let mut socket = Socket::open().unwrap();
        sockopt::set_socket_recv_buffer_size(&socket.fd, 1).unwrap();
        socket.send_batch(&mut removals_of_nobody()).unwrap()
    });
    let refused: Vec<_> =
        refused.unwrap().into_iter().map(|it| (it.place, it.why.errno.raw_os_error(), it.repeated)).collect();
    let expected = (0..MOST_IN_A_CHUNK).map(|place| (place, Errno::NODEV.raw_os_error(), true));
    assert_eq!(refused, expected.collect::<Vec<_>>());
}
