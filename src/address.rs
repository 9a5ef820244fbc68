//! What an IP address is, before anybody decides whether it may be dialled.
//!
//! One table of special-purpose networks, and [`classify`], a total function over it. The classes fall
//! into three reaches: public; restricted, which an operator may open by `--allow-net` or by listing the
//! literal; and the *never-set*, which nothing opens.
//!
//! An IPv6 address may carry an IPv4 address. What is carried is classified first: any spelling of
//! `127.0.0.1` is loopback. The known spellings are v4-mapped and v4-compatible (RFC 4291 §2.5.5), SIIT
//! (RFC 2765 §2.1), NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380 §4) and ISATAP
//! (RFC 5214 §6.1). A translator's or a 6rd provider's *own* prefix cannot be told from any other public
//! address; whoever runs one next to private hosts has to filter there.
//!
//! Sources: IANA's special-purpose address registries (RFC 6890), compared with this table by
//! `scripts/check-iana`; the two multicast ranges; RFC 4291 §2.4 for what IPv6 has given out at all; and
//! the clouds' own documentation for metadata services outside link-local.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What kind of address it is: why it is refused, when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A host on the internet.
    Public,
    /// This host: 127/8, `::1`.
    Loopback,
    /// This link only, and where clouds keep their metadata services: 169.254/16, `fe80::/10`.
    LinkLocal,
    /// A group, not a host: 224/4, `ff00::/8`.
    Multicast,
    /// No address. Linux connects it to the local host: 0.0.0.0, `::`.
    Unspecified,
    /// Every host on the link: 255.255.255.255.
    Broadcast,
    /// "This network", meaningful only as a source: the rest of 0/8.
    ThisNetwork,
    /// A cloud's metadata or host service, outside link-local.
    Metadata,
    /// A private network: RFC 1918, and IPv6's deprecated site-local addresses.
    Private,
    /// A unique local address, IPv6's RFC 1918: `fc00::/7`.
    UniqueLocal,
    /// Shared address space: carrier-grade NAT, and overlays such as Tailscale: 100.64/10.
    Shared,
    /// For examples in documents.
    Documentation,
    /// For benchmarks between two devices.
    Benchmarking,
    /// Set aside, or never given out.
    Reserved,
    /// Behind a translator of the local network: `64:ff9b:1::/48`.
    Translated,
    /// Written in a transition mechanism's form, around an IPv4 address that is not in the never-set.
    Transition,
}

/// Who may open the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nobody.
    Never,
    /// The operator, by name of the network or of the address.
    Restricted,
    /// A rule for the host is enough.
    Public,
}

/// One network of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The network. No two rows have the same one.
    pub network: IpNet,
    /// What its addresses are, except where a longer prefix says otherwise.
    pub class: Class,
    /// The RFC, or the vendor's service, that says so.
    pub source: &'static str,
}

impl Class {
    /// Who may open the way to such an address.
    pub fn reach(self) -> Reach {
        self.facts().0
    }

    /// The stable code of a refusal for this reason.
    pub fn code(self) -> &'static str {
        self.facts().1
    }

    /// The same for a person, to stand after "it leads to".
    pub fn describe(self) -> &'static str {
        self.facts().2
    }

    #[rustfmt::skip]
    fn facts(self) -> (Reach, &'static str, &'static str) {
        use Reach::{Never, Public, Restricted};
        match self {
            Self::Public => (Public, "public_address", "a public address"),
            Self::Loopback => (Never, "loopback_address", "the loopback network"),
            Self::LinkLocal => (Never, "link_local_address", "a link-local address"),
            Self::Multicast => (Never, "multicast_address", "a multicast address"),
            Self::Unspecified => (Never, "unspecified_address", "the unspecified address"),
            Self::Broadcast => (Never, "broadcast_address", "the broadcast address"),
            Self::ThisNetwork => (Never, "this_network_address", "the network 0.0.0.0/8"),
            Self::Metadata => (Never, "metadata_address", "a cloud metadata service"),
            Self::Private => (Restricted, "private_address", "a private address"),
            Self::UniqueLocal => (Restricted, "unique_local_address", "a unique local address"),
            Self::Shared => (Restricted, "shared_address", "shared address space (carrier-grade NAT)"),
            Self::Documentation => (Restricted, "documentation_address", "an address for documentation"),
            Self::Benchmarking => (Restricted, "benchmarking_address", "an address for benchmarks"),
            Self::Reserved => (Restricted, "reserved_address", "a reserved address"),
            Self::Translated => (Restricted, "translated_address", "an address behind the local NAT64"),
            Self::Transition => (Restricted, "transition_address", "IPv4 in a transition form of IPv6"),
        }
    }
}

/// Every network that is told apart, one row each.
pub fn table() -> &'static [Row] {
    TABLE
}

/// What `address` is: by what it carries, then by the longest prefix that covers it.
///
/// 1. An address around a never-set IPv4 address is what that address is.
/// 2. Otherwise a prefix that is not public decides.
/// 3. A public prefix with an ISATAP interface identifier is a transition form.
/// 4. NAT64's well-known prefix is transparent: DNS64 gives its hosts nothing else to reach IPv4 by.
pub fn classify(address: IpAddr) -> Class {
    let prefix = longest_match(address);
    let IpAddr::V6(address) = address else {
        return prefix;
    };
    let [by_prefix, teredo_client, isatap] =
        carried(address).map(|found| found.map(|found| longest_match(found.address.into())));
    let mut classes = [by_prefix, teredo_client, isatap].into_iter().flatten();
    if let Some(never) = classes.find(|class| class.reach() == Reach::Never) {
        return never;
    }
    if prefix != Class::Public {
        return prefix;
    }
    if isatap.is_some() {
        return Class::Transition;
    }
    // NAT64's is the only prefix that both carries an address and is public.
    by_prefix.unwrap_or(Class::Public)
}

/// The class of `network`'s first address, if *every* address of `network` is in the never-set: a rule
/// for such a network could not match anything.
pub fn never(network: &IpNet) -> Option<Class> {
    let network = network.trunc();
    all_never(network).then(|| classify(network.network()))
}

/// An IPv4 address inside an IPv6 address.
#[derive(Clone, Copy)]
struct Carried {
    address: Ipv4Addr,
    /// The bit after its last one, counted as prefix lengths are.
    end: u8,
}

impl Carried {
    fn new(high: u16, low: u16, end: u8) -> Self {
        Self {
            address: ((u32::from(high) << 16) | u32::from(low)).into(),
            end,
        }
    }

    /// Whether a whole IPv6 network carries never-set addresses here, when its first address carries this.
    fn all_never(self, prefix_len: u8) -> bool {
        let varying = self.end.saturating_sub(prefix_len);
        let inner = Ipv4Net::new(self.address, 32_u8.saturating_sub(varying));
        inner.is_ok_and(|inner| all_never(inner.trunc().into()))
    }
}

/// The IPv4 addresses in `address`: the one its prefix promises, Teredo's second one, and an ISATAP
/// interface identifier's. Every place is looked at, because the forms nest.
#[expect(clippy::match_same_arms, reason = "one arm per form")]
fn carried(address: Ipv6Addr) -> [Option<Carried>; 3] {
    let at = |high, low, end| Some(Carried::new(high, low, end));
    let (by_prefix, teredo_client) = match address.segments() {
        // Unspecified and loopback, not the v4-compatible forms of 0.0.0.0 and 0.0.0.1.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => (None, None),
        // v4-compatible and v4-mapped
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => (at(high, low, 128), None),
        // SIIT
        [0, 0, 0, 0, 0xffff, 0, high, low] => (at(high, low, 128), None),
        // NAT64, and local-use NAT64 as a translator writes it that has a /96 of the /48. Shorter ones put
        // the address elsewhere (RFC 6052 §2.2). All of them are restricted whatever they carry, and a
        // /48's or /56's 32 zeros at the end make it 0.0.0.0 here.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (at(high, low, 128), None),
        [0x64, 0xff9b, 1, _, _, _, high, low] => (at(high, low, 128), None),
        // Teredo: the server, and the client with its bits inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            (at(server_high, server_low, 64), at(!high, !low, 128))
        }
        // 6to4
        [0x2002, high, low, ..] => (at(high, low, 48), None),
        _ => (None, None),
    };
    let isatap = match address.segments() {
        [.., 0 | 0x0200, 0x5efe, high, low] => at(high, low, 128),
        _ => None,
    };
    [by_prefix, teredo_client, isatap]
}

/// The class of the longest prefix that covers `address`, whatever the address carries.
fn longest_match(address: IpAddr) -> Class {
    let covering = TABLE.iter().filter(|row| row.network.contains(&address));
    let longest = covering.max_by_key(|row| row.network.prefix_len());
    // There is always one: 0.0.0.0/0 and ::/0 are rows.
    longest.map_or(Class::Reserved, |row| row.class)
}

/// Halves the network until no half has a more specific row inside, and asks each.
fn all_never(network: IpNet) -> bool {
    if let IpNet::V6(outer) = network {
        let mut inner = carried(outer.network()).into_iter().flatten();
        if inner.any(|inner| inner.all_never(outer.prefix_len())) {
            return true;
        }
    }
    let mut others = TABLE.iter().filter(|row| row.network != network);
    if others.any(|row| network.contains(&row.network)) {
        let halves = network.subnets(network.prefix_len().saturating_add(1));
        return halves.is_ok_and(|mut halves| halves.all(all_never));
    }
    longest_match(network.network()).reach() == Reach::Never
}

// Both are evaluated by the compiler: a prefix length that is too long does not build.
const fn v4(octets: [u8; 4], prefix_len: u8, class: Class, source: &'static str) -> Row {
    let network = Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), prefix_len);
    row(IpNet::V4(network), class, source)
}

const fn v6(segments: [u16; 8], prefix_len: u8, class: Class, source: &'static str) -> Row {
    let network = Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), prefix_len);
    row(IpNet::V6(network), class, source)
}

const fn row(network: IpNet, class: Class, source: &'static str) -> Row {
    Row {
        network,
        class,
        source,
    }
}

/// Ascending, a network before those inside it. The registries' blocks are all here, also where the
/// network around them has the same class, so that the two can be read side by side.
#[rustfmt::skip]
static TABLE: &[Row] = {
    use Class::{
        Benchmarking, Broadcast, Documentation, LinkLocal, Loopback, Metadata, Multicast, Private,
        Public, Reserved, Shared, ThisNetwork, Transition, Translated, UniqueLocal, Unspecified,
    };
    &[
        v4([  0,   0,   0,   0],  0, Public,        "RFC 791"),
        v4([  0,   0,   0,   0],  8, ThisNetwork,   "RFC 791 §3.2"),
        v4([  0,   0,   0,   0], 32, Unspecified,   "RFC 1122 §3.2.1.3"),
        v4([ 10,   0,   0,   0],  8, Private,       "RFC 1918"),
        v4([100,  64,   0,   0], 10, Shared,        "RFC 6598"),
        v4([100,  80,  80,  80], 32, Metadata,      "UCloud UHost metadata"),
        v4([100,  96,   0,  96], 32, Metadata,      "Volcano Engine ECS metadata"),
        v4([100, 100, 100, 200], 32, Metadata,      "Alibaba Cloud ECS metadata"),
        v4([127,   0,   0,   0],  8, Loopback,      "RFC 1122 §3.2.1.3"),
        v4([168,  63, 129,  16], 32, Metadata,      "Azure WireServer"),
        v4([169, 254,   0,   0], 16, LinkLocal,     "RFC 3927"),
        v4([172,  16,   0,   0], 12, Private,       "RFC 1918"),
        v4([192,   0,   0,   0], 24, Reserved,      "RFC 6890 §2.1"), // IETF protocol assignments
        v4([192,   0,   0,   0], 29, Reserved,      "RFC 7335"),      // DS-Lite and 464XLAT, inside a host
        v4([192,   0,   0,   8], 32, Reserved,      "RFC 7600"),      // the dummy address of ICMP errors
        v4([192,   0,   0,   9], 32, Public,        "RFC 7723"),      // PCP anycast
        v4([192,   0,   0,  10], 32, Public,        "RFC 8155"),      // TURN anycast
        v4([192,   0,   0, 170], 32, Reserved,      "RFC 8880"),      // ipv4only.arpa
        v4([192,   0,   0, 171], 32, Reserved,      "RFC 8880"),
        v4([192,   0,   0, 192], 32, Metadata,      "Oracle Cloud Classic metadata"),
        v4([192,   0,   2,   0], 24, Documentation, "RFC 5737"),
        v4([192,  31, 196,   0], 24, Public,        "RFC 7535"),      // AS112
        v4([192,  52, 193,   0], 24, Public,        "RFC 7450"),      // AMT
        v4([192,  88,  99,   0], 24, Reserved,      "RFC 7526"),      // the former 6to4 relays
        v4([192,  88,  99,   2], 32, Reserved,      "RFC 6751"),      // 6a44 relays
        v4([192, 168,   0,   0], 16, Private,       "RFC 1918"),
        v4([192, 175,  48,   0], 24, Public,        "RFC 7534"),      // AS112
        v4([198,  18,   0,   0], 15, Benchmarking,  "RFC 2544"),
        v4([198,  51, 100,   0], 24, Documentation, "RFC 5737"),
        v4([203,   0, 113,   0], 24, Documentation, "RFC 5737"),
        v4([224,   0,   0,   0],  4, Multicast,     "RFC 5771"),
        v4([240,   0,   0,   0],  4, Reserved,      "RFC 1112 §4"),
        v4([255, 255, 255, 255], 32, Broadcast,     "RFC 919 §7"),

        // Only 2000::/3 has been given out for unicast. The rest is reserved until a row says otherwise.
        v6([     0,      0,      0, 0,      0,      0,      0,      0],   0, Reserved,      "RFC 4291 §2.4"),
        v6([     0,      0,      0, 0,      0,      0,      0,      0],  96, Transition,    "RFC 4291 §2.5.5.1"), // v4-compatible
        v6([     0,      0,      0, 0,      0,      0,      0,      0], 128, Unspecified,   "RFC 4291 §2.5.2"),
        v6([     0,      0,      0, 0,      0,      0,      0,      1], 128, Loopback,      "RFC 4291 §2.5.3"),
        v6([     0,      0,      0, 0,      0, 0xffff,      0,      0],  96, Transition,    "RFC 4291 §2.5.5.2"), // v4-mapped
        v6([     0,      0,      0, 0, 0xffff,      0,      0,      0],  96, Transition,    "RFC 2765 §2.1"),     // SIIT
        v6([  0x64, 0xff9b,      0, 0,      0,      0,      0,      0],  96, Public,        "RFC 6052"),          // NAT64
        v6([  0x64, 0xff9b,      1, 0,      0,      0,      0,      0],  48, Translated,    "RFC 8215"),
        v6([ 0x100,      0,      0, 0,      0,      0,      0,      0],  64, Reserved,      "RFC 6666"),          // discarded
        v6([ 0x100,      0,      0, 1,      0,      0,      0,      0],  64, Reserved,      "RFC 9780"),          // dummy
        v6([0x2000,      0,      0, 0,      0,      0,      0,      0],   3, Public,        "RFC 4291 §2.4"),
        v6([0x2001,      0,      0, 0,      0,      0,      0,      0],  23, Reserved,      "RFC 2928"),          // IETF protocol assignments
        v6([0x2001,      0,      0, 0,      0,      0,      0,      0],  32, Transition,    "RFC 4380"),          // Teredo
        v6([0x2001,      1,      0, 0,      0,      0,      0,      1], 128, Public,        "RFC 7723"),          // PCP anycast
        v6([0x2001,      1,      0, 0,      0,      0,      0,      2], 128, Public,        "RFC 8155"),          // TURN anycast
        v6([0x2001,      1,      0, 0,      0,      0,      0,      3], 128, Public,        "RFC 9665"),          // DNS-SD anycast
        v6([0x2001,      2,      0, 0,      0,      0,      0,      0],  48, Benchmarking,  "RFC 5180"),
        v6([0x2001,      3,      0, 0,      0,      0,      0,      0],  32, Public,        "RFC 7450"),          // AMT
        v6([0x2001,      4,  0x112, 0,      0,      0,      0,      0],  48, Public,        "RFC 7535"),          // AS112
        v6([0x2001,   0x10,      0, 0,      0,      0,      0,      0],  28, Reserved,      "RFC 4843"),          // ORCHID, ended 2014
        v6([0x2001,   0x20,      0, 0,      0,      0,      0,      0],  28, Public,        "RFC 7343"),          // ORCHIDv2
        v6([0x2001,   0x30,      0, 0,      0,      0,      0,      0],  28, Public,        "RFC 9374"),          // drone identities
        v6([0x2001,  0xdb8,      0, 0,      0,      0,      0,      0],  32, Documentation, "RFC 3849"),
        v6([0x2002,      0,      0, 0,      0,      0,      0,      0],  16, Transition,    "RFC 3056"),          // 6to4
        v6([0x2620,   0x4f, 0x8000, 0,      0,      0,      0,      0],  48, Public,        "RFC 7534"),          // AS112
        v6([0x3fff,      0,      0, 0,      0,      0,      0,      0],  20, Documentation, "RFC 9637"),
        v6([0x5f00,      0,      0, 0,      0,      0,      0,      0],  16, Reserved,      "RFC 9602"),          // SRv6 segments
        v6([0xfc00,      0,      0, 0,      0,      0,      0,      0],   7, UniqueLocal,   "RFC 4193"),
        v6([0xfd00,   0x42,      0, 0,      0,      0,      0,   0x42], 128, Metadata,      "Scaleway metadata"),
        v6([0xfd00,   0xc1,      0, 0,      0,      0, 0xa9fe, 0xa9fe], 128, Metadata,      "Oracle Cloud metadata"),
        v6([0xfd00,  0x100,      0, 0,      0,      0,  0x100,  0x200], 128, Metadata,      "Alibaba Cloud ECS metadata"),
        // AWS numbers its host services in here (.254 metadata, .253 DNS, .123 time, .23 EKS credentials)
        // and may add more. Nobody else's random /48 (RFC 4193 §3.2) is likely to fall into it.
        v6([0xfd00,  0xec2,      0, 0,      0,      0,      0,      0],  32, Metadata,      "AWS EC2 host services"),
        v6([0xfd00, 0xa9fe, 0xa9fe, 0,      0,      0,      0,      1], 128, Metadata,      "Akamai (Linode) metadata"),
        v6([0xfd20,   0xce,      0, 0,      0,      0,      0,  0x254], 128, Metadata,      "Google Cloud metadata"),
        v6([0xfe80,      0,      0, 0,      0,      0,      0,      0],  10, LinkLocal,     "RFC 4291 §2.5.6"),
        // Site-local, deprecated: where it is still in use, it is in use as a private network.
        v6([0xfec0,      0,      0, 0,      0,      0,      0,      0],  10, Private,       "RFC 3879"),
        v6([0xff00,      0,      0, 0,      0,      0,      0,      0],   8, Multicast,     "RFC 4291 §2.7"),
    ]
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::Class::{
        Benchmarking, Broadcast, Documentation, LinkLocal, Loopback, Metadata, Multicast, Private,
        Public, Reserved, Shared, ThisNetwork, Transition, Translated, UniqueLocal, Unspecified,
    };
    use super::*;

    const CLASSES: [Class; 16] = [
        Public,
        Loopback,
        LinkLocal,
        Multicast,
        Unspecified,
        Broadcast,
        ThisNetwork,
        Metadata,
        Private,
        UniqueLocal,
        Shared,
        Documentation,
        Benchmarking,
        Reserved,
        Translated,
        Transition,
    ];

    /// For each row of the table, in its order: the class of the address before the network, of the first
    /// and the last one in it, and of the address after it. The ends of the address space have no neighbour.
    #[rustfmt::skip]
    const EDGES: &[(&str, &[Class])] = &[
        ("0.0.0.0/0",            &[Unspecified, Broadcast]),
        ("0.0.0.0/8",            &[Unspecified, ThisNetwork, Public]),
        ("0.0.0.0/32",           &[Unspecified, Unspecified, ThisNetwork]),
        ("10.0.0.0/8",           &[Public, Private, Private, Public]),
        ("100.64.0.0/10",        &[Public, Shared, Shared, Public]),
        ("100.80.80.80/32",      &[Shared, Metadata, Metadata, Shared]),
        ("100.96.0.96/32",       &[Shared, Metadata, Metadata, Shared]),
        ("100.100.100.200/32",   &[Shared, Metadata, Metadata, Shared]),
        ("127.0.0.0/8",          &[Public, Loopback, Loopback, Public]),
        ("168.63.129.16/32",     &[Public, Metadata, Metadata, Public]),
        ("169.254.0.0/16",       &[Public, LinkLocal, LinkLocal, Public]),
        ("172.16.0.0/12",        &[Public, Private, Private, Public]),
        ("192.0.0.0/24",         &[Public, Reserved, Reserved, Public]),
        ("192.0.0.0/29",         &[Public, Reserved, Reserved, Reserved]),
        ("192.0.0.8/32",         &[Reserved, Reserved, Reserved, Public]),
        ("192.0.0.9/32",         &[Reserved, Public, Public, Public]),
        ("192.0.0.10/32",        &[Public, Public, Public, Reserved]),
        ("192.0.0.170/32",       &[Reserved, Reserved, Reserved, Reserved]),
        ("192.0.0.171/32",       &[Reserved, Reserved, Reserved, Reserved]),
        ("192.0.0.192/32",       &[Reserved, Metadata, Metadata, Reserved]),
        ("192.0.2.0/24",         &[Public, Documentation, Documentation, Public]),
        ("192.31.196.0/24",      &[Public, Public, Public, Public]),
        ("192.52.193.0/24",      &[Public, Public, Public, Public]),
        ("192.88.99.0/24",       &[Public, Reserved, Reserved, Public]),
        ("192.88.99.2/32",       &[Reserved, Reserved, Reserved, Reserved]),
        ("192.168.0.0/16",       &[Public, Private, Private, Public]),
        ("192.175.48.0/24",      &[Public, Public, Public, Public]),
        ("198.18.0.0/15",        &[Public, Benchmarking, Benchmarking, Public]),
        ("198.51.100.0/24",      &[Public, Documentation, Documentation, Public]),
        ("203.0.113.0/24",       &[Public, Documentation, Documentation, Public]),
        ("224.0.0.0/4",          &[Public, Multicast, Multicast, Reserved]),
        ("240.0.0.0/4",          &[Multicast, Reserved, Broadcast]),
        ("255.255.255.255/32",   &[Reserved, Broadcast, Broadcast]),
        ("::/0",                 &[Unspecified, Multicast]),
        ("::/96",                &[Unspecified, Broadcast, Reserved]),
        ("::/128",               &[Unspecified, Unspecified, Loopback]),
        ("::1/128",              &[Unspecified, Loopback, Loopback, ThisNetwork]),
        ("::ffff:0:0/96",        &[Reserved, Unspecified, Broadcast, Reserved]),
        ("::ffff:0:0:0/96",      &[Reserved, Unspecified, Broadcast, Reserved]),
        ("64:ff9b::/96",         &[Reserved, Unspecified, Broadcast, Reserved]),
        ("64:ff9b:1::/48",       &[Reserved, Unspecified, Broadcast, Reserved]),
        ("100::/64",             &[Reserved, Reserved, Reserved, Reserved]),
        ("100:0:0:1::/64",       &[Reserved, Reserved, Reserved, Reserved]),
        ("2000::/3",             &[Reserved, Public, Public, Reserved]),
        ("2001::/23",            &[Public, Unspecified, Reserved, Public]),
        ("2001::/32",            &[Public, Unspecified, Broadcast, Reserved]),
        ("2001:1::1/128",        &[Reserved, Public, Public, Public]),
        ("2001:1::2/128",        &[Public, Public, Public, Public]),
        ("2001:1::3/128",        &[Public, Public, Public, Reserved]),
        ("2001:2::/48",          &[Reserved, Benchmarking, Benchmarking, Reserved]),
        ("2001:3::/32",          &[Reserved, Public, Public, Reserved]),
        ("2001:4:112::/48",      &[Reserved, Public, Public, Reserved]),
        ("2001:10::/28",         &[Reserved, Reserved, Reserved, Public]),
        ("2001:20::/28",         &[Reserved, Public, Public, Public]),
        ("2001:30::/28",         &[Public, Public, Public, Reserved]),
        ("2001:db8::/32",        &[Public, Documentation, Documentation, Public]),
        ("2002::/16",            &[Public, Unspecified, Broadcast, Public]),
        ("2620:4f:8000::/48",    &[Public, Public, Public, Public]),
        ("3fff::/20",            &[Public, Documentation, Documentation, Public]),
        ("5f00::/16",            &[Reserved, Reserved, Reserved, Reserved]),
        ("fc00::/7",             &[Reserved, UniqueLocal, UniqueLocal, Reserved]),
        ("fd00:42::42/128",      &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fd00:c1::a9fe:a9fe/128", &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fd00:100::100:200/128", &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fd00:ec2::/32",        &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fd00:a9fe:a9fe::1/128", &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fd20:ce::254/128",     &[UniqueLocal, Metadata, Metadata, UniqueLocal]),
        ("fe80::/10",            &[Reserved, LinkLocal, LinkLocal, Private]),
        ("fec0::/10",            &[LinkLocal, Private, Private, Multicast]),
        ("ff00::/8",             &[Private, Multicast, Multicast]),
    ];

    /// What an adversary would have dialled, by its row among the project's adversarial inputs (7.C), and
    /// what those leave open (no row).
    #[rustfmt::skip]
    const CASES: &[(&str, &str, Class)] = &[
        ("C1", "127.0.0.1", Loopback), ("C1", "127.0.0.53", Loopback), ("C1", "127.255.255.255", Loopback),
        ("C2", "0.0.0.0", Unspecified), ("", "0.0.0.1", ThisNetwork), ("", "0.255.255.255", ThisNetwork),
        ("C4", "169.254.169.254", LinkLocal),
        ("C5", "169.254.170.2", LinkLocal), ("C5", "169.254.170.23", LinkLocal), ("C5", "169.254.20.10", LinkLocal),
        ("C5", "169.254.0.0", LinkLocal), ("C5", "169.254.255.255", LinkLocal),
        ("C6", "100.100.100.200", Metadata), ("C7", "192.0.0.192", Metadata), ("C8", "168.63.129.16", Metadata),
        ("C9", "fd00:ec2::254", Metadata), ("C9", "fd00:ec2::253", Metadata), ("C9", "fd20:ce::254", Metadata),
        ("", "fd00:ec2::23", Metadata), ("", "fd00:ec3::254", UniqueLocal), ("", "fd20:ce::253", UniqueLocal),
        ("C11", "240.0.0.1", Reserved), ("C11", "255.255.255.254", Reserved), ("C12", "255.255.255.255", Broadcast),
        ("", "10.0.0.1", Private), ("", "172.16.0.1", Private), ("", "172.31.255.255", Private), ("", "192.168.1.1", Private),
        ("C14", "172.15.255.255", Public), ("C14", "172.32.0.1", Public), ("C14", "11.0.0.1", Public),
        ("C14", "126.255.255.255", Public), ("C14", "128.0.0.1", Public), ("C14", "169.253.255.255", Public),
        ("C14", "169.255.0.0", Public), ("C14", "223.255.255.255", Public),
        ("C15", "100.64.0.1", Shared), ("C15", "100.127.255.255", Shared),
        ("C15", "100.63.255.255", Public), ("C15", "100.128.0.0", Public),
        ("C16", "198.18.0.1", Benchmarking), ("C16", "192.0.2.1", Documentation), ("C16", "198.51.100.1", Documentation),
        ("C16", "203.0.113.1", Documentation), ("C16", "192.88.99.1", Reserved),
        ("C17", "::1", Loopback), ("C17", "0:0:0:0:0:0:0:1", Loopback), ("", "::", Unspecified),
        ("C19", "::ffff:127.0.0.1", Loopback), ("C19", "::ffff:7f00:1", Loopback), ("", "::ffff:0.0.0.0", Unspecified),
        ("", "::ffff:169.254.169.254", LinkLocal), ("", "::ffff:168.63.129.16", Metadata),
        ("", "::ffff:10.0.0.1", Transition), ("", "::ffff:8.8.8.8", Transition), ("C53", "::ffff:1.2.3.4", Transition),
        ("C21", "::127.0.0.1", Loopback), ("C21", "::7f00:1", Loopback), ("", "::169.254.169.254", LinkLocal),
        ("", "::2", ThisNetwork), ("", "::8.8.8.8", Transition), ("", "::10.0.0.1", Transition),
        ("C23", "64:ff9b::7f00:1", Loopback), ("C23", "64:ff9b::a9fe:a9fe", LinkLocal),
        ("C23", "64:ff9b::169.254.169.254", LinkLocal), ("", "64:ff9b::100.100.100.200", Metadata),
        ("C24", "64:ff9b::808:808", Public), ("", "64:ff9b::10.0.0.1", Private), ("", "64:ff9b::100.64.0.1", Shared),
        ("", "64:ff9b::192.0.2.1", Documentation), ("", "64:ff9b::0:1:808:808", Reserved),
        ("", "64:ff9b:1::808:808", Translated), ("", "64:ff9b:1::10.0.0.1", Translated),
        ("", "64:ff9b:1::7f00:1", Loopback), ("", "64:ff9b:1:abcd:1:2:a9fe:a9fe", LinkLocal),
        ("C26", "2002:7f00:1::", Loopback), ("C26", "2002:a9fe:a9fe::", LinkLocal), ("C26", "2002:e000:1::", Multicast),
        ("", "2002:808:808::1", Transition), ("", "2002:a00:1::1", Transition),
        ("C27", "2001:0:0:0:0:0:80ff:fffe", Unspecified), ("C27", "2001:0:808:808:0:0:80ff:fffe", Loopback),
        ("C27", "2001:0:7f00:1:0:0:f7f7:f7f7", Loopback), ("C27", "2001:0:808:808:8000:63bf:f7f7:f7f7", Transition),
        ("C28", "fe80::1", LinkLocal), ("C28", "febf::1", LinkLocal), ("C29", "fec0::1", Private),
        ("C30", "ff02::1", Multicast), ("C30", "ff0e::1", Multicast),
        ("C31", "fc00::1", UniqueLocal), ("C31", "fdff::1", UniqueLocal),
        ("C32", "100::1", Reserved), ("C32", "2001:db8::1", Documentation), ("", "3fff:fff::1", Documentation),
        ("C33", "2606:4700::5efe:7f00:1", Loopback), ("C33", "2606:4700::200:5efe:a9fe:a9fe", LinkLocal),
        ("C33", "2606:4700::5efe:808:808", Transition), ("C33", "2606:4700::200:5efe:a00:1", Transition),
        ("C33", "fe80::5efe:808:808", LinkLocal), ("C33", "fd12::5efe:808:808", UniqueLocal),
        ("C33", "fd12::5efe:7f00:1", Loopback), ("", "2606:4700::100:5efe:7f00:1", Public),
        ("C33", "2002:808:808::5efe:7f00:1", Loopback), ("C33", "2001:0:808:808:0:5efe:7f00:1", Loopback),
        ("C35", "::ffff:0:127.0.0.1", Loopback), ("", "::ffff:0:8.8.8.8", Transition),
        ("", "8.8.8.8", Public), ("", "1.1.1.1", Public), ("", "2606:4700:4700::1111", Public),
        ("", "1fff::1", Reserved), ("", "4000::1", Reserved), ("", "fe00::1", Reserved),
    ];

    #[test]
    fn cases() {
        for (row, address, class) in CASES {
            assert_eq!(
                classify(address.parse().unwrap()),
                *class,
                "{row} {address}"
            );
        }
    }

    #[test]
    fn edges() {
        for (network, classes) in EDGES {
            let network: IpNet = network.parse().unwrap();
            let (first, last) = (network.network(), network.broadcast());
            let around = [
                neighbour(first, -1),
                Some(first),
                Some(last),
                neighbour(last, 1),
            ];
            let found: Vec<Class> = around.into_iter().flatten().map(classify).collect();
            assert_eq!(found, *classes, "{network}");
        }
    }

    #[test]
    fn every_row_has_its_edges_tested() {
        let tested: Vec<IpNet> = EDGES
            .iter()
            .map(|(network, _)| network.parse().unwrap())
            .collect();
        let rows: Vec<IpNet> = table().iter().map(|row| row.network).collect();
        assert_eq!(tested, rows);
    }

    #[test]
    fn rows_are_networks_in_order_with_a_source() {
        assert!(table().is_sorted_by(|one, next| one.network < next.network));
        for row in table() {
            assert_eq!(row.network, row.network.trunc());
            assert!(!row.source.is_empty());
        }
    }

    #[test]
    fn codes_differ_and_are_snake_case() {
        let mut codes = CLASSES.map(Class::code).to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CLASSES.len());
        for code in codes {
            assert!(code.ends_with("_address"), "{code}");
            assert!(
                code.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{code}"
            );
        }
    }

    #[test]
    fn the_never_set_is_the_promised_one() {
        let never = CLASSES
            .into_iter()
            .filter(|class| class.reach() == Reach::Never);
        let promised = [
            Loopback,
            LinkLocal,
            Multicast,
            Unspecified,
            Broadcast,
            ThisNetwork,
            Metadata,
        ];
        assert!(never.eq(promised));
    }

    #[test]
    fn networks_no_rule_could_match() {
        #[rustfmt::skip]
        let cases = [
            ("127.0.0.0/8", Some(Loopback)), ("127.0.0.1/32", Some(Loopback)), ("127.1.2.3/8", Some(Loopback)),
            ("126.0.0.0/7", None), ("0.0.0.0/0", None), ("0.0.0.0/8", Some(Unspecified)), ("0.1.0.0/16", Some(ThisNetwork)),
            ("0.0.0.0/7", None), ("224.0.0.0/4", Some(Multicast)), ("224.0.0.0/3", None), ("239.1.0.0/16", Some(Multicast)),
            ("240.0.0.0/4", None), ("255.255.255.255/32", Some(Broadcast)), ("255.255.255.254/31", None),
            ("169.254.0.0/16", Some(LinkLocal)), ("169.254.0.0/15", None), ("10.0.0.0/8", None), ("100.64.0.0/10", None),
            ("100.100.100.200/32", Some(Metadata)), ("100.100.100.200/31", None), ("8.8.8.0/24", None),
            ("::/0", None), ("::/128", Some(Unspecified)), ("::/127", Some(Unspecified)), ("::/104", Some(Unspecified)),
            ("::/103", None), ("::/96", None), ("::1/128", Some(Loopback)), ("::7f00:0/104", Some(Loopback)),
            ("::ffff:127.0.0.0/104", Some(Loopback)), ("::ffff:127.0.0.0/103", None), ("::ffff:0:0/96", None),
            ("::ffff:0:127.0.0.0/104", Some(Loopback)), ("::ffff:10.0.0.0/104", None),
            ("64:ff9b::/96", None), ("64:ff9b::a9fe:0/112", Some(LinkLocal)), ("64:ff9b::808:808/128", None),
            ("64:ff9b:1::/48", None), ("64:ff9b:1::/64", None), ("64:ff9b:1::7f00:0/104", Some(Loopback)),
            ("2002::/16", None), ("2002:7f00::/24", Some(Loopback)), ("2002:7f00:1::/48", Some(Loopback)),
            ("2002:7e00::/23", None), ("2002:a00::/24", None), ("2001::/32", None), ("2001:0:7f00::/40", Some(Loopback)),
            ("2001:0:808:808::/64", None), ("2001:0:808:808:0:0:8000:0/104", Some(Loopback)),
            ("2001:0:808:808:0:0:8000:0/103", None), ("2606:4700::5efe:7f00:0/104", Some(Loopback)),
            ("2606:4700::5efe:0:0/96", None), ("2606:4700::200:5efe:a9fe:0/112", Some(LinkLocal)),
            ("fe80::/10", Some(LinkLocal)), ("fe80::/64", Some(LinkLocal)), ("fe80::/9", None), ("fec0::/10", None),
            ("ff00::/8", Some(Multicast)), ("fe00::/7", None), ("fc00::/7", None), ("fd00:ec2::/32", Some(Metadata)),
            ("fd00:ec2::/48", Some(Metadata)), ("fd00:ec2::/31", None), ("2000::/3", None), ("2001:db8::/32", None),
        ];
        for (network, class) in cases {
            assert_eq!(never(&network.parse().unwrap()), class, "{network}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn any_spelling_of_a_never_set_address_is_never_set(inner in ipv4(), form in form(), noise: u128) {
            let spelled = form(inner, noise);
            if classify(inner.into()).reach() == Reach::Never {
                prop_assert_eq!(classify(spelled.into()).reach(), Reach::Never, "{}", spelled);
            }
        }

        #[test]
        fn a_spelling_alone_makes_nothing_public(inner in ipv4(), form in form(), noise: u128) {
            let spelled = form(inner, noise);
            if classify(spelled.into()) == Public {
                prop_assert_eq!(spelled, nat64(inner, 0));
                prop_assert_eq!(classify(inner.into()), Public);
            }
        }

        #[test]
        fn nat64_is_transparent(inner in ipv4()) {
            prop_assert_eq!(classify(nat64(inner, 0).into()), classify(inner.into()));
        }

        /// The standard library knows the oldest ranges; the rest is spelled out in another way than the table's.
        #[test]
        fn ipv4_agrees_with_a_second_opinion(address in ipv4()) {
            let metadata = ["100.80.80.80", "100.96.0.96", "100.100.100.200", "168.63.129.16", "192.0.0.192"];
            let never = address.is_loopback() || address.is_link_local() || address.is_multicast()
                || address.is_broadcast() || address.octets()[0] == 0
                || metadata.contains(&address.to_string().as_str());
            let restricted = address.is_private() || address.is_documentation() || match address.octets() {
                [100, 64..=127, ..] | [198, 18 | 19, ..] | [192, 88, 99, _] | [240..=255, ..] => true,
                [192, 0, 0, last] => last != 9 && last != 10,
                _ => false,
            };
            let expected = match (never, restricted) {
                (true, _) => Reach::Never,
                (false, true) => Reach::Restricted,
                (false, false) => Reach::Public,
            };
            prop_assert_eq!(classify(address.into()).reach(), expected);
        }

        #[test]
        fn ipv6_outside_what_was_given_out_is_not_public(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            prop_assert!(bits >> 125 == 1 || classify(address.into()) != Public);
        }

        #[test]
        fn never_means_every_address(network in network(), picks: [u128; 8]) {
            if let Some(class) = never(&network) {
                prop_assert_eq!(class, classify(network.network()));
                for pick in picks {
                    let address = inside(network, pick);
                    prop_assert_eq!(classify(address).reach(), Reach::Never, "{} of {}", address, network);
                }
            } else if network.max_prefix_len() - network.prefix_len() <= 8 {
                prop_assert!(network.hosts().any(|address| classify(address).reach() != Reach::Never)
                    || classify(network.network()).reach() != Reach::Never
                    || classify(network.broadcast()).reach() != Reach::Never);
            }
        }
    }

    fn neighbour(address: IpAddr, step: i8) -> Option<IpAddr> {
        match address {
            IpAddr::V4(address) => {
                let bits = address.to_bits().checked_add_signed(step.into())?;
                Some(Ipv4Addr::from_bits(bits).into())
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits().checked_add_signed(step.into())?;
                Some(Ipv6Addr::from_bits(bits).into())
            }
        }
    }

    /// The address of `network` whose host bits are those of `pick`.
    fn inside(network: IpNet, pick: u128) -> IpAddr {
        match network {
            IpNet::V4(network) => {
                let low = (pick & u128::from(u32::MAX)).try_into().unwrap_or(0_u32);
                Ipv4Addr::from_bits(
                    network.network().to_bits() | (low & network.hostmask().to_bits()),
                )
                .into()
            }
            IpNet::V6(network) => Ipv6Addr::from_bits(
                network.network().to_bits() | (pick & network.hostmask().to_bits()),
            )
            .into(),
        }
    }

    /// Any IPv4 address; mostly one in, or just outside, a network of the table.
    fn ipv4() -> impl Strategy<Value = Ipv4Addr> {
        let rows: Vec<IpNet> = table()
            .iter()
            .map(|row| row.network)
            .filter(|network| network.addr().is_ipv4())
            .collect();
        let near = (select(rows), any::<u128>(), -1_i8..=1).prop_filter_map(
            "no neighbour",
            |(network, pick, step)| match neighbour(inside(network, pick), step)? {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            },
        );
        prop_oneof![4 => near, 1 => any::<Ipv4Addr>()]
    }

    /// Every way to write an IPv4 address into an IPv6 address, with noise in the bits that are free.
    fn form() -> impl Strategy<Value = fn(Ipv4Addr, u128) -> Ipv6Addr> {
        let forms: Vec<fn(Ipv4Addr, u128) -> Ipv6Addr> = vec![
            |inner, _| spell("::", inner, 0),           // v4-compatible
            |inner, _| spell("::ffff:0:0", inner, 0),   // v4-mapped
            |inner, _| spell("::ffff:0:0:0", inner, 0), // SIIT
            nat64,
            |inner, noise| with(spell("64:ff9b:1::", inner, 0), noise, 48..96), // local-use NAT64
            |inner, noise| with(spell("2002::", inner, 80), noise, 48..128),    // 6to4
            |inner, noise| with(spell("2001::", inner, 64), noise, 64..128), // Teredo, the server
            |inner, noise| with(spell("2001::", inverted(inner), 0), noise, 32..96), // the client
            |inner, noise| with(spell("::5efe:0:0", inner, 0), noise, 0..64), // ISATAP
            |inner, noise| with(spell("::200:5efe:0:0", inner, 0), noise, 0..64),
            |inner, noise| with(spell("2606:4700::5efe:0:0", inner, 0), noise, 32..64),
            |inner, noise| with(spell("2002::5efe:0:0", inner, 0), noise, 16..64), // ISATAP in a 6to4 site
        ];
        any::<Index>().prop_map(move |index| *index.get(&forms))
    }

    fn nat64(inner: Ipv4Addr, _noise: u128) -> Ipv6Addr {
        spell("64:ff9b::", inner, 0)
    }

    fn inverted(inner: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(!inner.to_bits())
    }

    fn spell(prefix: &str, inner: Ipv4Addr, shift: u32) -> Ipv6Addr {
        let prefix: Ipv6Addr = prefix.parse().unwrap();
        Ipv6Addr::from_bits(prefix.to_bits() | (u128::from(inner.to_bits()) << shift))
    }

    /// `noise` in the bits from the first of the range to before the last, counted as prefix lengths are.
    fn with(address: Ipv6Addr, noise: u128, bits: std::ops::Range<u32>) -> Ipv6Addr {
        let after = |bit: u32| u128::MAX.checked_shr(bit).unwrap_or(0);
        Ipv6Addr::from_bits(address.to_bits() | (noise & after(bits.start) & !after(bits.end)))
    }

    /// Networks of every size, in and around those of the table and the spellings of IPv4.
    fn network() -> impl Strategy<Value = IpNet> {
        let rows: Vec<IpNet> = table().iter().map(|row| row.network).collect();
        let in_row =
            (select(rows), any::<u128>()).prop_map(|(network, pick)| inside(network, pick));
        let spelled = (ipv4(), form(), any::<u128>())
            .prop_map(|(inner, form, noise)| form(inner, noise).into());
        (prop_oneof![in_row, spelled], 0_u8..=128).prop_map(|(address, prefix_len)| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, prefix_len.min(most)).unwrap().trunc()
        })
    }
}
