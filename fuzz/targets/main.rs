//! Fuzz targets: one function for each decoder and state machine, chosen by an environment variable.
#![no_main]

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/haul/tests/all/drive/mod.rs"]
mod haul_drive;

/// The modules of this folder, and a table of them by name.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*

        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::run)),*];
    };
}

targets! {
    bench_messages,
    closing,
    feedback,
    feedback_laws,
    fobs_session,
    fobs_wire,
    frame,
    gtp_session,
    gtp_wire,
    handshake_sealed,
    journal,
    lanes,
    listener,
    long,
    mtp_session,
    mtp_wire,
    pa_udp_session,
    pa_udp_wire,
    params,
    public_key,
    rbudp_session,
    rbudp_wire,
    reads,
    receiver,
    rudp_session,
    rudp_wire,
    rwtp_session,
    sabul_session,
    sabul_wire,
    sender,
    server,
    session,
    shell_session,
    short,
    ssh_lines,
    tcp_header,
    token,
    transfer,
    ttp_files,
    ttp_session,
    ttp_wire,
    tun_packet,
    tunnel_frame,
    udt_session,
    udt_wire,
}

/// The variable that names the target.
const VARIABLE: &str = "FARHAUL_FUZZ_TARGET";

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var(VARIABLE).unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{VARIABLE}={name}: no target of that name"))
        .1
});

fuzz_target!(|data: &[u8]| TARGET(data));
