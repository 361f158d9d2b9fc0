use farhaul_core::{
    time::Instant,
    units::{Rate, Size},
};

use super::*;
use crate::{bottleneck::Bottleneck, config::QueueLimit};

/// Offers 1,500-byte packets every `gap` ns for `secs` s to 100 Mbit/s; answers signals and the last wait.
fn run(aqm: Aqm, gap: u64, secs: u64) -> (u64, u64) {
    let mut link = Bottleneck::new(
        Rate::mbit(100),
        &[],
        QueueLimit::Bytes(Size::from_bytes(10_000_000)),
    );
    let mut management = QueueManagement::new(aqm, 1_500);
    let mut rng = Rng::new(5);
    let (mut signals, mut wait) = (0, 0);
    for i in 0..secs * 1_000_000_000 / gap {
        let arrival = link.arrive(Instant::from_nanos(i * gap), 1_500);
        wait = arrival.wait;
        match management.judge(&arrival, &mut rng) {
            Signal::None => {
                link.accept(1_500);
            }
            Signal::Congested | Signal::Overloaded => signals += 1,
        }
    }
    (signals, wait)
}

fn codel() -> Aqm {
    "codel".parse().unwrap()
}

#[test]
fn a_link_that_is_not_full_is_left_alone() {
    assert_eq!(run(codel(), 121_000, 5), (0, 0));
    assert_eq!(run("red".parse().unwrap(), 121_000, 5), (0, 0));
}

#[test]
fn codel_drops_faster_and_faster_until_the_queue_shrinks() {
    // 2 % more than the link carries: about 167 packets a second must go.
    let (signals, wait) = run(codel(), 117_600, 20);
    assert!((2_000..4_500).contains(&signals), "{signals}");
    assert!(wait < 60_000_000, "{wait}");
}

#[test]
fn codel_spaces_drops_by_the_inverse_square_root() {
    let mut codel = Codel::new(Duration::from_millis(5), Duration::from_millis(100), 1_500);
    codel.count = 1;
    assert_eq!(codel.control(0), 100_000_000);
    codel.count = 4;
    assert_eq!(codel.control(0), 50_000_000);
    codel.count = 100;
    assert_eq!(codel.control(0), 10_000_000);
}

#[test]
fn red_holds_the_average_between_its_thresholds() {
    let (signals, wait) = run("red:5ms,15ms,10%".parse().unwrap(), 114_000, 20);
    assert!(signals > 5_000, "{signals}");
    assert!((5_000_000..30_000_000).contains(&wait), "{wait}");
}
