//! Frames of a tunnel: a frame read is written and read to the same.

#[path = "../../crates/io/src/tunnel/frame.rs"]
mod frame;

pub(crate) fn run(data: &[u8]) {
    let mut stream = data;
    let mut bytes = vec![0; frame::LONGEST];
    while let Ok(Some(found)) = frame::read(&mut stream, &mut bytes) {
        let mut written = Vec::new();
        frame::write(&mut written, found.segment, &bytes[..found.len]).expect("a vector");
        let mut again = vec![0; frame::LONGEST];
        let read = frame::read(&mut &written[..], &mut again).expect("a frame");
        assert_eq!(read, Some(found));
        assert_eq!(again[..found.len], bytes[..found.len]);
    }
}
