//! A port that stays ours until rank 0 listens on it, and afterwards.
//!
//! The launcher binds the port and keeps the socket for the life of the job, without listening. No
//! other program is then given this port by the system. Rank 0 can still bind and listen, because
//! both sockets allow addresses to be shared (`SO_REUSEADDR`) and ours does not listen.
//!
//! An explicit port could be bound by two launchers in the same way before either rank 0 listens. A
//! named lock in the system's table of sockets, next to the ports it guards, keeps them apart.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    os::fd::OwnedFd,
};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::{Error, Result};

/// A port held for a job.
#[derive(Debug)]
pub(crate) struct Reservation {
    port: NonZeroU16,
    /// Bound, not listening.
    _socket: OwnedFd,
    _lock: Option<Lock>,
}

impl Reservation {
    /// Holds `port`, or a free one if `port` is 0.
    ///
    /// # Errors
    /// [`Error::PortBusy`], [`Error::PortTaken`] or [`Error::PortRefused`] for an explicit port,
    /// [`Error::NoFreePort`] otherwise.
    pub(crate) fn new(port: u16) -> Result<Self> {
        match NonZeroU16::new(port) {
            Some(port) => Self::explicit(port),
            None => Self::free().map_err(|source| Error::NoFreePort { source }),
        }
    }

    /// The port held.
    pub(crate) fn port(&self) -> NonZeroU16 {
        self.port
    }

    fn free() -> io::Result<Self> {
        // Without sharing at first, so that the system picks a port that nobody else has bound.
        let socket = bind(0, false)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        let port = SocketAddr::try_from(net::getsockname(&socket)?)?.port();
        let port = NonZeroU16::new(port).ok_or_else(|| io::Error::other("no port was given"))?;
        let lock = Lock::acquire(port).ok();
        Ok(Self {
            port,
            _socket: socket,
            _lock: lock,
        })
    }

    fn explicit(port: NonZeroU16) -> Result<Self> {
        let number = port.get();
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => Error::PortBusy {
                port: number,
                source,
            },
            _ => Error::PortRefused {
                port: number,
                source,
            },
        };
        let socket = bind(number, true).map_err(refused)?;
        let lock = Lock::acquire(port).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::PortTaken { port: number },
            _ => Error::PortRefused {
                port: number,
                source,
            },
        })?;
        Ok(Self {
            port,
            _socket: socket,
            _lock: Some(lock),
        })
    }
}

/// Binds a port on all addresses of both families, or of IPv4 where there is no IPv6.
pub(crate) fn bind(port: u16, shared: bool) -> io::Result<OwnedFd> {
    match bind_to((Ipv6Addr::UNSPECIFIED, port).into(), shared) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind_to((Ipv4Addr::UNSPECIFIED, port).into(), shared)
        }
        result => result,
    }
}

fn bind_to(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    sockopt::set_socket_reuseaddr(&socket, shared)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// A lock that the system releases when its holder is gone, however it went.
#[derive(Debug)]
struct Lock {
    #[cfg(target_os = "linux")]
    _name: std::os::unix::net::UnixListener,
}

impl Lock {
    #[cfg(target_os = "linux")]
    fn acquire(port: NonZeroU16) -> io::Result<Self> {
        use std::os::{linux::net::SocketAddrExt as _, unix::net};
        let name = format!("accelerate-launch/port/{port}");
        let address = net::SocketAddr::from_abstract_name(name)?;
        Ok(Self {
            _name: net::UnixListener::bind_addr(&address)?,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn acquire(_port: NonZeroU16) -> io::Result<Self> {
        Ok(Self {})
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn rank_0_can_listen_on_a_port_that_is_held() {
        let held = Reservation::new(0).unwrap();
        let port = held.port().get();
        let server = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        drop(server);
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    }

    #[test]
    fn free_ports_differ_while_they_are_held() {
        let held: Vec<_> = (0..200).map(|_| Reservation::new(0).unwrap()).collect();
        let mut ports: Vec<_> = held.iter().map(Reservation::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), held.len());
    }

    #[test]
    fn a_port_with_a_listener_is_busy() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let error = Reservation::new(port).unwrap_err();
        assert!(
            matches!(error, Error::PortBusy { port: busy, .. } if busy == port),
            "{error:?}"
        );
    }

    #[test]
    fn two_launchers_cannot_hold_one_explicit_port() {
        let first = Reservation::new(0).unwrap();
        let port = first.port().get();
        assert!(matches!(
            Reservation::new(port),
            Err(Error::PortTaken { .. })
        ));
        drop(first);
        Reservation::new(port).unwrap();
    }
}
