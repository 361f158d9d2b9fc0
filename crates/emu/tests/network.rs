//! Tests that the emulated network behaves as configured, with real sockets and the real kernel on
//! two hosts. The tests need root (or user namespaces) and `/dev/net/tun`; they say so and pass
//! where these are missing.
//!
//! Assertions hold on a machine of any load: counts, contents, order of magnitude never shorter
//! than configured; never that something was fast.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; a skipped one says why"
)]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use farhaul_core::{
    rng::Rng,
    units::{Rate, Size},
};
use farhaul_emu::{
    Host, Service,
    wan::{Wan, WanConfig, WanError, run},
};
use farhaul_link::{Aqm, DropCause, Loss, PathConfig, QueueLimit, Step};
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The network, or `None` with a word why not.
fn network(config: &WanConfig) -> Option<Wan> {
    match Wan::start(config) {
        Ok(wan) => Some(wan),
        Err(WanError::Setup(error)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A clean network at 10 Gbit/s, changed from near to far by `change`.
fn config(mtu: u32, change: impl FnOnce(&mut PathConfig)) -> WanConfig {
    let mut path = PathConfig {
        rate: Rate::gbit(10),
        queue: QueueLimit::Bytes(Size::from_bytes(64_000_000)),
        ..PathConfig::default()
    };
    change(&mut path);
    WanConfig {
        near_to_far: path,
        mtu,
        ..WanConfig::default()
    }
}

fn socket(host: &Host, v6: bool) -> UdpSocket {
    let address = address(host, v6);
    let socket = host.run(move || UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn address(host: &Host, v6: bool) -> SocketAddr {
    if v6 {
        (host.address6(), 0).into()
    } else {
        (host.address(), 0).into()
    }
}

/// Sends trains of numbered datagrams from near to far with segmentation offload, and answers the
/// numbers of those that arrived undamaged, in order of arrival.
fn trains(wan: &Wan, segment: usize, count: u32, v6: bool) -> Vec<u32> {
    let mut receiver = offloaded(wan.far(), v6);
    let mut sender = offloaded(wan.near(), v6);
    let to = receiver.local_addr().unwrap();
    let datagrams: Vec<u8> = (0..count)
        .flat_map(|number| datagram(number, segment))
        .collect();
    for train in datagrams.chunks(segment * (65_000 / segment)) {
        let outcome = sender.send(&Outgoing {
            to,
            from: None,
            ecn: farhaul_link::Ecn::Ect0,
            segment,
            bytes: train,
        });
        assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
    }
    let mut inbox = Inbox::new();
    let mut arrived = Vec::new();
    loop {
        match receiver.receive(&mut inbox) {
            ReceiveOutcome::Some { .. } => {
                for message in inbox.messages() {
                    let datagrams = message.bytes.chunks(message.segment);
                    arrived.extend(datagrams.filter_map(|bytes| number(bytes, segment)));
                }
            }
            // Silence for so long means that nothing is on its way.
            ReceiveOutcome::Empty if silent(&receiver) => return arrived,
            ReceiveOutcome::Empty => {}
            other => panic!("{other:?}"),
        }
    }
}

fn offloaded(host: &Host, v6: bool) -> farhaul_udp::UdpSocket {
    let options = SocketOptions::new(address(host, v6));
    host.run(move || farhaul_udp::UdpSocket::bind(&options))
        .unwrap()
}

fn silent(socket: &farhaul_udp::UdpSocket) -> bool {
    let timeout = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)).unwrap() == 0
}

/// The number of an undamaged datagram.
fn number(bytes: &[u8], segment: usize) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    (bytes == datagram(number, segment)).then_some(number)
}

/// A datagram whose every byte depends on its number.
fn datagram(number: u32, segment: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend((4..segment).map(|i| (number.wrapping_mul(31) as usize + i).to_le_bytes()[0]));
    bytes
}

#[test]
fn trains_arrive_whole_and_in_order() {
    for (mtu, v6) in [(1_500, false), (9_000, false), (1_500, true), (9_000, true)] {
        let Some(wan) = network(&config(mtu, |_| {})) else {
            return;
        };
        let segment = mtu as usize - if v6 { 48 } else { 28 };
        let arrived = trains(&wan, segment, 400, v6);
        assert_eq!(arrived, (0..400).collect::<Vec<_>>(), "mtu {mtu}, v6 {v6}");
        let report = wan.finish().unwrap();
        assert!(report.near_to_far.offered_packets >= 400);
        assert_eq!(report.near_to_far.dropped(DropCause::Random), 0);
    }
}

#[test]
fn segments_of_a_train_are_lost_one_by_one() {
    let Some(wan) = network(&config(1_500, |path| path.loss = Loss::Random(0.1))) else {
        return;
    };
    let arrived = trains(&wan, 1_472, 5_000, false);
    let report = wan.finish().unwrap().near_to_far;
    let lost = report.dropped(DropCause::Random);
    // 99.9 % interval of 5,000 draws at 10 %, and the few packets that are not ours.
    assert!((425..=580).contains(&lost), "{lost}");
    assert!(arrived.is_sorted());
    assert!(arrived.len() as u64 + lost >= 5_000);
    assert!(report.packets_per_read > 10.0, "{report:?}");
}

#[test]
fn damage_reaches_the_application() {
    let Some(wan) = network(&config(1_500, |path| path.corrupt = 0.2)) else {
        return;
    };
    let undamaged = trains(&wan, 1_472, 1_000, false).len() as u64;
    let report = wan.finish().unwrap().near_to_far;
    assert!((140..=260).contains(&report.corrupted), "{report:?}");
    // The receiver got every datagram; those that are missing here had a flipped bit.
    assert_eq!(report.delivered_packets, report.offered_packets);
    assert!(undamaged + report.corrupted >= 1_000);
    assert!(undamaged < 900);
}

#[test]
fn queue_management_marks_segments_of_trains() {
    let path = config(1_500, |path| {
        path.rate = Rate::mbit(200);
        path.aqm = Some(Aqm::Codel {
            target: Duration::from_millis(1),
            interval: Duration::from_millis(5),
        });
    });
    let Some(wan) = network(&path) else {
        return;
    };
    let arrived = trains(&wan, 1_472, 2_000, false);
    let report = wan.finish().unwrap().near_to_far;
    assert!(report.marked > 3, "{report:?}");
    assert_eq!(report.dropped(DropCause::QueueManagement), 0);
    assert!(arrived.is_sorted());
    assert_eq!(arrived.len(), 2_000);
}

#[test]
fn tcp_delivers_every_byte_through_loss_duplication_and_reordering() {
    let config = WanConfig::symmetric(PathConfig {
        loss: Loss::Random(0.01),
        duplicate: 0.01,
        corrupt: 0.001,
        jitter: Some("1ms,reorder".parse().unwrap()),
        delay: Duration::from_millis(1),
        ..PathConfig::default()
    });
    let Some(wan) = network(&config) else {
        return;
    };
    let listener = wan.far().run(|| TcpListener::bind("10.99.0.2:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let mut data = vec![0; 4_000_000];
    Rng::new(3).fill(&mut data);
    let sent = data.clone();
    let mut sender = wan.near().run(move || TcpStream::connect(to)).unwrap();
    let sending = thread::spawn(move || sender.write_all(&sent));
    let (mut receiver, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    receiver.read_to_end(&mut got).unwrap();
    sending.join().unwrap().unwrap();
    assert!(got == data);
}

#[test]
fn the_stack_gets_a_thread_where_tcp_arrives_and_only_there() {
    let Some(wan) = network(&config(9_000, |_| {})) else {
        return;
    };
    let threaded =
        |host: &Host| host.run(|| std::fs::read_to_string("/sys/class/net/wan0/threaded"));
    let (Ok(near), Ok(far)) = (threaded(wan.near()), threaded(wan.far())) else {
        println!("skipped: /sys does not show the hosts' devices");
        return;
    };
    assert_eq!((near.trim(), far.trim()), ("0", "0"));
    trains(&wan, 8_000, 100, false);
    assert_eq!(threaded(wan.far()).unwrap().trim(), "0");

    let listener = wan.far().run(|| TcpListener::bind("10.99.0.2:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let mut sender = wan.near().run(move || TcpStream::connect(to)).unwrap();
    let sending = thread::spawn(move || sender.write_all(&vec![7; 4_000_000]));
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.read_to_end(&mut Vec::new()).unwrap();
    sending.join().unwrap().unwrap();
    assert_eq!(threaded(wan.far()).unwrap().trim(), "1");
    assert_eq!(threaded(wan.near()).unwrap().trim(), "0");
}

#[test]
fn nothing_arrives_before_its_time() {
    let path = config(1_500, |path| {
        path.delay = Duration::from_millis(10);
        path.delay_steps = vec![Step {
            at: Duration::from_mins(50),
            to: Duration::ZERO,
        }];
    });
    let Some(wan) = network(&path) else {
        return;
    };
    let (near, far) = (socket(wan.near(), false), socket(wan.far(), false));
    let watch = farhaul_io::clock::now();
    near.send_to(b"ping", far.local_addr().unwrap()).unwrap();
    far.recv(&mut [0; 4]).unwrap();
    assert!(farhaul_io::clock::now() - watch >= Duration::from_millis(10));
}

#[test]
fn a_run_returns_the_code_of_its_program_and_ends_the_far_one() {
    let shell = |text: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdin(Stdio::null());
        command
    };
    let far = shell("exec 3<>/dev/null; sleep 1000 & sleep 1000");
    match run(&config(1_500, |_| {}), shell("exit 7"), Some(far)) {
        Ok(finished) => assert_eq!((finished.code, finished.interrupted), (7, None)),
        Err(WanError::Setup(error)) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    let killed = run(&config(1_500, |_| {}), shell("kill -9 $$"), None).unwrap();
    assert_eq!(killed.code, 137);
    let missing = run(
        &config(1_500, |_| {}),
        Command::new("/no/such/program"),
        None,
    );
    assert!(matches!(missing, Err(WanError::Spawn { .. })));
}

#[test]
fn a_service_is_ended_with_everything_it_started() {
    let Some(wan) = network(&config(1_500, |_| {})) else {
        return;
    };
    let mut command = Command::new("sh");
    command
        .args(["-c", "sleep 1000 & echo $!; wait"])
        .stdin(Stdio::null());
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    let service = Service::start(wan.far(), command).unwrap();
    drop(service);
    let mut line = String::new();
    // Ends only when the last process that holds the other end is gone.
    reader.read_to_string(&mut line).unwrap();
    assert!(line.trim().parse::<u32>().is_ok());
}

#[test]
fn nothing_that_a_program_left_behind_outlives_its_host() {
    let Some(wan) = network(&config(1_500, |_| {})) else {
        return;
    };
    let mut left = Vec::new();
    for host in [wan.near(), wan.far()] {
        let mut command = Command::new("sh");
        // One in a session of its own, whose parent is gone; the dead are taken away meanwhile.
        let words = "(sleep 0 &); setsid sh -c 'sleep 1000; :' & echo $$";
        command.args(["-c", words]).stdin(Stdio::null());
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        let mut child = host.spawn(command).unwrap();
        assert!(child.wait().unwrap().success());
        left.push(reader);
    }
    drop(wan);
    for mut reader in left {
        let mut line = String::new();
        // Ends only when the last process that holds the other end is gone.
        reader.read_to_string(&mut line).unwrap();
        assert_eq!(line.trim(), "2", "the first after the init of its host");
    }
}

#[test]
fn impossible_networks_are_refused_before_anything_is_built() {
    let refuse = |config: &WanConfig| Wan::start(config).unwrap_err().to_string();
    assert_eq!(
        refuse(&config(70_000, |_| {})),
        "an mtu of 70000 is out of range: 576 to 65521"
    );
    let loss = config(1_500, |path| path.loss = Loss::Random(1.01));
    assert_eq!(
        refuse(&loss),
        "loss of 101 % is impossible: give 0 % to 100 %"
    );
}

#[test]
fn ports_are_counted_apart_in_both_directions() {
    let mut config = config(1_500, |path| path.loss = Loss::Random(0.5));
    config.ports = vec![18_000..=18_009, 18_010..=18_019];
    let Some(wan) = network(&config) else {
        return;
    };
    let bound = |host: &Host, port| {
        let at = SocketAddr::from((host.address(), port));
        host.run(move || UdpSocket::bind(at)).unwrap()
    };
    let (far, near) = (bound(wan.far(), 18_012), socket(wan.near(), false));
    assert!(wan.far().has_listener(Some(18_012)) && !wan.far().has_listener(Some(18_011)));
    for _ in 0..100 {
        near.send_to(&[0; 72], far.local_addr().unwrap()).unwrap();
    }
    far.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (_, from) = far.recv_from(&mut [0; 100]).unwrap();
    far.send_to(&[0; 172], from).unwrap();
    near.recv_from(&mut [0; 200]).unwrap();
    let report = wan.finish().unwrap();
    let [none, some] = &report.near_to_far.ports[..] else {
        panic!("{report:?}");
    };
    assert_eq!((none.packets, some.packets, some.bytes), (0, 100, 10_000));
    assert_eq!(some.dropped, report.near_to_far.dropped(DropCause::Random));
    let back = &report.far_to_near.ports[1];
    assert_eq!((back.packets, back.bytes, back.dropped), (1, 200, 0));
}
