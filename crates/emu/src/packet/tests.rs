use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// A UDP train over IPv4 of `len` payload bytes in segments of `segment`, as the kernel hands it over.
fn udp4(len: usize, segment: u16) -> Vec<u8> {
    let mut ip = vec![
        0x45, 0, 0, 0, 0x12, 0xff, 0x40, 0, 64, UDP, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2,
    ];
    put(&mut ip, 2, low16(28 + len));
    let udp = [0x10, 0x92, 0x46, 0x48, 0, 0, 0, 0];
    let mut packet = train(Gso::Udp, segment, 20, &ip, &udp, len);
    put(&mut packet, VNET + 24, low16(8 + len));
    finish(packet)
}

/// A TCP train with CWR, PSH and FIN set.
fn tcp4(len: usize, segment: u16) -> Vec<u8> {
    let mut ip = vec![
        0x45, 2, 0, 0, 0, 7, 0x40, 0, 64, TCP, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2,
    ];
    put(&mut ip, 2, low16(52 + len));
    finish(train(Gso::Tcp4, segment, 20, &ip, &tcp(), len))
}

fn udp6(len: usize, segment: u16) -> Vec<u8> {
    let mut ip = ip6(UDP, 8 + len);
    ip[1] = 0x20;
    let udp = [0x10, 0x92, 0x46, 0x48, 0, 0, 0, 0];
    let mut packet = train(Gso::Udp, segment, 40, &ip, &udp, len);
    put(&mut packet, VNET + 44, low16(8 + len));
    finish(packet)
}

fn tcp6(len: usize, segment: u16) -> Vec<u8> {
    let ip = ip6(TCP, 32 + len);
    finish(train(Gso::Tcp6, segment, 40, &ip, &tcp(), len))
}

fn ip6(protocol: u8, len: usize) -> Vec<u8> {
    let mut ip = vec![0; 40];
    ip[0] = 0x60;
    put(&mut ip, 4, low16(len));
    ip[6] = protocol;
    ip[7] = 64;
    ip[8] = 0xfd;
    ip[23] = 1;
    ip[24] = 0xfd;
    ip[39] = 2;
    ip
}

/// 32 bytes of TCP header: sequence number `0xffff_fff0`, flags CWR, ACK, PSH, FIN.
fn tcp() -> [u8; 32] {
    let mut tcp = [0; 32];
    tcp[4..8].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
    tcp[12] = 8 << 4;
    tcp[13] = 0x80 | 0x10 | 0x08 | 0x01;
    tcp
}

fn train(
    gso: Gso,
    segment: u16,
    csum_start: u16,
    ip: &[u8],
    transport: &[u8],
    len: usize,
) -> Vec<u8> {
    let vnet = VnetHeader {
        needs_csum: true,
        gso: if len > usize::from(segment) {
            gso
        } else {
            Gso::None
        },
        hdr_len: 0,
        gso_size: if len > usize::from(segment) {
            segment
        } else {
            0
        },
        csum_start,
        csum_offset: if gso == Gso::Udp { 6 } else { 16 },
    };
    let payload = (0..len).map(|i| low16(i).to_be_bytes()[1]);
    let mut packet = vnet.encode().to_vec();
    packet.extend_from_slice(ip);
    packet.extend_from_slice(transport);
    packet.extend(payload);
    packet
}

/// Fills in both checksums as the kernel does.
fn finish(mut packet: Vec<u8>) -> Vec<u8> {
    let anatomy = Anatomy::of(&packet).unwrap();
    let len = packet.len() - anatomy.transport_at;
    anatomy.leave_checksum_to_kernel(&mut packet, len);
    if anatomy.version == Version::V4 {
        sum_v4_header(&mut packet);
    }
    packet
}

/// The packet of a run, as it is written.
fn run(packet: &[u8], first: u16, count: u16, marked: bool) -> Vec<u8> {
    let anatomy = Anatomy::of(packet).unwrap();
    let mut run = anatomy
        .headers(packet, first, count, marked)
        .bytes()
        .to_vec();
    run.extend_from_slice(&packet[anatomy.payload(first, count)]);
    run
}

fn header_sum(packet: &[u8]) -> u16 {
    fold(add(0, &packet[VNET..VNET + 20]))
}

/// The transport checksum, finished as the receiving kernel would check it.
fn transport_is_consistent(packet: &[u8]) -> bool {
    let anatomy = Anatomy::of(packet).unwrap();
    let mut twin = packet.to_vec();
    let len = packet.len() - anatomy.transport_at;
    anatomy.leave_checksum_to_kernel(&mut twin, len);
    twin == packet
}

#[test]
fn the_whole_train_rebuilt_is_the_train() {
    for packet in [
        udp4(20_000, 1_472),
        tcp4(20_000, 1_448),
        tcp6(19_990, 1_428),
        udp6(20_000, 1_452),
    ] {
        let anatomy = Anatomy::of(&packet).unwrap();
        assert_eq!(anatomy.segments, 14);
        let rebuilt = run(&packet, 0, 14, false);
        // The kernel leaves the header length to us; everything else is equal.
        assert_eq!(rebuilt[..2], packet[..2]);
        assert_eq!(rebuilt[4..], packet[4..]);
    }
}

#[test]
fn segments_are_as_long_as_on_the_wire() {
    let packet = udp4(20_000, 1_472);
    let anatomy = Anatomy::of(&packet).unwrap();
    assert_eq!(anatomy.wire_len(0), 1_500);
    assert_eq!(anatomy.wire_len(13), 28 + 20_000 - 13 * 1_472);
    let sum: u64 = (0..14).map(|i| u64::from(anatomy.wire_len(i))).sum();
    assert_eq!(anatomy.run_wire_len(0, 14), sum);
    assert_eq!(Anatomy::of(&udp4(100, 1_472)).unwrap().segments, 1);
    assert_eq!(Anatomy::of(&udp4(0, 1_472)).unwrap().wire_len(0), 28);
}

#[test]
fn a_udp_run_has_its_own_lengths_identification_and_sums() {
    let packet = udp4(20_000, 1_472);
    let part = run(&packet, 3, 2, false);
    let vnet = VnetHeader::decode(&part).unwrap();
    assert_eq!(
        (vnet.gso, vnet.gso_size, vnet.hdr_len),
        (Gso::Udp, 1_472, 28)
    );
    assert_eq!(get(&part, VNET + 2), 28 + 2 * 1_472);
    assert_eq!(get(&part, VNET + 4), 0x12ff + 3);
    assert_eq!(get(&part, VNET + 24), 8 + 2 * 1_472);
    assert_eq!(header_sum(&part), 0xffff);
    assert!(transport_is_consistent(&part));
    let start = VNET + 28 + 3 * 1_472;
    assert_eq!(part[VNET + 28..], packet[start..start + 2 * 1_472]);
}

#[test]
fn a_run_of_one_is_a_plain_packet() {
    let last = run(&udp4(20_000, 1_472), 13, 1, false);
    let vnet = VnetHeader::decode(&last).unwrap();
    assert_eq!(
        (vnet.gso, vnet.gso_size, vnet.needs_csum),
        (Gso::None, 0, true)
    );
    assert_eq!(last.len() - VNET, 28 + 20_000 - 13 * 1_472);
    assert_eq!(Anatomy::of(&last).unwrap().segments, 1);
    assert!(transport_is_consistent(&last));
}

#[test]
fn tcp_sequence_and_flags_follow_the_segments() {
    for (packet, at) in [
        (tcp4(10_000, 1_448), VNET + 20),
        (tcp6(10_000, 1_448), VNET + 40),
    ] {
        let flags = |first, count| run(&packet, first, count, false)[at + 13];
        assert_eq!(flags(0, 3), 0x80 | 0x10);
        assert_eq!(flags(1, 3), 0x10);
        assert_eq!(flags(4, 3), 0x10 | 0x08 | 0x01);
        let part = run(&packet, 2, 2, false);
        let seq = u32::from_be_bytes(*part[at + 4..].first_chunk().unwrap());
        assert_eq!(seq, 0xffff_fff0_u32.wrapping_add(2 * 1_448));
        assert!(transport_is_consistent(&part));
    }
    let part = run(&tcp6(10_000, 1_448), 2, 2, false);
    assert_eq!(get(&part, VNET + 4), 32 + 2 * 1_448);
}

#[test]
fn a_mark_changes_the_ip_header_and_its_sum_only() {
    let packet = tcp4(10_000, 1_448);
    let part = run(&packet, 1, 2, true);
    assert_eq!(part[VNET + 1], 3);
    assert_eq!(header_sum(&part), 0xffff);
    assert_eq!(Anatomy::of(&part).unwrap().ecn, Ecn::Ce);
    let six = run(&tcp6(10_000, 1_448), 1, 2, true);
    assert_eq!(Anatomy::of(&six).unwrap().ecn, Ecn::Ce);
    assert_eq!(six[VNET] >> 4, 6);
}

#[test]
fn damage_is_one_bit_of_the_payload_behind_a_checksum_left_to_the_kernel() {
    // A single packet with a finished checksum, as a kernel without offload sends it.
    let mut packet = udp4(1_000, 1_472);
    packet[0] = 0;
    put(&mut packet, VNET + 26, 0x1234);
    let before = packet.clone();
    let anatomy = Anatomy::of(&packet).unwrap();
    anatomy.flip(&mut packet, 0, 8_001);
    let flipped: u32 = before[VNET + 28..]
        .iter()
        .zip(&packet[VNET + 28..])
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    assert_eq!(flipped, 1);
    assert!(VnetHeader::decode(&packet).unwrap().needs_csum);
    assert!(transport_is_consistent(&packet));

    let mut train = udp4(20_000, 1_472);
    let whole = train.clone();
    let anatomy = Anatomy::of(&train).unwrap();
    anatomy.flip(&mut train, 13, 5);
    let at = anatomy.payload(13, 1).start;
    assert_ne!(train[at], whole[at]);
    assert!(!Anatomy::of(&tcp4(100, 1_448)).unwrap().delivers_damage());
}

#[test]
fn what_is_not_understood_is_passed_unchanged() {
    assert_eq!(Anatomy::of(&[]), None);
    assert_eq!(Anatomy::of(&[0; 40]), None);
    let mut fragment = udp4(1_000, 1_472);
    put(&mut fragment, VNET + 6, 0x2000);
    assert!(!Anatomy::of(&fragment).unwrap().delivers_damage());
    let mut unknown = udp4(20_000, 1_472);
    unknown[1] = 3;
    assert_eq!(Anatomy::of(&unknown), None);
    let mut truncated = tcp4(20_000, 1_448);
    truncated.truncate(VNET + 30);
    assert_eq!(Anatomy::of(&truncated), None);
}

#[test]
fn headers_that_cannot_be_are_not_understood() {
    // A header of 60 bytes in a packet of 28, and one of 16.
    for first in [0x4f, 0x44] {
        let mut packet = udp4(0, 1_472);
        packet[VNET] = first;
        assert_eq!(Anatomy::of(&packet), None);
        fuzz_packet(&packet);
    }
    // A train whose transport header is said to begin within the IP header.
    for whole in [
        udp4(20_000, 1_472),
        tcp4(20_000, 1_448),
        udp6(20_000, 1_452),
        tcp6(20_000, 1_428),
    ] {
        for start in 0..80_u16 {
            let mut packet = whole.clone();
            packet[6..8].copy_from_slice(&start.to_ne_bytes());
            fuzz_packet(&packet);
        }
    }
}

/// A packet as a kernel would hand it over: either version, TCP or UDP, one segment or several.
fn a_packet() -> impl Strategy<Value = Vec<u8>> {
    let kinds: [fn(usize, u16) -> Vec<u8>; 4] = [udp4, tcp4, udp6, tcp6];
    let lengths = prop_oneof![0_usize..4, 0_usize..9_000];
    (0..kinds.len(), lengths, 1_u16..2_000)
        .prop_map(move |(kind, len, segment)| kinds[kind](len, segment))
}

proptest! {
    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        fuzz_packet(&bytes);
    }

    #[test]
    fn any_bytes_that_may_be_ip_never_panic(
        gso in prop_oneof![0_u8..6, any::<u8>()],
        size in 0_u16..300,
        start in 0_u16..80,
        first in prop_oneof![0x40_u8..0x50, 0x60_u8..0x70],
        protocol in prop_oneof![Just(TCP), Just(UDP), any::<u8>()],
        mut rest in vec(any::<u8>(), 0..400),
    ) {
        let six = first >= 0x60;
        if let Some(place) = rest.get_mut(if six { 5 } else { 8 }) {
            *place = protocol;
        }
        if let Some(offset) = rest.get_mut(5..7).filter(|_| !six) {
            offset.fill(0);
        }
        let mut bytes = vec![0; VNET];
        bytes[1] = gso;
        bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&start.to_ne_bytes());
        bytes.push(first);
        bytes.extend(rest);
        fuzz_packet(&bytes);
    }

    #[test]
    fn damaged_packets_never_panic(
        packet in a_packet(),
        // Half of the damage in the headers.
        damage in vec((prop_oneof![Just(90_usize), Just(usize::MAX)], any::<Index>(), 1_u8..), 0..5),
        cut in any::<Index>(),
        whole: bool,
    ) {
        let mut bytes = packet;
        for (within, at, bits) in damage {
            let at = at.index(bytes.len().min(within));
            bytes[at] ^= bits;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        fuzz_packet(&bytes);
    }

    #[test]
    fn every_run_of_a_train_is_a_packet_of_its_own(packet in a_packet(), ends in any::<[Index; 2]>()) {
        let anatomy = Anatomy::of(&packet).unwrap();
        let all = usize::from(anatomy.segments);
        let first = ends[0].index(all);
        let count = 1 + ends[1].index(all - first);
        let part = run(&packet, low16(first), low16(count), false);
        let rebuilt = Anatomy::of(&part).unwrap();
        prop_assert_eq!(usize::from(rebuilt.segments), count);
        prop_assert!(transport_is_consistent(&part));
        if anatomy.version == Version::V4 {
            prop_assert_eq!(header_sum(&part), 0xffff);
        }
        let payload = anatomy.payload(low16(first), low16(count));
        prop_assert_eq!(&part[rebuilt.payload_at..], &packet[payload]);
    }
}
