//! The Tsunami UDP protocol's formats: whatever decodes encodes to the same bytes, and no more than a line
//! is waited for.

use farhaul_core::codec::Writer;
use farhaul_protocols::ttp::wire::{
    BlockHeader, FILE_INFO, Feedback, FileInfo, HEADER, MAX_LINE, NameCount, PARAMETERS, Parameters, Request,
    Verdict, directory, strings,
};

pub(crate) fn run(data: &[u8]) {
    if let Ok(header) = BlockHeader::decode(data) {
        let mut out = [0; HEADER as usize];
        header.encode(&mut Writer::new(&mut out)).expect("it fits");
        assert_eq!(out, data[..HEADER as usize]);
    }
    let mut out = Vec::new();
    if let Ok(parameters) = Parameters::decode(data) {
        parameters.encode(&mut out);
        assert_eq!(out, data[..PARAMETERS]);
    }
    out.clear();
    if let Ok(info) = FileInfo::decode(data) {
        info.encode(&mut out);
        assert_eq!(out, data[..FILE_INFO]);
    }
    out.clear();
    if let Ok(feedback) = Feedback::decode(data) {
        feedback.encode(&mut out);
        assert_eq!(Feedback::decode(&out), Ok(feedback));
    }
    out.clear();
    if let Ok(count) = NameCount::decode(data) {
        count.encode(&mut out);
        assert!(count.bytes.max(count.names) > 999_999_999 || NameCount::decode(&out) == Ok(count));
    }
    if let Some(Ok(verdict)) = data.first().copied().map(Verdict::decode) {
        assert_eq!(verdict.encode(), data[0]);
    }
    match Request::decode(data) {
        Ok(Some((request, len))) => {
            out.clear();
            request.encode(&mut out);
            assert_eq!(out[..len - 1], data[..len - 1]);
        }
        Ok(None) => assert!(data.len() < MAX_LINE),
        Err(_) => {}
    }
    assert!(strings(data).count() <= data.len());
    if let Ok(files) = directory(data) {
        assert!(files.is_none_or(|files| files.len() <= data.len()));
    }
}
