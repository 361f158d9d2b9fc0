//! Tests that every transfer ends, whatever was lost on the way.

use farhaul_testkit::{assert_live, seeds};

use super::kit::ends;

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(""), seeds(60));
}

#[test]
fn so_do_the_older_rules() {
    for settings in [
        "recovery=rfc6675,tlp=off",
        "recovery=fack,reduction=halving",
        "recovery=newreno",
        "undo=off,reduction=none,rto=rfc6298",
        "profile=linux-2.6.29",
        "profile=windows-7",
        "profile=windows-vista-sp2",
        "profile=windows-xp-x64",
        "window=8KiB,pacing=on",
        "stretch=off,delack=1,ecn=on",
        "defer=on",
        "recovery=fack,sack_cost=20000",
    ] {
        assert_live(|_| ends(settings), seeds(12));
    }
}
