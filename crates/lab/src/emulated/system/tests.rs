use super::*;

fn parse(protocol: &str, law: Option<&str>) -> Result<System, SystemError> {
    let program = Program {
        name: "scp".into(),
        client: "scp {dir}/file {host}:".into(),
        goodput: "bytes".into(),
        ..Program::default()
    };
    System::parse(protocol, law, &[program])
}

#[test]
fn every_system_is_written_as_it_is_read() {
    for text in [
        "haul",
        "kernel:cubic",
        "kernel:bbr,mtu=1500,driver=iperf3",
        "kernel:reno,driver=blaster",
        "libudt:buffer=1000000000",
        "libudt:mss=1472,buffer=8000000",
        "udp:rate=200000000bit,packet=1200",
        "udp:rate=200000000bit,packet=1500,send=8192,receive=1000000,offload=off",
        "udp:rate=200000000bit,packet=9000,loss=0.001,fragments=on",
        "delay:transport=tcp,packet=1500,count=100",
        "program:scp",
    ] {
        assert_eq!(parse(text, None).unwrap().to_string(), text);
    }
    let written = |text, law| parse(text, law).unwrap().to_string();
    assert_eq!(written("kernel", Some("bbr")), "kernel:bbr");
    assert_eq!(
        written("kernel:mtu=9000", Some("bbr")),
        "kernel:bbr,mtu=9000"
    );
    assert_eq!(written("tcp:mtu=1500", Some("reno")), "tcp:mtu=1500 reno");
    assert_eq!(written("libudt", None), "libudt:buffer=1000000000");
    assert_eq!(
        written("udp:rate=1Gbit", None),
        "udp:rate=1000000000bit,packet=1500"
    );
}

#[test]
fn what_is_misspelt_is_refused_with_the_nearest_name() {
    let cases = [
        ("hual", None, "did you mean 'haul'?"),
        ("kernl:cubic", None, "did you mean 'kernel'?"),
        ("libutd", None, "did you mean 'libudt'?"),
        ("program:scpp", None, "did you mean 'scp'?"),
        ("program:", None, "there are: scp"),
        ("nothing-like-it", None, "program:scp"),
        ("kernel", None, "Write kernel:cubic"),
        ("kernel:cubic", Some("bbr"), "it names one already"),
        ("kernel:cubic:beta=1", None, "is no law of the kernel's"),
        ("kernel:cubic,mtv=1", None, "did you mean 'mtu'?"),
        ("libudt", Some("cubic"), "takes no law"),
        ("libudt:buffer=4GB", None, "below 2GiB"),
        ("udp", None, "at which rate?"),
        ("udp:rate=1Mbit,send=1kB", None, "from 4KiB to below 1GiB"),
        ("udp:rate=3", None, "rate is a rate"),
        ("udp:rate=1Mbit,loss=1%", None, "loss is a number"),
        ("udp:rate=1Mbit,loss=0", None, "loss is a number"),
        ("delay:transport=sctp", None, "transport is udp or tcp"),
        ("delay:count=0", None, "count is a whole number"),
        ("delay", Some("cubic"), "takes no law"),
        ("haul", Some("cubik"), "did you mean 'cubic'?"),
        ("rbudp", Some("cubic"), "rbudp has no congestion law"),
    ];
    for (protocol, law, expected) in cases {
        let said = parse(protocol, law).unwrap_err().to_string();
        assert!(said.contains(expected), "{protocol}: {said}");
    }
    let none = System::parse("program:x", None, &[]).unwrap_err();
    assert!(none.to_string().contains("[[program]]"), "{none}");
}

#[test]
fn what_this_machine_lacks_is_named() {
    let lacks = |text| parse(text, None).unwrap().missing();
    assert_eq!(lacks("haul"), None);
    assert_eq!(lacks("udp:rate=1Mbit"), None);
    assert_eq!(
        lacks("kernel:reno,driver=blaster"),
        None,
        "every kernel has it"
    );
    assert!(lacks("kernel:warp").unwrap().contains("no law 'warp'"));
    assert_eq!(not_found("A=b sh -c 'true'"), None);
    assert_eq!(not_found("cd /tmp && ls"), None);
    assert_eq!(not_found("{farhaul} bench"), None, "the shell will see");
    assert_eq!(
        not_found("no-such-program-here -v"),
        Some("no-such-program-here")
    );
    let program = Program {
        name: "x".into(),
        server: Some("no-such-server".into()),
        client: "true".into(),
        ..Program::default()
    };
    let said = System::Program(program).missing().unwrap();
    assert!(said.contains("'no-such-server' is not found"), "{said}");
}
