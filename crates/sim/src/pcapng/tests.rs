use std::time::Duration;

use farhaul_core::{datagram::Ecn, time::Instant};
use farhaul_link::DropCause;

use super::*;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Type and body of every block; both lengths must agree and the file end with a block.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let len = u32_at(file, 4) as usize;
        assert!(len.is_multiple_of(4) && len >= 12);
        assert_eq!(u32_at(file, len - 4) as usize, len);
        blocks.push((u32_at(file, 0), file[8..len - 4].to_vec()));
        file = &file[len..];
    }
    blocks
}

/// Code and value of every option; the list must be ended.
fn options(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        let (code, len) = (u16_at(bytes, 0), usize::from(u16_at(bytes, 2)));
        if code == 0 {
            assert_eq!(bytes, [0; 4]);
            return options;
        }
        options.push((code, bytes[4..4 + len].to_vec()));
        bytes = &bytes[4 + len.next_multiple_of(4)..];
    }
}

fn packet(head: &[u8], dropped: Option<DropCause>) -> Packet<'_> {
    Packet {
        at: Instant::EPOCH + Duration::from_nanos(5_000_000_001),
        link: 3,
        flow: Some(0),
        from: "10.99.0.1:20000".parse().unwrap(),
        to: "10.99.0.2:17992".parse().unwrap(),
        ecn: Ecn::Ect0,
        head,
        len: 1_000,
        dropped,
    }
}

fn file(packets: &[Packet<'_>]) -> Vec<u8> {
    let mut writer = Pcapng::new(Vec::new(), 3, "bottleneck").unwrap();
    for packet in packets {
        writer.on_packet(packet);
    }
    writer.finish().unwrap()
}

#[test]
fn the_file_has_its_description() {
    let blocks = blocks(&file(&[]));
    assert_eq!(blocks.len(), 2);
    let (kind, section) = &blocks[0];
    assert_eq!((*kind, u32_at(section, 0)), (SECTION, BYTE_ORDER));
    assert_eq!(options(&section[16..])[0].1, b"farhaul");
    let (kind, interface) = &blocks[1];
    assert_eq!((*kind, u16_at(interface, 0)), (INTERFACE, LINKTYPE_RAW));
    let options = options(&interface[8..]);
    assert_eq!(options[0], (OPTION_NAME, b"bottleneck".to_vec()));
    assert_eq!(options[1], (OPTION_RESOLUTION, vec![9]));
}

#[test]
fn a_packet_has_headers_that_add_up_and_the_head_of_its_payload() {
    let blocks = blocks(&file(&[packet(b"heads", None)]));
    let (kind, body) = &blocks[2];
    assert_eq!(*kind, ENHANCED_PACKET);
    let nanos = u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8));
    assert_eq!(nanos, 5_000_000_001);
    assert_eq!((u32_at(body, 12), u32_at(body, 16)), (33, 1_028));
    let ip = &body[20..53];
    assert_eq!(ip[..2], [0x45, 2]);
    assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 1_028);
    assert_eq!(
        internet_checksum(&ip[..20]),
        0,
        "a good header sums to nothing"
    );
    assert_eq!(ip[12..20], [10, 99, 0, 1, 10, 99, 0, 2]);
    assert_eq!(u16::from_be_bytes([ip[20], ip[21]]), 20_000);
    assert_eq!(u16::from_be_bytes([ip[24], ip[25]]), 1_008);
    assert_eq!(&ip[28..], b"heads");
    assert_eq!(body.len(), 20 + 36, "no options, padded");
}

#[test]
fn a_drop_has_a_reason_and_other_links_are_left_out() {
    let other = Packet {
        link: 2,
        ..packet(b"", None)
    };
    let blocks = blocks(&file(&[other, packet(b"", Some(DropCause::Queue))]));
    assert_eq!(blocks.len(), 3);
    let options = options(&blocks[2].1[20 + 28..]);
    assert_eq!(options, [(OPTION_COMMENT, b"dropped: queue".to_vec())]);
}

#[test]
fn a_disk_that_fills_up_is_reported_at_the_end() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Pcapng::new(Full(200), 3, "x").unwrap();
    for _ in 0..9 {
        writer.on_packet(&packet(b"", None));
    }
    let error = writer.finish().err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
