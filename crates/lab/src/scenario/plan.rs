//! Plans the simulation of one case. Names become numbers: links, interfaces and routes of a
//! [`Scenario`], and the driver of each flow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use farhaul_core::{
    protocol::Protocol,
    units::{Rate, Size},
};
use farhaul_link::{ConfigError, PathConfig, QueueLimit};
use farhaul_sim::{CrossConfig, FlowConfig, Route, Scenario};

use super::{
    document::{Direction, Document, Ends, Flow, Frame, Queue},
    processor,
    source::{Case, Placed, Problem, Source, unknown},
};
use crate::{
    emulated::{Profile, System},
    hash::fnv,
    run_store::Backend,
};
use farhaul_measure::registry::{self, Choice, ChoiceError, Host};

/// One flow's name and driver.
#[derive(Clone, Debug)]
pub struct Driver {
    /// Name of the flow.
    pub name: String,
    /// Name under which the flow was written, which several flows share with `count`.
    pub group: String,
    /// The protocol with its parameters.
    pub protocol: String,
    choice: Choice,
    /// System that runs the flow on real sockets, if that is the world.
    pub(crate) system: Option<System>,
    /// Host that the flow ends at; those without a name end at one and the same.
    host: Option<String>,
    /// Time that simulated hosts spend on the flow, if the scenario says so.
    pub(super) processor: Option<processor::Ends>,
    /// True if both ends are on one host, over its loopback.
    pub(super) local: bool,
}

/// Hosts by their names.
pub(super) type Hosts = BTreeMap<Option<String>, Host>;

impl Driver {
    /// Rate that the flow never exceeds.
    pub(super) const fn max_rate(&self) -> Option<Rate> {
        self.choice.max_rate
    }

    /// The congestion law, if one was chosen.
    pub fn law(&self) -> Option<&str> {
        self.choice.law.as_deref()
    }

    /// Both endpoints, in a run with these hosts.
    pub(super) fn make(&self, hosts: &mut Hosts) -> Result<[Box<dyn Protocol>; 2], ChoiceError> {
        let entry = registry::protocol(&self.protocol)?;
        let choice = Choice {
            host: hosts.entry(self.host.clone()).or_default().clone(),
            ..self.choice.clone()
        };
        Ok([entry.client(&choice)?, entry.server(&choice)?])
    }
}

/// One case of a scenario, ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Case of the plan.
    pub case: Case,
    /// Drivers of the flows.
    pub drivers: Vec<Driver>,
    /// Name of every link, by number; `:back` is the other direction, `nic:` a host's interface.
    pub links: Vec<String>,
    /// Names of the cross traffic.
    pub cross: Vec<String>,
    /// The world.
    pub backend: Backend,
    /// Between the points that are kept of a run's series.
    pub(super) series: Option<Duration>,
    /// Profile sampled of the flows on the emulator.
    pub(super) profile: Option<Profile>,
    /// MTU of the loopback devices of the emulator's hosts.
    pub(super) loopback_mtu: Option<u32>,
    /// Share of one core, for all programs of an end; on the emulator only.
    pub(super) cpu: Option<f64>,
    scenario: Scenario,
    start_spread: Duration,
}

impl Plan {
    /// The scenario of one seed.
    pub fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = self.scenario.clone();
        crate::starts::spread(&mut scenario, seed, self.start_spread);
        scenario
    }

    /// Virtual time at most, s.
    pub(crate) const fn seconds(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    /// Between the samples of a queue, s.
    pub(super) const fn queue_interval(&self) -> f64 {
        self.scenario.queue_interval.as_secs_f64()
    }

    /// Fingerprint of everything that the outcome depends on but the seed and the program.
    pub fn fingerprint(&self) -> String {
        let drivers = self.drivers.iter();
        let drivers =
            drivers.map(|d| (&d.protocol, d.law(), d.choice.max_rate, &d.system, d.local));
        let processors: Vec<_> = self.drivers.iter().filter_map(|d| d.processor).collect();
        let processors = (!processors.is_empty()).then(|| format!("{processors:?}"));
        let profile = self.profile.as_ref().map(|p| format!("{p:?}"));
        let loopback = self.loopback_mtu.map(|mtu| format!(" lo {mtu}"));
        let text = format!(
            "{:?} {:?} {:?} {:?} {:?}{}{}{}{}",
            self.backend,
            self.series,
            self.scenario,
            self.start_spread,
            drivers.collect::<Vec<_>>(),
            processors.unwrap_or_default(),
            profile.unwrap_or_default(),
            loopback.unwrap_or_default(),
            self.cpu
                .map(|share| format!(" cpu {share}"))
                .unwrap_or_default()
        );
        format!("{:016x}", fnv(&text))
    }

    pub(super) fn new(
        source: &Source<'_>,
        document: &Document,
        backend: Backend,
    ) -> Result<Self, Problem> {
        if backend == Backend::Emu && (document.links.len() > 1 || !document.hosts.is_empty()) {
            let text = "the emulator has one link between two hosts: leave \"emu\" out of backends";
            return Err(source.problem(&(0..0), text));
        }
        if backend == Backend::Emu {
            emulable(source, document)?;
        }
        if backend == Backend::Sim && document.frame.cpu.is_some() {
            let text = "cpu is a share of a real core: write it under [emu]";
            return Err(source.problem(&(0..0), text));
        }
        let mut builder = Builder::new(source, document)?;
        let (mut drivers, mut flows) = (Vec::new(), Vec::new());
        for flow in &document.flows {
            let route = builder.route(&flow.ends)?;
            let mut start = flow.start;
            for i in 0..flow.count {
                drivers.push(driver(source, flow, i, (backend, document))?);
                flows.push(FlowConfig {
                    start,
                    stop: flow.stop,
                    bytes: flow.bytes,
                    write: flow.write,
                    extra_delay: flow.extra_delay,
                    disk: None,
                    route: Some(route),
                });
                start += flow.stagger;
            }
        }
        let cross = builder.cross(document)?;
        let queues = builder.queues(&flows);
        let mut configs = builder.finish(&queues, &document.frame)?;
        let further = configs.split_off(2);
        let frame = &document.frame;
        let back = configs.pop().expect("a link has two directions");
        let forward = configs.pop().expect("a link has two directions");
        Ok(Self {
            case: source.case.clone(),
            backend,
            series: frame.series,
            profile: (backend == Backend::Emu && !document.profile.is_empty())
                .then(|| Profile(document.profile.clone())),
            loopback_mtu: frame.loopback_mtu,
            cpu: frame.cpu,
            drivers,
            links: builder.names,
            cross: document
                .cross
                .iter()
                .map(|c| c.name.value.clone())
                .collect(),
            scenario: Scenario {
                forward,
                back,
                links: further,
                routes: builder.routes,
                flows,
                cross,
                framing: frame.framing,
                duration: frame.duration,
                seed: 0,
                interval: frame.sample,
                queue_interval: frame.queue_sample,
                coalesce: frame.coalesce,
                interface_mtu: Some(frame.mtu),
                max_segments: frame.batch,
            },
            start_spread: frame.start_spread,
        })
    }
}

/// Refuses what the emulator would leave out.
fn emulable(source: &Source<'_>, document: &Document) -> Result<(), Problem> {
    let text = "has no meaning on the emulator: leave it out, or \"emu\" out of backends";
    if let Some(flow) = document.flows.iter().find(|f| !f.extra_delay.is_zero()) {
        return Err(source.problem(&flow.name.span, format!("extra_delay {text}")));
    }
    let shaped = |c: &&super::document::Cross| c.bursts.is_some() || c.jitter > 0.0;
    if let Some(cross) = document.cross.iter().find(shaped) {
        return Err(source.problem(&cross.name.span, format!("jitter, on and off {text}")));
    }
    Ok(())
}

fn driver(
    source: &Source<'_>,
    flow: &Flow,
    number: u64,
    (backend, document): (Backend, &Document),
) -> Result<Driver, Problem> {
    let group = flow.name.value.clone();
    let mut driver = Driver {
        system: None,
        name: if flow.count == 1 {
            group.clone()
        } else {
            format!("{group}-{}", number + 1)
        },
        group,
        protocol: flow.protocol.value.clone(),
        choice: Choice {
            law: flow.law.as_ref().map(|law| law.value.clone()),
            max_rate: flow.max_rate,
            simulated: backend == Backend::Sim,
            ..Choice::default()
        },
        host: flow.ends.to.as_ref().map(|name| name.value.clone()),
        processor: None,
        local: flow.local,
    };
    let law = flow.law.as_ref().unwrap_or(&flow.protocol);
    if flow.local && backend == Backend::Sim {
        let text = "local = true is the loopback of a host of the emulator: leave it out, or \"sim\" out of backends";
        return Err(source.problem(&flow.name.span, text));
    }
    if backend == Backend::Emu {
        let system = System::parse(&driver.protocol, driver.law(), &document.programs);
        driver.system = Some(system.map_err(|e| source.problem(&law.span, e))?);
        return Ok(driver);
    }
    let protocol =
        registry::protocol(&driver.protocol).map_err(|e| source.problem(&flow.protocol.span, e))?;
    protocol
        .client(&driver.choice)
        .map_err(|e| source.problem(&law.span, e))?;
    let mut processors = document.processors.iter();
    let own = processors.find(|p| p.protocol.value == driver.protocol);
    driver.processor = own.map(|p| p.ends);
    if let Some(second) = processors.find(|p| p.protocol.value == driver.protocol) {
        let text = format!("there are two [[processor]] of {}", driver.protocol);
        return Err(source.problem(&second.protocol.span, text));
    }
    Ok(driver)
}

/// Numbers links and routes.
struct Builder<'a> {
    source: &'a Source<'a>,
    /// Names by number.
    names: Vec<String>,
    directions: Vec<Direction>,
    /// Number of each link's forward direction; the other is the next.
    links: BTreeMap<String, usize>,
    nics: BTreeMap<String, usize>,
    routes: Vec<Route>,
}

impl<'a> Builder<'a> {
    fn new(source: &'a Source<'a>, document: &Document) -> Result<Self, Problem> {
        let mut builder = Self {
            source,
            names: Vec::new(),
            directions: Vec::new(),
            links: BTreeMap::new(),
            nics: BTreeMap::new(),
            routes: Vec::new(),
        };
        for link in &document.links {
            builder
                .links
                .insert(link.name.value.clone(), builder.names.len());
            builder.names.push(link.name.value.clone());
            builder.names.push(format!("{}:back", link.name.value));
            builder.directions.push(link.forward.clone());
            builder.directions.push(link.back.clone());
        }
        for host in &document.hosts {
            builder
                .nics
                .insert(host.name.value.clone(), builder.names.len());
            builder.names.push(format!("nic:{}", host.name.value));
            builder.directions.push(host.nic.clone());
        }
        let mut seen = BTreeSet::new();
        let named = document.links.iter().map(|l| ("link", &l.name));
        let named = named
            .chain(document.hosts.iter().map(|h| ("host", &h.name)))
            .chain(document.flows.iter().map(|f| ("flow", &f.name)))
            .chain(document.cross.iter().map(|c| ("cross", &c.name)));
        for (what, name) in named {
            let text = &name.value;
            let plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
            if text.is_empty() || !text.chars().all(plain) {
                let text = format!("'{text}': a name has letters, digits, '-', '_', '.' and '+'");
                return Err(source.problem(&name.span, text));
            }
            if !seen.insert((what, text)) {
                let text = format!("there are two [[{what}]] called '{text}'");
                return Err(source.problem(&name.span, text));
            }
        }
        Ok(builder)
    }

    fn find(
        &self,
        what: &str,
        name: &Placed<String>,
        among: &BTreeMap<String, usize>,
    ) -> Result<usize, Problem> {
        among.get(&name.value).copied().ok_or_else(|| {
            let known = among.keys().map(String::as_str);
            self.source
                .problem(&name.span, unknown(what, &name.value, known))
        })
    }

    /// The links of `ends`, there and back.
    fn ways(&self, ends: &Ends) -> Result<[Vec<usize>; 2], Problem> {
        let mut there: Vec<usize> = ends
            .path
            .iter()
            .map(|name| self.find("link", name, &self.links))
            .collect::<Result<_, _>>()?;
        if there.is_empty() {
            if self.links.len() > 1 {
                let text =
                    "with several links each flow needs its path, as in path = [\"a\", \"b\"]";
                return Err(self.source.problem(&ends.at, text));
            }
            there = vec![0];
        }
        let mut back: Vec<usize> = there.iter().rev().map(|link| link + 1).collect();
        if ends.reverse {
            (there, back) = (back, there);
        }
        let nic = |host: &Option<Placed<String>>| {
            host.as_ref()
                .map(|name| self.find("host", name, &self.nics))
                .transpose()
        };
        let (from, to) = (nic(&ends.from)?, nic(&ends.to)?);
        Ok([(from, there), (to, back)].map(|(nic, way)| nic.into_iter().chain(way).collect()))
    }

    fn route(&mut self, ends: &Ends) -> Result<usize, Problem> {
        let [forward, back] = self.ways(ends)?;
        self.routes.push(Route { forward, back });
        Ok(self.routes.len() - 1)
    }

    fn cross(&self, document: &Document) -> Result<Vec<CrossConfig>, Problem> {
        let one = |cross: &super::document::Cross| {
            let [links, _] = self.ways(&cross.ends)?;
            Ok(CrossConfig {
                links,
                rate: cross.rate,
                packet: cross.packet,
                start: cross.start,
                stop: cross.stop,
                bursts: cross.bursts,
                jitter: cross.jitter,
            })
        };
        document.cross.iter().map(one).collect()
    }

    /// The longest round trip over each link without queueing.
    fn queues(&self, flows: &[FlowConfig]) -> Vec<Duration> {
        let mut longest = vec![Duration::ZERO; self.directions.len()];
        for flow in flows {
            let Some(route) = flow.route.and_then(|r| self.routes.get(r)) else {
                continue;
            };
            let both = || route.forward.iter().chain(&route.back);
            let delays: Duration = both().map(|l| self.directions[*l].config.delay).sum();
            for link in both() {
                longest[*link] = longest[*link].max(delays + 2 * flow.extra_delay);
            }
        }
        longest
    }

    fn finish(&self, rtts: &[Duration], frame: &Frame) -> Result<Vec<PathConfig>, Problem> {
        let one = |(direction, rtt): (&Direction, &Duration)| {
            let mut config = direction.config.clone();
            config.queue = limit(direction.queue, config.rate, *rtt, frame);
            config.validate().map_err(|error| {
                let at = match error {
                    ConfigError::QueueBelowMtu { .. } => &direction.queue_at,
                    _ => &direction.at,
                };
                self.source.problem(at, error)
            })?;
            Ok(config)
        };
        self.directions.iter().zip(rtts).map(one).collect()
    }
}

/// A queue holds at least one packet, whatever its multiple.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a product of positive numbers; a float-to-int `as` saturates"
)]
fn limit(queue: Queue, rate: Rate, rtt: Duration, frame: &Frame) -> QueueLimit {
    let packet = u64::from(frame.mtu + frame.framing);
    let bytes = match queue {
        Queue::Limit(limit) => return limit,
        Queue::Packets(count) => count * packet,
        Queue::Bdp(factor) => (rate.bytes_in(rtt) as f64 * factor) as u64,
    };
    QueueLimit::Bytes(Size::from_bytes(bytes.max(packet)))
}
