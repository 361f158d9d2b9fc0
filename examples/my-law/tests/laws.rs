//! Do laws written outside work inside?

use std::{sync::Arc, time::Duration};

use farhaul_congestion::{Skip, Windowed};
use farhaul_core::units::Rate;
use farhaul_link::{Loss, PathConfig};
use my_law::{
    SimpleTcp,
    grants::{GRANTS, Granted, Grants, Host},
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
        far.add_receiver_law(GRANTS.name, move || {
            Box::new(Grants::new(Arc::clone(&host)))
        });
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
        far.add_receiver_law(GRANTS.name, move || {
            Box::new(Grants::new(Arc::clone(&host)))
        });
    })
    .expect("a valid scenario");
    let sum: f64 = shares.iter().sum();
    assert!((75.0..100.0).contains(&sum), "{shares:?}");
}

/// Output of `farhaul` with these laws for the arguments `words`.
fn program(words: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_my-law"));
    let output = command.args(words).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}{complained}");
    said
}

#[test]
fn a_study_is_run_with_one_of_them() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("study");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("ours");
    }
    std::fs::create_dir(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let study = "name = \"own\"\ntitle = \"t\"\nsource = \"s\"\nabout = \"a\"\nreference = \"own.csv\"\n\
                 law = { law = \"haul\" }\n[[experiment]]\nid = \"A\"\ntitle = \"t\"\nscenario = \"path.toml\"\n\
                 [[experiment.figure]]\nid = \"f\"\nkind = \"table\"\nmetrics = [\"goodput\"]\nline = \"law\"\n";
    let path = "name = \"path\"\nduration = \"2s\"\n[[link]]\nname = \"wan\"\nrate = \"20Mbit\"\nrtt = \"20ms\"\n\
                [[flow]]\nname = \"one\"\nlaw = \"{law}\"\n[vary]\nlaw = [\"haul\"]\n";
    let table = "id,place,quantity,value,low,high,unit,kind,note\n";
    for (name, text) in [("own.toml", study), ("path.toml", path), ("own.csv", table)] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let (file, out) = (at("own.toml"), at("runs"));
    let words = [
        "lab",
        "run",
        file.as_str(),
        "--law",
        "simple-tcp",
        "--out",
        out.as_str(),
    ];
    assert!(program(&words).contains("1 run done"));
    let cells = std::fs::read_to_string(folder.join("runs/own/cells.csv")).expect("cells");
    assert!(cells.contains("law=simple-tcp"), "{cells}");
}

#[test]
fn every_command_knows_them_by_name() {
    let listed = program(&["protocols"]);
    assert!(
        listed.contains("simple-tcp") && listed.contains("grants"),
        "{listed}"
    );
    let path = [
        "--rate", "20Mbit", "--rtt", "20ms", "--mtu", "1500", "--secs", "5",
    ];
    for law in ["simple-tcp", "grants"] {
        let words = [&["sim", "--cc", law], &path[..]].concat();
        assert!(program(&words).contains(law), "{law}");
        let words = [&["sim", "--protocol", "tcp", "--cc", law], &path[..]].concat();
        if law == "simple-tcp" {
            assert!(program(&words).contains(law), "under tcp");
        }
    }
}
