//! Do laws written outside work inside?

use std::{sync::Arc, time::Duration};

use farhaul_congestion::{Skip, Windowed};
use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use my_law::{
    SimpleTcp,
    grants::{Granted, Grants, Host, RECEIVER},
    simulate,
};

const MINUTE: Duration = Duration::from_mins(1);

fn path(loss: f64) -> PathConfig {
    PathConfig {
        rate: Rate::mbit(100),
        delay: Duration::from_millis(10),
        mtu: Some(1_500),
        loss: Loss::Random(loss),
        ..PathConfig::default()
    }
}

/// Half a packet per rtt and half on loss: w = sqrt(1/p), so 1,472 bytes * 8 * sqrt(1/p) / rtt if losses
/// came evenly. They come by chance, nothing grows for a round after each, and feedback takes its time,
/// which together takes about a quarter.
#[test]
fn the_figures_law_follows_its_square_root() {
    let shares = simulate(path(0.001), 1, MINUTE, |near, _| {
        near.set_law(|| Box::new(Windowed::new(Skip, SimpleTcp)));
    });
    let share = shares.expect("a valid scenario")[0];
    let expected = 1_472.0 * 8.0 * (1.0_f64 / 0.001).sqrt() / 0.020 / 1e6;
    assert!(
        (0.65..1.0).contains(&(share / expected)),
        "{share} of {expected}"
    );
}

#[test]
fn a_host_shares_what_it_can_take() {
    let host = Host::new(Rate::mbit(60));
    let shares = simulate(path(0.0), 3, MINUTE, |near, far| {
        let host = Arc::clone(&host);
        near.set_law(|| Box::new(Granted::default()));
        far.add_receiver_law(RECEIVER, move || Box::new(Grants::new(Arc::clone(&host))));
    })
    .expect("a valid scenario");
    for share in &shares {
        assert!((17.0..20.5).contains(share), "{shares:?}");
    }
}

#[test]
fn grants_stay_below_what_the_path_takes() {
    let host = Host::new(Rate::gbit(1));
    let shares = simulate(path(0.0), 2, MINUTE, |near, far| {
        let host = Arc::clone(&host);
        near.set_law(|| Box::new(Granted::default()));
        far.add_receiver_law(RECEIVER, move || Box::new(Grants::new(Arc::clone(&host))));
    })
    .expect("a valid scenario");
    let sum: f64 = shares.iter().sum();
    assert!((75.0..100.0).contains(&sum), "{shares:?}");
}
