//! A road to etcd that can be cut and blocked.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Passes on what comes, until it is told not to.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    streams: Mutex<Vec<TcpStream>>,
    is_blocked: AtomicBool,
    is_over: AtomicBool,
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(far) = TcpStream::connect(("127.0.0.1", target)) {
                    shared.connect(near, far);
                }
            }
        });
        Self { port, state }
    }

    /// Ends every connection that there is.
    pub fn cut(&self) {
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets nothing through, and tells nobody.
    pub fn block(&self) {
        self.state.is_blocked.store(true, Ordering::SeqCst);
    }

    pub fn unblock(&self) {
        self.state.is_blocked.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn connect(self: &Arc<Self>, near: TcpStream, far: TcpStream) {
        let copies = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        self.streams.lock().unwrap().extend(copies);
        for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
            let state = self.clone();
            std::thread::spawn(move || state.pass_on(from, to));
        }
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream) {
        let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
        let mut buffer = [0; 65_536];
        while !self.is_over.load(Ordering::SeqCst) {
            if self.is_blocked.load(Ordering::SeqCst) {
                std::thread::yield_now();
                continue;
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if to.write_all(&buffer[..count]).is_ok() => {}
                Err(why) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&why.kind()) => {}
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
