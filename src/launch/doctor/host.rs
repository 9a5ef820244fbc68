//! The machine as the sandbox must not see it: its addresses, and something that listens on all of them.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the listeners look whether somebody came.
const PAUSE: Duration = Duration::from_millis(20);
/// How often another port is tried where the one for IPv4 is taken for IPv6 or for UDP.
const TRIES: u8 = 16;
/// Bytes of a datagram that are read; ours are shorter.
const DATAGRAM: usize = 128;

/// The addresses of this machine, loopback's left out.
pub fn addresses() -> Vec<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let others = all.into_iter().filter(|each| !each.is_loopback());
    let mut addresses: Vec<IpAddr> = others.map(|each| each.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Listens on every address of this machine, for connections and for datagrams, until it is dropped.
#[derive(Debug)]
pub struct Listeners {
    /// One port for all of them.
    pub port: u16,
    /// What a datagram of ours begins with: nobody else knows it.
    pub token: String,
    heard: Arc<Mutex<BTreeSet<IpAddr>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Listeners {
    /// Begins to listen.
    pub fn open(token: &str) -> io::Result<Self> {
        let mut last = io::Error::from(ErrorKind::AddrInUse);
        for _ in 0..TRIES {
            match Sockets::open() {
                Ok(sockets) => return Self::listen(sockets, token),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn listen(sockets: Sockets, token: &str) -> io::Result<Self> {
        let mut listeners = Self {
            port: sockets.port,
            token: format!("{token} "),
            heard: Arc::default(),
            is_over: Arc::default(),
            threads: Vec::new(),
        };
        for tcp in sockets.tcp {
            listeners.spawn(move || match tcp.accept() {
                Ok((connection, _)) => connection.local_addr().map(|address| Some(address.ip())),
                Err(error) => Err(error),
            })?;
        }
        for udp in sockets.udp {
            let token = listeners.token.clone();
            listeners.spawn(move || {
                let mut bytes = [0; DATAGRAM];
                let count = udp.recv(&mut bytes)?;
                let text = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default());
                // Where it was sent to stands in it: the socket has all addresses.
                Ok(text.strip_prefix(&token).and_then(|to| to.parse().ok()))
            })?;
        }
        Ok(listeners)
    }

    fn spawn(
        &mut self,
        hear: impl Fn() -> io::Result<Option<IpAddr>> + Send + 'static,
    ) -> io::Result<()> {
        let (heard, is_over) = (Arc::clone(&self.heard), Arc::clone(&self.is_over));
        let thread = thread::Builder::new().name("doctor-hears".to_owned());
        self.threads.push(thread.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                match hear() {
                    Ok(address) => {
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        heard.extend(address.map(|address| address.to_canonical()));
                    }
                    // Nobody has come; or one has gone again, or no descriptor is left: later.
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?);
        Ok(())
    }

    /// The addresses of this machine at which somebody came.
    pub fn heard(&self) -> BTreeSet<IpAddr> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

struct Sockets {
    port: u16,
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Sockets {
    /// One port for TCP and UDP, over IPv4 and, where the machine has it, IPv6.
    fn open() -> io::Result<Self> {
        let first = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = first.local_addr()?.port();
        let (mut tcp, mut udp) = (
            vec![first],
            vec![UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?],
        );
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        // std's listener on [::] takes IPv4 too where the system is set so, and the port is then taken:
        // rustix makes one for IPv6 alone.
        match ipv6::tcp(all).and_then(|socket| Ok((socket, ipv6::udp(all)?))) {
            Ok((listener, socket)) => {
                tcp.push(listener);
                udp.push(socket);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
            // No IPv6 here.
            Err(_) => {}
        }
        for socket in &tcp {
            socket.set_nonblocking(true)?;
        }
        for socket in &udp {
            socket.set_nonblocking(true)?;
        }
        Ok(Self { port, tcp, udp })
    }
}

/// Sockets for IPv6 alone.
mod ipv6 {
    use std::io;
    use std::net::{SocketAddr, TcpListener, UdpSocket};
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

    const BACKLOG: i32 = 64;

    pub(super) fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
        let socket = bound(address, SocketType::STREAM)?;
        listen(&socket, BACKLOG)?;
        Ok(socket.into())
    }

    pub(super) fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
        Ok(bound(address, SocketType::DGRAM)?.into())
    }

    fn bound(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
        let socket = socket(AddressFamily::INET6, kind, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        sockopt::set_ipv6_v6only(&socket, true)?;
        bind(&socket, &address)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "somebody must come")]
    fn who_comes_is_heard_and_where() {
        let listeners = Listeners::open("token").expect("sockets");
        let at =
            |address: &str| SocketAddr::new(address.parse().expect("an address"), listeners.port);
        drop(std::net::TcpStream::connect(at("127.0.0.2")).expect("it listens"));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for text in ["token 127.0.0.3", "other 127.0.0.4", "token x"] {
            socket
                .send_to(text.as_bytes(), at("127.0.0.1"))
                .expect("it is sent");
        }
        let expected: BTreeSet<IpAddr> = [[127, 0, 0, 2].into(), [127, 0, 0, 3].into()].into();
        let due = Instant::now() + Duration::from_secs(5);
        while listeners.heard() != expected && Instant::now() < due {
            thread::sleep(PAUSE);
        }
        assert_eq!(listeners.heard(), expected);
    }

    #[test]
    fn loopback_is_no_address_of_the_machine() {
        assert!(addresses().iter().all(|address| !address.is_loopback()));
    }
}
