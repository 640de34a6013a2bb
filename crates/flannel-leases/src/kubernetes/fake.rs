//! An API server that says what a test tells it to: for answers that a real one cannot be made to give.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;

use super::wire::{ListMeta, Node, NodeSpec, ObjectMeta};

/// What was asked: the method, the path with its query, the form, and whether it may be packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub method: String,
    pub path: String,
    pub accept: String,
    pub encoding: String,
}

impl Asked {
    pub(super) fn is_list(&self) -> bool {
        let query = self.path.strip_prefix("/api/v1/nodes");
        query.is_some_and(|query| query.is_empty() || query.starts_with("?resourceVersion"))
    }

    /// Whether it asks for the version of the store.
    fn is_of_version(&self) -> bool {
        self.path == "/api/v1/nodes?limit=1"
    }

    pub(super) fn is_of_metadata(&self) -> bool {
        self.accept.contains("PartialObjectMetadata")
    }
}

/// What is answered.
pub(super) enum Answer {
    /// A code and a body.
    Whole(u16, Vec<u8>),
    /// A body that is packed already.
    Packed(Vec<u8>),
    /// These bytes, and then nothing for as long as the asker stays.
    Stream(Vec<u8>),
    /// The connection is closed without a word.
    Close,
}

/// A server on a port of its own; its threads end with the test program.
pub(super) struct Fake {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// One whose memory is as new as its store.
    pub(super) fn start(answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at("1", answer)
    }

    /// One whose store has this version.
    pub(super) fn start_at(
        version: &'static str,
        answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let answer = move |asked: &Asked, before| match asked.is_of_version() {
            true => Answer::Whole(200, list(asked, [], version)),
            false => answer(asked, before),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self { port: listener.local_addr().unwrap().port(), asked: Arc::default() };
        let (asked, answer) = (Arc::clone(&fake.asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &asked, &*answer));
            }
        });
        fake
    }

    /// All that was asked so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers until the connection ends; an answer is told what was asked, and how often before.
fn serve(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked, usize) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(question) = read(&mut reader) {
        let before = {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(question.clone());
            asked.iter().filter(|one| **one == question).count() - 1
        };
        let sent = match answer(&question, before) {
            Answer::Whole(code, body) => {
                let head = format!("HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n", body.len());
                writer.write_all(&[head.as_bytes(), &body].concat())
            }
            Answer::Packed(body) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                writer.write_all(&[head.as_bytes(), &body].concat())
            }
            Answer::Stream(bytes) => {
                let head =
                    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", bytes.len());
                let body = if bytes.is_empty() { Vec::new() } else { [&bytes[..], b"\r\n"].concat() };
                let head = if bytes.is_empty() { head.trim_end_matches("0\r\n").to_owned() } else { head };
                writer.write_all(&[head.as_bytes(), &body].concat())
            }
            Answer::Close => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let (mut lines, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
            length = number.parse().ok()?;
        }
        lines.push(line.to_owned());
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
    let mut words = lines.first()?.split(' ');
    let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    Some(Asked {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        accept: header("accept: ").to_owned(),
        encoding: header("accept-encoding: ").to_owned(),
    })
}

/// Packed.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

/// An object in its wrapping.
pub(super) fn object(message: &impl Message) -> Vec<u8> {
    [b"k8s\0".to_vec(), field(2, &message.encode_to_vec())].concat()
}

/// An event of a watch.
pub(super) fn event(kind: &str, message: &impl Message) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, &object(message)))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

/// A node with flannel, whole.
pub(super) fn node(n: usize, version: &str) -> Node {
    let cidr = format!("10.{}.{}.0/24", n / 256, n % 256);
    let annotations = [
        ("kube-subnet-manager", "true".to_owned()),
        ("backend-type", "host-gw".to_owned()),
        ("backend-data", "null".to_owned()),
        ("public-ip", format!("192.0.{}.{}", n / 256, n % 256)),
    ];
    let annotations = annotations.map(|(key, value)| (format!("flannel.alpha.coreos.com/{key}"), value));
    Node {
        metadata: Some(ObjectMeta {
            name: format!("n{n}"),
            uid: format!("uid-{n}"),
            resource_version: version.to_owned(),
            creation_timestamp: None,
            annotations: annotations.into(),
            managed_fields: Vec::new(),
        }),
        spec: Some(NodeSpec { pod_cidr: cidr.clone(), pod_cidrs: vec![cidr] }),
    }
}

impl Node {
    /// The same under the name and the UID of another one.
    pub(super) fn named(mut self, name: &str) -> Self {
        if let Some(metadata) = &mut self.metadata {
            metadata.uid = name.replacen('n', "uid-", 1);
            name.clone_into(&mut metadata.name);
        }
        self
    }
}

/// A list, in the form in which it was asked for.
pub(super) fn list(asked: &Asked, nodes: impl IntoIterator<Item = Node>, version: &str) -> Vec<u8> {
    let strip = |node: Node| if asked.is_of_metadata() { Node { spec: None, ..node } } else { node };
    let metadata = ListMeta { resource_version: version.to_owned() }.encode_to_vec();
    let items = nodes.into_iter().flat_map(|node| field(2, &strip(node).encode_to_vec()));
    let raw: Vec<u8> = field(1, &metadata).into_iter().chain(items).collect();
    [b"k8s\0".to_vec(), field(1, b"kind"), field(2, &raw), field(3, b"")].concat()
}
