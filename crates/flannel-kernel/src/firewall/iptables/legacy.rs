//! The tables of legacy iptables as the kernel keeps them, read without its programs.
//!
//! Only to see whether a name stands in them: names of chains and comments are in there as they are. Asking for
//! a table that nobody has used would make it, so the kernel's list of tables is read first.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::netlink::NetlinkError;
use flannel_plan::family::Family;

const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// `struct ipt_getinfo` and its namesake of IPv6: the name, then hooks and counts, and the size at the end.
const INFO: usize = 84;
const NAME: usize = 32;
/// `struct ipt_get_entries`: the name and the size, aligned for what follows.
const HEADER: usize = (NAME + 4).next_multiple_of(align_of::<u64>());
/// A table may grow between the two questions.
const MOST_TRIES: usize = 5;

/// The bytes of a table of this thread's namespace; none if nobody has used it.
pub fn legacy_table(family: Family, table: &str) -> Result<Option<Vec<u8>>, NetlinkError> {
    if !names(family).is_some_and(|names| names.lines().any(|name| name == table)) {
        return Ok(None);
    }
    let (domain, level) = match family {
        Family::V4 => (AddressFamily::INET, libc::IPPROTO_IP),
        Family::V6 => (AddressFamily::INET6, libc::IPPROTO_IPV6),
    };
    let socket = rustix::net::socket_with(
        domain,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(rustix::net::ipproto::RAW),
    )?;
    for _ in 0..MOST_TRIES {
        let mut info = vec![0; INFO];
        info[..table.len()].copy_from_slice(table.as_bytes());
        ask(&socket, level, GET_INFO, &mut info)?;
        let size = info.last_chunk().map_or(0, |size| u32::from_ne_bytes(*size));
        let mut entries = vec![0; HEADER + usize::try_from(size).unwrap_or(0)];
        entries[..table.len()].copy_from_slice(table.as_bytes());
        entries[NAME..NAME + 4].copy_from_slice(&size.to_ne_bytes());
        match ask(&socket, level, GET_ENTRIES, &mut entries) {
            Ok(()) => return Ok(Some(entries.split_off(HEADER))),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

/// The tables that are used; none if the kernel has no legacy tables of the family at all.
pub(super) fn names(family: Family) -> Option<String> {
    let name = match family {
        Family::V4 => "ip_tables_names",
        Family::V6 => "ip6_tables_names",
    };
    std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok()
}

/// Asks the kernel about a table: it reads the question in `buffer` and writes the answer over it.
#[allow(unsafe_code, reason = "neither std nor rustix knows the options of iptables")]
fn ask(socket: &OwnedFd, level: i32, option: i32, buffer: &mut [u8]) -> Result<(), Errno> {
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: the descriptor is open for the whole call; the kernel writes at most `length` bytes, which is the
    // length of `buffer`, and the new length to `length`; both live until the call ends.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, buffer.as_mut_ptr().cast(), &raw mut length)
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
