//! Shows both laws at work: `cargo run --release -p my-law`.

use std::{
    error::Error,
    io::{Write, stdout},
    sync::Arc,
    time::Duration,
};

use farhaul_congestion::{Skip, Windowed};
use farhaul_core::units::Rate;
use farhaul_link::PathConfig;
use my_law::{
    SimpleTcp,
    grants::{Granted, Grants, Host, RECEIVER},
    simulate,
};

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathConfig {
        rate: Rate::mbit(100),
        delay: Duration::from_millis(10),
        mtu: Some(1_500),
        ..PathConfig::default()
    };
    let minute = Duration::from_mins(1);
    let mut out = stdout().lock();
    let shares = simulate(path.clone(), 2, minute, |near, _| {
        near.set_law(|| Box::new(Windowed::new(Skip, SimpleTcp)));
    })?;
    writeln!(
        out,
        "simple-tcp, two flows on 100 Mbit/s: {shares:.1?} Mbit/s"
    )?;
    let host = Host::new(Rate::mbit(60));
    let shares = simulate(path, 3, minute, |near, far| {
        let host = Arc::clone(&host);
        near.set_law(|| Box::new(Granted::default()));
        far.add_receiver_law(RECEIVER, move || Box::new(Grants::new(Arc::clone(&host))));
    })?;
    writeln!(
        out,
        "grants, three flows into a host of 60 Mbit/s: {shares:.1?} Mbit/s"
    )?;
    Ok(())
}
