//! A way to the API server that counts what goes through it, and can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A listener that passes on to the API server.
pub struct Proxy {
    pub port: u16,
    received: Arc<AtomicU64>,
    is_blocked: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// The threads end with the test program.
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            received: Arc::default(),
            is_blocked: Arc::default(),
            open: Arc::default(),
        };
        let (received, open) = (Arc::clone(&proxy.received), Arc::clone(&proxy.open));
        let is_blocked = Arc::clone(&proxy.is_blocked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                // Under the lock: what is not refused is there to be cut.
                let mut open = open.lock().unwrap();
                if is_blocked.load(Ordering::Relaxed) {
                    continue;
                }
                open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                drop(open);
                pass(client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::default());
                pass(server, client, Arc::clone(&received));
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// How many bytes have come from the server so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Refuses new connections, or takes them again.
    pub fn block(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Cuts every connection, and says how many there were.
    pub fn cut(&self) -> usize {
        let cut: Vec<_> = self.open.lock().unwrap().drain(..).collect();
        cut.iter().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }
}

/// A proxy that opens ways by CONNECT, as companies have them; counts them.
pub fn connect_proxy() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, opened) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&opened);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let server = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
            let server = TcpStream::connect(server).unwrap();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            pass(client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::default());
            pass(server, client, Arc::default());
        }
    });
    (port, opened)
}

fn pass(mut from: TcpStream, mut to: TcpStream, count: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::Relaxed);
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
