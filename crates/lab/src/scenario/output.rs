//! Writes series and traces: `DIR/[CASE/]seed-N/` has `report.json`, a CSV per flow and cross
//! traffic, and on request a pcapng per link and a qlog per flow.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use farhaul_core::time::Instant;
use farhaul_sim::{Moment, Observer, Packet, Pcapng, Qlog, Side, SimReport};
use serde::Serialize;
use serde_json::Value;

use super::{cases::label, plan::Plan, source::Case};
use crate::plot::series::{self, Format, Track};

/// Files to write, and their folder.
#[derive(Clone, Debug)]
pub struct Output {
    /// The folder of reports, tables, traces and events; made if it is not there.
    pub dir: Option<PathBuf>,
    /// Names of the links whose packets are traced.
    pub traces: Vec<String>,
    /// True if the events of every flow's client are written.
    pub events: bool,
    /// A figure of the flows over time.
    pub plot: Option<Plot>,
}

/// Destination of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plot {
    /// The only run's.
    File(PathBuf, Format),
    /// Folder below which each run has `[CASE/]seed-N/series.svg`.
    Below(PathBuf),
}

impl Plot {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(path, _) | Self::Below(path) => path,
        }
    }

    /// Draws one run.
    pub(super) fn draw(
        &self,
        scenario: &str,
        plan: &Plan,
        seed: u64,
        report: &SimReport,
    ) -> io::Result<()> {
        let (path, format) = match self {
            Self::File(path, format) => (path.clone(), *format),
            Self::Below(dir) => {
                let dir = folder(dir, &plan.case, seed)?;
                (dir.join("series.svg"), Format::Svg)
            }
        };
        let flows = plan.drivers.iter().zip(&report.flows);
        let tracks: Vec<_> = flows
            .map(|(driver, flow)| Track::of_flow(&driver.name, flow))
            .collect();
        let case = if plan.case.is_empty() {
            String::new()
        } else {
            format!("{}, ", label(&plan.case))
        };
        let name = format!("{scenario}, {case}seed {seed}");
        series::save(&path, format, &name, &tracks)
    }
}

/// The folder of one run, which is made.
pub(super) fn folder(below: &Path, case: &Case, seed: u64) -> io::Result<PathBuf> {
    let mut dir = below.to_path_buf();
    if !case.is_empty() {
        dir.push(plain(&label(case)));
    }
    dir.push(format!("seed-{seed}"));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

impl Output {
    /// The onlookers of one run.
    pub(super) fn observers(&self, dir: &Path, plan: &Plan) -> io::Result<Observers> {
        let mut observers = Observers {
            traces: Vec::new(),
            events: Vec::new(),
        };
        for (number, name) in plan.links.iter().enumerate() {
            if self.traces.contains(name) {
                let file = create(&dir.join(format!("{}.pcapng", plain(name))))?;
                observers.traces.push(Pcapng::new(file, number, name)?);
            }
        }
        for (flow, driver) in plan.drivers.iter().enumerate().filter(|_| self.events) {
            let file = create(&dir.join(format!("{}.sqlog", plain(&driver.name))))?;
            let log = Qlog::new(file, flow, Side::Client, &driver.name)?;
            observers.events.push(log);
        }
        Ok(observers)
    }
}

/// A name that is a file's everywhere.
fn plain(name: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || "-_.=+".contains(c);
    name.chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}

fn create(path: &Path) -> io::Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new)
}

/// The observers of one run.
pub(super) struct Observers {
    traces: Vec<Pcapng<BufWriter<File>>>,
    events: Vec<Qlog<BufWriter<File>>>,
}

impl Observers {
    /// Ends every file; the first error there was.
    pub(super) fn finish(self) -> io::Result<()> {
        for trace in self.traces {
            trace.finish()?;
        }
        for log in self.events {
            log.finish()?;
        }
        Ok(())
    }
}

impl Observer for Observers {
    fn on_packet(&mut self, packet: &Packet<'_>) {
        for trace in &mut self.traces {
            trace.on_packet(packet);
        }
    }

    fn on_session(&mut self, at: Instant, flow: usize, side: Side, moment: Moment<'_>) {
        for log in &mut self.events {
            log.on_session(at, flow, side, moment);
        }
    }
}

/// Writes what a run has left.
pub(super) fn write(dir: &Path, plan: &Plan, report: &SimReport) -> io::Result<()> {
    let mut file = create(&dir.join("report.json"))?;
    serde_json::to_writer_pretty(&mut file, report)?;
    file.flush()?;
    for (driver, flow) in plan.drivers.iter().zip(&report.flows) {
        table(
            &dir.join(format!("{}.csv", plain(&driver.name))),
            &flow.series,
        )?;
    }
    for (name, cross) in plan.cross.iter().zip(&report.cross) {
        table(
            &dir.join(format!("cross-{}.csv", plain(name))),
            &cross.series,
        )?;
    }
    Ok(())
}

/// A column per member, in the order of their names, which begin with `at`; unknown values are
/// empty.
fn table(path: &Path, rows: &[impl Serialize]) -> io::Result<()> {
    let mut file = create(path)?;
    for (i, row) in rows.iter().enumerate() {
        let Value::Object(members) = serde_json::to_value(row)? else {
            return Err(io::Error::other("a row is an object"));
        };
        if i == 0 {
            let names: Vec<&str> = members.keys().map(String::as_str).collect();
            writeln!(file, "{}", names.join(","))?;
        }
        let cells: Vec<String> = members.values().map(cell).collect();
        writeln!(file, "{}", cells.join(","))?;
    }
    file.flush()
}

/// Numbers and names of phases need no quotes.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
