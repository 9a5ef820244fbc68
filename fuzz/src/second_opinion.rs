//! The decision a second time: the promises of the design, spelled out naively and without a look at
//! the library's table, so that the two have to be wrong in the same way to be wrong unnoticed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Who may open the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A rule for the host is enough.
    Public,
    /// The operator, by naming the network or the address.
    Restricted,
    /// Nobody.
    Never,
}

/// A rule, a network and a question in the plainest form there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    /// Host, as written in an authority, and port.
    pub(crate) grants: Vec<(String, u16)>,
    /// First address and prefix length.
    pub(crate) networks: Vec<(IpAddr, u8)>,
}

impl Policy {
    /// Whether a host may be asked for at all.
    pub(crate) fn permits(&self, host: &str, port: u16) -> bool {
        self.grants.contains(&(host.to_owned(), port))
    }

    /// Whether an address may be dialled.
    pub(crate) fn opens(&self, address: SocketAddr) -> bool {
        // A mapped address is dialled as the IPv4 address in it.
        if let IpAddr::V6(outer) = address.ip()
            && let Some(inner) = outer.to_ipv4_mapped()
            && !self.opens(SocketAddr::new(inner.into(), address.port()))
        {
            return false;
        }
        match reach(address.ip()) {
            Reach::Public => true,
            Reach::Never => false,
            Reach::Restricted => {
                let is_inside = |(first, length): &(IpAddr, u8)| {
                    first.is_ipv4() == address.is_ipv4()
                        && prefix(*first, *length) == prefix(address.ip(), *length)
                };
                let literal = match address.ip() {
                    IpAddr::V4(ip) => ip.to_string(),
                    IpAddr::V6(ip) => format!("[{ip}]"),
                };
                self.networks.iter().any(is_inside) || self.permits(&literal, address.port())
            }
        }
    }
}

/// The first bits of an address.
fn prefix(address: IpAddr, length: u8) -> u128 {
    let (bits, size) = match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let behind = size - u32::from(length);
    bits.checked_shr(behind).unwrap_or(0)
}

/// Who may open the way to an address.
pub(crate) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let metadata = [
        "100.80.80.80",
        "100.96.0.96",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
    ];
    if metadata.contains(&address.to_string().as_str()) {
        return Reach::Never;
    }
    match address.octets() {
        [0 | 127, ..] | [169, 254, ..] | [224..=239, ..] | [255, 255, 255, 255] => Reach::Never,
        // PCP and TURN anycast, the two globally reachable addresses of their block.
        [192, 0, 0, 9 | 10] => Reach::Public,
        [10, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        | [100, 64..=127, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Reach::Restricted,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    if is_never_v6(address) {
        return Reach::Never;
    }
    let embedded = embedded(address);
    if embedded
        .iter()
        .any(|inner| reach_v4(*inner) == Reach::Never)
    {
        return Reach::Never;
    }
    if starts_with(address, "64:ff9b::", 96) {
        return reach_v4(embedded[0]);
    }
    // Of what has been given out, the parts that are globally reachable and carry nothing.
    let anycast = ["2001:1::1", "2001:1::2", "2001:1::3"];
    let is_assigned = anycast.contains(&address.to_string().as_str())
        || starts_with(address, "2001:3::", 32)
        || starts_with(address, "2001:4:112::", 48)
        || starts_with(address, "2001:20::", 28)
        || starts_with(address, "2001:30::", 28);
    let is_special = starts_with(address, "2001::", 23)
        || starts_with(address, "2001:db8::", 32)
        || starts_with(address, "2002::", 16)
        || starts_with(address, "3fff::", 20);
    let is_unicast = starts_with(address, "2000::", 3);
    if is_unicast && (is_assigned || !is_special) && embedded.is_empty() {
        Reach::Public
    } else {
        Reach::Restricted
    }
}

fn is_never_v6(address: Ipv6Addr) -> bool {
    let metadata = [
        "fd00:42::42",
        "fd00:c1::a9fe:a9fe",
        "fd00:100::100:200",
        "fd00:a9fe:a9fe::1",
        "fd20:ce::254",
    ];
    metadata.contains(&address.to_string().as_str())
        || starts_with(address, "fd00:ec2::", 32)
        || address.is_unspecified()
        || address.is_loopback()
        || starts_with(address, "fe80::", 10)
        || starts_with(address, "ff00::", 8)
}

/// Every IPv4 address that a host, a router or a translator could read out of an IPv6 address.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let octets = address.octets();
    let at = |first: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|offset| octets[first + offset]);
        Ipv4Addr::new(a, b, c, d)
    };
    let mut found = Vec::new();
    let last = [
        ("::", 96),           // v4-compatible
        ("::ffff:0:0", 96),   // v4-mapped
        ("::ffff:0:0:0", 96), // SIIT
        ("64:ff9b::", 96),    // NAT64
        ("64:ff9b:1::", 48),  // local-use NAT64
    ];
    if last
        .iter()
        .any(|(first, length)| starts_with(address, first, *length))
    {
        found.push(at(12));
    }
    if starts_with(address, "2001::", 32) {
        // Teredo: the server, and the client behind it with its bits inverted.
        found.push(at(4));
        found.push(Ipv4Addr::from_bits(!at(12).to_bits()));
    }
    if starts_with(address, "2002::", 16) {
        // 6to4
        found.push(at(2));
    }
    if matches!(octets[8..12], [0 | 2, 0, 0x5e, 0xfe]) {
        // ISATAP
        found.push(at(12));
    }
    found
}

fn starts_with(address: Ipv6Addr, first: &str, length: u8) -> bool {
    let first: Ipv6Addr = first.parse().expect("an address");
    prefix(first.into(), length) == prefix(address.into(), length)
}
