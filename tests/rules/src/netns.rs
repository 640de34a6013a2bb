//! A network namespace that sends and receives: of a node, or of a pod.
//!
//! Takes a path of a namespace, gives sockets in it. A socket stays where it was made, so no program is run there.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use flannel_lab::{Node, Pod, wait_for};
use flannel_plan::family::Family;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace of a node or a pod.
#[derive(Clone, Debug)]
pub struct Netns(PathBuf);

impl Netns {
    /// That of a node.
    pub fn of_node(node: &Node) -> Self {
        Self(format!("/proc/{}/ns/net", node.pid().unwrap()).into())
    }

    /// That of a pod.
    pub fn of_pod(pod: &Pod<'_>) -> Self {
        Self(pod.node().path(&format!("/run/netns/{}", pod.name())))
    }

    /// Runs a closure on a thread of its own in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = File::open(&self.0).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A socket for datagrams from an address.
    pub fn udp(&self, from: IpAddr, port: u16) -> UdpSocket {
        self.inside(|| once_free(|| UdpSocket::bind((from, port))))
    }

    /// A socket for datagrams to a group that come in by eth0.
    pub fn udp_of_group(&self, group: IpAddr, port: u16) -> UdpSocket {
        let socket = self.udp(Family::of(group).unspecified(), port);
        self.inside(|| match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &own_v4()),
            IpAddr::V6(group) => {
                socket.join_multicast_v6(&group, netdevice::name_to_index(&socket, "eth0").unwrap())
            }
        })
        .unwrap();
        socket
    }

    /// A socket that waits for connections to every address of one family.
    pub fn listener(&self, family: Family, port: u16) -> TcpListener {
        self.inside(|| once_free(|| TcpListener::bind((family.unspecified(), port))))
    }

    /// Connects, from an address or whatever the kernel chooses.
    pub fn connect(&self, from: IpAddr, to: SocketAddr, limit: Duration) -> Result<TcpStream, Errno> {
        self.inside(|| connect(from, to, limit))
    }
}

/// Binds to a port; a program that another test just starts may still hold a socket of before.
fn once_free<T>(mut bind: impl FnMut() -> std::io::Result<T>) -> T {
    wait_for("a free port", Duration::from_secs(5), || bind().map_err(|why| why.to_string())).unwrap()
}

/// Connects in the namespace of this thread.
pub(crate) fn connect(from: IpAddr, to: SocketAddr, limit: Duration) -> Result<TcpStream, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// The address by which this namespace reaches others: a datagram that is never sent tells.
fn own_v4() -> Ipv4Addr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((Ipv4Addr::new(10, 0, 255, 254), 9)).unwrap();
    match socket.local_addr().unwrap().ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}
