//! The server against a plain TCP client.
#![allow(clippy::print_stdout, reason = "a test prints what it measured")]

mod flood;

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A server in a thread of its own, and where to find it.
fn start(limits: Limits, health: Arc<Health>) -> SocketAddr {
    start_at(local(), limits, health)
}

fn start_at(address: SocketAddr, limits: Limits, health: Arc<Health>) -> SocketAddr {
    let listener = bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(limits, listener, health)).unwrap();
    });
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Everything that the server says until it closes.
fn rest(mut client: TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// The status and the body that a request gets.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut client = connect(address);
    client.write_all(request.as_bytes()).unwrap();
    let answer = rest(client);
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn findings<const N: usize>(lines: [&str; N]) -> Vec<Finding> {
    lines.map(Finding::unlisted).into()
}

fn ready_with(notes: Vec<Finding>) -> Readiness {
    Readiness { ready: true, reasons: Vec::new(), notes }
}

fn unready(reasons: Vec<Finding>) -> Readiness {
    Readiness { ready: false, reasons, notes: Vec::new() }
}

fn owned<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(str::to_owned).into()
}

#[test]
fn a_daemon_whose_loop_hangs_says_so() {
    let health = Arc::new(Health::default());
    let address = start(LIMITS, Arc::clone(&health));
    let beat_before = |seconds| health.metrics.pulse.note(Instant::now() - Duration::from_secs(seconds));
    beat_before(89);
    assert_eq!(get(address, "/healthz").0, 200);
    beat_before(100);
    let (status, words) = get(address, "/healthz");
    assert!(
        status == 503 && words.starts_with("flanneld hangs: its loop has not come round for 10"),
        "{words}"
    );
    assert!(get(address, "/metrics").1.contains("\nflannel_loop_age_seconds 10"));
    beat_before(0);
    assert_eq!(get(address, "/healthz"), (200, "flanneld is running".to_owned()));
}

#[test]
fn a_daemon_is_alive_before_it_is_ready() {
    let address = start(LIMITS, Arc::default());
    assert_eq!(get(address, "/healthz"), (200, "flanneld is running".to_owned()));
    assert_eq!(get(address, "/readyz"), (503, "flanneld is not ready yet".to_owned()));
}

#[test]
fn readyz_says_in_its_first_line_what_go_says_and_why_in_the_next() {
    let health = Arc::<Health>::default();
    let address = start(LIMITS, Arc::clone(&health));
    let cases = [
        (ready_with(vec![]), (200, "flanneld is ready")),
        (
            unready(findings(["no lease yet", "link flannel.1:\nno vxlan"])),
            (503, "flanneld is not ready yet\nno lease yet\nlink flannel.1: no vxlan\n"),
        ),
        (
            ready_with(findings(["peer 10.244.7.0/24: its address is ours"])),
            (200, "flanneld is ready\npeer 10.244.7.0/24: its address is ours\n"),
        ),
    ];
    for (readiness, (status, body)) in cases {
        health.set_readiness(readiness);
        assert_eq!(get(address, "/readyz"), (status, body.to_owned()));
    }
}

#[test]
fn any_method_is_answered_and_any_other_path_is_not_found() {
    let address = start(LIMITS, Arc::default());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let request = format!("{method} /healthz?verbose HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(ask(address, &request), (200, "flanneld is running".to_owned()), "{method}");
    }
    assert_eq!(ask(address, "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), (200, String::new()));
    assert_eq!(ask(address, "GET /healthz HTTP/1.0\r\n\r\n"), (200, "flanneld is running".to_owned()));
    for path in ["/", "/healthz/", "/debug/pprof", "/HEALTHZ"] {
        assert_eq!(get(address, path), (404, "404 page not found\n".to_owned()), "{path}");
    }
}

#[test]
fn metrics_tell_whether_the_node_is_ready() {
    let health = Arc::<Health>::default();
    let address = start(LIMITS, Arc::clone(&health));
    let ready = || {
        let (status, body) = get(address, "/metrics");
        let lines: Vec<String> =
            body.lines().filter(|l| l.starts_with("flannel_ready")).map(str::to_owned).collect();
        (status, lines)
    };
    assert_eq!(ready(), (200, owned(["flannel_ready 0"])));
    health.set_readiness(ready_with(vec![]));
    assert_eq!(ready(), (200, owned(["flannel_ready 1"])));
    health.set_readiness(unready(vec![]));
    assert_eq!(ready(), (200, owned(["flannel_ready 0"])));
}

#[test]
fn a_second_request_on_one_connection_is_not_answered() {
    let address = start(LIMITS, Arc::default());
    let mut client = connect(address);
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(format!("{request}{request}").as_bytes()).unwrap();
    // The second request is thrown away with the connection, which may reach us as a reset.
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    assert_eq!(String::from_utf8(answer).unwrap().matches("HTTP/1.1 200 OK").count(), 1);
}

#[test]
fn a_head_without_end_is_refused() {
    let address = start(LIMITS, Arc::default());
    let mut client = connect(address);
    let long = format!("GET /healthz HTTP/1.1\r\nX: {}", "x".repeat(2 * LARGEST_HEAD));
    let _ = client.write_all(long.as_bytes());
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

#[test]
fn silent_clients_are_sent_away_and_do_not_keep_others_out() {
    let room = Room { node: 2, ..LIMITS.room };
    let address = start(Limits { room, head: Duration::from_millis(100), ..LIMITS }, Arc::default());
    let mut slow: Vec<_> = (0..4).map(|_| connect(address)).collect();
    // Those who had to give way hear of it at their next word or question.
    slow.iter_mut().for_each(|client| drop(client.write_all(b"GET /hea")));
    assert_eq!(get(address, "/healthz"), (200, "flanneld is running".to_owned()));
    for mut client in slow {
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
}

#[test]
fn a_head_that_comes_drop_by_drop_is_not_waited_for() {
    let address = start(Limits { head: Duration::from_millis(100), ..LIMITS }, Arc::default());
    let mut client = connect(address);
    let end = Instant::now() + PATIENCE;
    // The kernel tells of the end at the second word that nobody hears.
    while client.write_all(b"x").is_ok() {
        assert!(Instant::now() < end, "a drop every few milliseconds is taken for ever");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_port_that_is_taken_is_named_with_the_flag_that_changes_it() {
    let first = bind(local()).unwrap();
    let address = first.local_addr().unwrap();
    let expected = format!(
        "cannot serve health and metrics on {address}: Address already in use (os error 98); \
         stop the program that has this port, or choose another with --healthz-port"
    );
    assert_eq!(bind(address).map(drop).unwrap_err().to_string(), expected);
}

#[test]
fn a_port_that_is_given_up_in_a_moment_is_waited_for() {
    let first = bind(local()).unwrap();
    let address = first.local_addr().unwrap();
    let second = std::thread::spawn(move || bind(address).map(drop));
    drop(first);
    assert!(second.join().unwrap().is_ok());
}

#[test]
fn an_address_of_nobody_is_named_with_the_flag_that_changes_it() {
    let expected = "cannot serve health and metrics on 192.0.2.1:0: Cannot assign requested address (os error 99); \
                    no interface has this address: choose another with --healthz-ip";
    assert_eq!(bind("192.0.2.1:0".parse().unwrap()).map(drop).unwrap_err().to_string(), expected);
}

#[test]
fn all_addresses_means_both_families() {
    for all in ["0.0.0.0:0", "[::]:0"] {
        let listener = bind(all.parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        TcpStream::connect(("::1", port)).unwrap();
    }
}
