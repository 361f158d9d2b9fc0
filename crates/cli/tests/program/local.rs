//! Messages where this host lets no datagram go: the cause here, at once, with the reason of the system.

use super::{
    firewall::{behind_a_firewall, objects_of},
    kit::{command, side_by_side},
};

/// A link to a network where nobody else is, with packets of 1200 bytes.
const LINK: &str = "ip link add va type veth peer name vb; ip link set va mtu 1200; ip addr add 10.77.0.1/24 dev va\n\
     ip link set va up; ip link set vb up; set +e; nft add chain inet t o '{ type filter hook output priority 0; }'\n";
/// Flags with a timeout so long that nobody waits for it.
const LONG: &str = "--udp-timeout 1h --fallback never";

#[test]
fn what_this_host_does_not_send_is_told_as_its_own_cause_and_at_once() {
    let long = "the first has 1228 bytes with its headers, and the link carries 1200 (its MTU)";
    let cases = [
        ("10.77.0.2", "", long, "mtu 1280"),
        (
            "10.77.0.2",
            "nft add rule inet t o udp dport 17992 drop; ip link set va mtu 1500",
            "Operation not permitted",
            "`nft list ruleset`",
        ),
        ("10.77.0.255", "", "Permission denied", "broadcast address"),
        (
            "10.78.0.1",
            "",
            "Network is unreachable",
            "`ip route get 10.78.0.1`",
        ),
    ];
    side_by_side(&cases, |(host, first, why, fix)| {
        let place = tempfile::tempdir().expect("a folder");
        let words = format!(
            "{LINK}{first}\n echo > f\n\
             $cp --json {LONG} --trust-any f {host}::in/g; $cp --json {LONG} --trust-any {host}::in/f g\n\
             $farhaul ls --json {LONG} --trust-any {host}::in; $farhaul doctor --json {LONG} {host}\n\
             $farhaul bench --json {host}; true"
        );
        let like = &mut command(place.path(), &[]);
        let Some(output) = behind_a_firewall(like, &words) else {
            return;
        };
        let objects = objects_of(&output);
        assert_eq!(objects.len(), 5, "{output:?}");
        for object in objects {
            let said = object.to_string();
            assert!(said.contains(why) && said.contains(fix), "{host}: {said}");
            assert!(!said.contains("no answer"), "{said}");
            assert!(said.contains("\"code\":11"), "{said}");
        }
    });
}
