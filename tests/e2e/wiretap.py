"""What really left the proxy's namespace, seen by the kernel and not by the proxy.

An AF_PACKET socket on the link towards `net`, with a filter in the kernel that keeps every outgoing packet but ARP
and the inside of TCP connections: so every dial (the SYN), every DNS query, and whatever else there is.
The kernel queues a packet here before `sendto` or `connect` returns to the proxy; when a client has its
answer, everything the proxy sent before it is already waiting to be read.
"""

import ctypes
import dataclasses
import ipaddress
import socket
import struct

_ETH_P_ALL = 0x0003
_IPV4, _ARP, _IPV6 = 0x0800, 0x0806, 0x86DD
_TCP, _UDP, _ICMPV6 = 6, 17, 58
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SOL_PACKET, _PACKET_STATISTICS = 263, 6

# Classic BPF as (operation, jump if true, jump if false, operand); see linux/filter.h and bpf_common.h.
_LOAD_WORD, _LOAD_BYTE, _LOAD_BYTE_AT_X = 0x20, 0x30, 0x50
_X_FROM_HEADER_LENGTH, _AND, _JUMP, _IF_EQUAL, _RETURN = 0xB1, 0x54, 0x05, 0x15, 0x06
_ANCILLARY_PROTOCOL, _ANCILLARY_PACKET_TYPE = 0xFFFFF000, 0xFFFFF004
_OUTGOING = 4
_SYN, _SYN_OR_ACK = 0x02, 0x12
_FILTER = [
    (_LOAD_WORD, 0, 0, _ANCILLARY_PACKET_TYPE),
    (_IF_EQUAL, 0, 16, _OUTGOING),
    (_LOAD_WORD, 0, 0, _ANCILLARY_PROTOCOL),
    (_IF_EQUAL, 14, 0, _ARP),
    (_IF_EQUAL, 6, 0, _IPV6),
    (_IF_EQUAL, 0, 11, _IPV4),
    # IPv4: the protocol is at 9; TCP begins after the header, its flags at 13.
    (_LOAD_BYTE, 0, 0, 9),
    (_IF_EQUAL, 0, 9, _TCP),
    (_X_FROM_HEADER_LENGTH, 0, 0, 0),
    (_LOAD_BYTE_AT_X, 0, 0, 13),
    (_JUMP, 0, 0, 3),
    # IPv6: the protocol is at 6, the header always 40 long.
    (_LOAD_BYTE, 0, 0, 6),
    (_IF_EQUAL, 0, 4, _TCP),
    (_LOAD_BYTE, 0, 0, 53),
    # Both: the first packet of a connection has SYN without ACK.
    (_AND, 0, 0, _SYN_OR_ACK),
    (_IF_EQUAL, 1, 0, _SYN),
    (_RETURN, 0, 0, 0),
    (_RETURN, 0, 0, 0xFFFF),
    (_RETURN, 0, 0, 0),
]


@dataclasses.dataclass(frozen=True)
class Packet:
    """One packet: a `dial` (TCP SYN), a DNS `query` with the name it asks for, or `other`."""

    kind: str
    address: str
    port: int = 0
    name: str = ""


class Wiretap:
    """Packets that left through `device` of the namespace since the last `take`."""

    def __init__(self, network, namespace, device):
        with network.inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
        program = b"".join(struct.pack("HBBI", *instruction) for instruction in _FILTER)
        self._program = ctypes.create_string_buffer(program)  # must live while setsockopt reads it
        self._socket.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            struct.pack("HL", len(_FILTER), ctypes.addressof(self._program)),
        )
        # Room for the ten thousand connections of one test between two reads.
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind((device, _ETH_P_ALL))
        self._socket.setblocking(False)

    def sees_a_dial(self):
        """Whether a dial is among what it has seen since the last `take`, which this is one of."""
        return any(packet.kind == "dial" for packet in self.take())

    def take(self):
        """Everything seen since the last call. A packet the socket had no room for is an error, not a gap."""
        packets = []
        while True:
            try:
                data, (_, protocol, *_) = self._socket.recvfrom(65536)
            except BlockingIOError:
                break
            packets.append(_parse(protocol, data))
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        if dropped := struct.unpack("II", statistics)[1]:
            raise RuntimeError(f"the wiretap lost {dropped} packets")
        return [packet for packet in packets if packet]


def _parse(protocol, data):
    if protocol == _IPV4:
        transport, begin = data[9], (data[0] & 0xF) * 4
        address = str(ipaddress.IPv4Address(data[16:20]))
    elif protocol == _IPV6:
        transport, begin = data[6], 40
        address = str(ipaddress.IPv6Address(data[24:40]))
        if transport == _ICMPV6 and data[begin] in (133, 135, 136):
            return None  # neighbour discovery is IPv6's ARP
        if transport == 0 and address.startswith("ff02::"):
            return None  # the kernel's own multicast listener reports
    else:
        return Packet("other", f"protocol {protocol:#x}")
    if transport == _TCP:
        return Packet("dial", address, struct.unpack_from("!H", data, begin + 2)[0])
    if transport == _UDP:
        port = struct.unpack_from("!H", data, begin + 2)[0]
        if port == 53:
            return Packet("query", address, port, _question(data[begin + 8 :]))
        return Packet("other", address, port)
    return Packet("other", address)


def _question(message):
    labels, at = [], 12
    while at < len(message) and (length := message[at]):
        labels.append(message[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    return ".".join(labels).lower()
