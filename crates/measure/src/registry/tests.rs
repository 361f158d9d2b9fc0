use farhaul_congestion::lookup;
use farhaul_core::protocol::{Descriptor, Provenance};
use farhaul_protocols::rwtp::{Config, server};

use super::*;

#[test]
fn names_are_found_and_strangers_refused_with_the_nearest() {
    let entry = protocol("haul").unwrap();
    assert!(entry.descriptor.sealed);
    assert!(entry.client(&Choice::default()).is_ok());
    let error = protocol("hual").err().unwrap().to_string();
    assert!(error.contains("did you mean 'haul'?"), "{error}");
    let error = protocol("quux").err().unwrap().to_string();
    assert!(error.contains("there are: haul, tcp, udt4"), "{error}");
}

#[test]
fn parameters_are_checked_like_laws() {
    let entry = protocol("tcp:recovery=newreno,window=16MiB").unwrap();
    assert!(entry.client(&Choice::default()).is_ok());
    let error = protocol("tcp:recovry=rack").err().unwrap().to_string();
    assert!(error.contains("did you mean 'recovery'?"), "{error}");
    let error = protocol("haul:x=1").err().unwrap().to_string();
    assert!(error.starts_with("haul has no parameter 'x'"), "{error}");
    assert!(protocol("rbudp:window=3.0").is_ok());
    let error = protocol("rbudp:window=3.5").err().unwrap().to_string();
    assert!(error.contains("a whole number from 1 to 32"), "{error}");
}

fn refusal(entry: &Entry, choice: &Choice) -> String {
    let ends = [entry.client(choice), entry.server(choice)];
    ends.map(|end| end.err().expect("refused").to_string())[0].clone()
}

#[test]
fn protocols_without_authentication_take_no_keys() {
    let keys = Choice {
        peers: vec!["fh-pub1whatever".into()],
        ..Choice::default()
    };
    for entry in protocols().iter().filter(|e| !e.descriptor.sealed) {
        let text = refusal(entry, &keys);
        assert!(
            text.contains("neither encrypted nor authenticated"),
            "{text}"
        );
    }
}

/// One of another program's, which looks at nothing that was chosen.
#[test]
fn external_protocols_take_no_keys_either() {
    static ELSEWHERE: Descriptor = Descriptor {
        name: "elsewhere",
        summary: "from elsewhere",
        provenance: Provenance::Model,
        citation: "none",
        sealed: false,
        control_lane: false,
        multiplexed: false,
    };
    let make = |law| {
        Entry::new(&ELSEWHERE, law, false, &[], |_, _, _, end| {
            Ok(server(&Config::default()).boxed(end.accepts()))
        })
    };
    let entry = make("cubic");
    assert!(entry.client(&Choice::default()).is_ok());
    let keys = Choice {
        peers: vec!["fh-pub1whatever".into()],
        ..Choice::default()
    };
    assert!(refusal(&entry, &keys).contains("--peer-key has no meaning"));
    let law = Choice {
        law: Some("scalable".into()),
        ..Choice::default()
    };
    assert!(entry.server(&law).is_ok());
    assert!(refusal(&make("elsewhere"), &law).contains("a law of its own"));
    assert!(refusal(&make(NO_LAW), &law).contains("no congestion law"));
}

#[test]
fn protocols_without_a_law_refuse_each() {
    let law = Choice {
        law: Some("cubic".into()),
        ..Choice::default()
    };
    for entry in protocols() {
        let takes = lookup(entry.default_law).is_ok();
        let name = entry.descriptor.name;
        assert_eq!(entry.client(&law).is_ok(), takes, "{name}");
    }
}

#[test]
fn a_law_for_the_simulator_is_refused_on_real_sockets() {
    let entry = protocol("haul").unwrap();
    let real = Choice {
        law: Some("xcp".into()),
        ..Choice::default()
    };
    for refused in [entry.client(&real), entry.server(&real)] {
        let error = refused.err().unwrap().to_string();
        assert!(
            error.contains("needs routers") && error.contains("or choose another law"),
            "{error}"
        );
    }
    let simulated = Choice {
        simulated: true,
        ..real
    };
    assert!(entry.client(&simulated).is_ok() && entry.server(&simulated).is_ok());
    let error = protocol("tcp").unwrap().client(&simulated).err().unwrap();
    assert!(
        error.to_string().contains("choose protocol haul"),
        "{error}"
    );
}

#[test]
fn laws_and_keys_are_checked_before_anything_is_sent() {
    let entry = protocol("haul").unwrap();
    let law = Choice {
        law: Some("cubik".into()),
        ..Choice::default()
    };
    let error = entry.client(&law).err().unwrap().to_string();
    assert!(error.contains("cubic"), "{error}");
    let peer = Choice {
        peers: vec!["fh-pub1nonsense".into()],
        ..Choice::default()
    };
    assert!(entry.client(&peer).is_err());
}

#[test]
fn a_model_is_called_one() {
    for (name, label) in [("mtp:n=25", "mtp:n=25 (a model)"), ("rudp", "rudp")] {
        assert_eq!(protocol(name).unwrap().label(name), label);
    }
}
