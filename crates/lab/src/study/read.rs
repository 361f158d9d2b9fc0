//! Reads a study's file, checked value by value, each mistake with its place.

use toml::{Spanned, de::DeTable};

use super::{Experiment, FigurePlan, Library, Shape, Study, StudyError};
use crate::{
    reference::Reference,
    scenario::{Case, Fields, Metric, Problem, Source, Term, level, unknown, window},
    unit::Unit,
};

const STUDY: [&str; 8] = [
    "name",
    "title",
    "source",
    "about",
    "reference",
    "deviations",
    "law",
    "experiment",
];
const EXPERIMENT: [&str; 6] = ["id", "title", "about", "scenario", "deviations", "figure"];
const FIGURE: [&str; 17] = [
    "id", "place", "caption", "kind", "metric", "flow", "link", "during", "level", "x", "line",
    "when", "unit", "log", "cross", "metrics", "pairs",
];
/// Columns of a run's series.
const COLUMNS: [&str; 12] = [
    "goodput",
    "window",
    "in_flight",
    "rtt",
    "queue",
    "snd_nxt",
    "retransmits",
    "duplicate_acks",
    "timeouts",
    "delivered",
    "sender_core",
    "receiver_core",
];

/// True if the file called `name` has experiments: others beside it are scenarios.
pub(super) fn is_study(files: &[(&str, &str)], name: &str) -> bool {
    let text = files.iter().find(|(file, _)| *file == name);
    text.is_some_and(|(_, text)| {
        DeTable::parse(text).is_ok_and(|d| d.get_ref().keys().any(|k| k.get_ref() == "experiment"))
    })
}

/// Reads the text of the study's file.
pub(super) fn study(file: &str, text: &str, library: &Library) -> Result<Study, StudyError> {
    let none = Case::new();
    let source = Source {
        file,
        text,
        case: &none,
    };
    let document: Spanned<DeTable<'_>> =
        DeTable::parse(text).map_err(|e| source.problem(&e.span().unwrap_or(0..0), e.message()))?;
    let top = Fields::new(source, "the study", document.get_ref(), 0..0, &STUDY)?;
    let reference = match top.text("reference")? {
        Some(table) => {
            let facts = library.text("reference", &table.value)?;
            Reference::read(&table.value, &facts).map_err(StudyError::Reference)?
        }
        None => Reference::default(),
    };
    let experiments = top.tables("experiment", &EXPERIMENT)?;
    let experiments = experiments
        .iter()
        .map(experiment)
        .collect::<Result<Vec<_>, _>>()?;
    let text = |key: &str, example: &str| Ok::<_, Problem>(top.needed(key, example)?.value);
    let study = Study {
        name: id(&top, "name", "\"kachan-2014\"")?,
        title: text("title", "\"the paper's\"")?,
        source: text("source", "\"authors, where, year\"")?,
        about: text("about", "\"what it is about\"")?,
        deviations: words(&top, "deviations")?,
        law: law(&top)?,
        experiments,
        reference,
    };
    twice(&top, "experiment", study.experiments.iter().map(|e| &e.id))?;
    let figures = study.experiments.iter().flat_map(|e| &e.figures);
    twice(&top, "figure", figures.map(|f| &f.id))?;
    Ok(study)
}

/// The law that is tried, and the variable that holds it.
fn law(top: &Fields<'_>) -> Result<Option<(String, String)>, Problem> {
    let pairs = top.pairs("law")?;
    if pairs.len() > 1 || (pairs.is_empty() && top.has("law")) {
        let text = "law has one variable with its value, as in { \"system.law\" = \"haul\" }";
        return Err(top.problem("law", text));
    }
    Ok(pairs
        .into_iter()
        .next()
        .map(|(name, law)| (name, law.value)))
}

fn twice<'a>(
    top: &Fields<'_>,
    what: &str,
    ids: impl Iterator<Item = &'a String>,
) -> Result<(), Problem> {
    let mut seen: Vec<&String> = Vec::new();
    for id in ids {
        if seen.contains(&id) {
            return Err(top.problem("experiment", format!("there are two of {what} '{id}'")));
        }
        seen.push(id);
    }
    Ok(())
}

fn words(fields: &Fields<'_>, key: &str) -> Result<Vec<String>, Problem> {
    Ok(fields.list(key)?.into_iter().map(|t| t.value).collect())
}

/// Names of files and addresses have no other characters.
fn id(fields: &Fields<'_>, key: &str, example: &str) -> Result<String, Problem> {
    let id = fields.needed(key, example)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if id.value.is_empty() || !id.value.chars().all(plain) {
        let text = format!("'{}': it has letters, digits and '-' only", id.value);
        return Err(fields.problem(key, text));
    }
    Ok(id.value)
}

fn experiment(fields: &Fields<'_>) -> Result<Experiment, Problem> {
    let text =
        |key: &str| Ok::<_, Problem>(fields.text(key)?.map_or_else(String::new, |t| t.value));
    let figures = fields.tables("figure", &FIGURE)?;
    Ok(Experiment {
        id: id(fields, "id", "\"K1\"")?,
        title: fields.needed("title", "\"Rate over loss\"")?.value,
        about: text("about")?,
        scenario: fields
            .needed("scenario", "\"kachan-2014/grid.toml\"")?
            .value,
        deviations: words(fields, "deviations")?,
        figures: figures.iter().map(figure).collect::<Result<_, _>>()?,
    })
}

fn figure(fields: &Fields<'_>) -> Result<FigurePlan, Problem> {
    let text = |key: &str| Ok::<_, Problem>(fields.text(key)?.map(|t| t.value));
    fields.needed("kind", "\"lines\"")?;
    let shape = fields.parse("kind", shape)?.unwrap_or(Shape::Lines);
    let (metrics, column) = metrics(fields, shape)?;
    let when = fields.pairs("when")?;
    let when: Case = when.into_iter().map(|(k, v)| (k, v.value)).collect();
    let x = text("x")?;
    along(fields, shape, &metrics, x.is_some())?;
    let line = text("line")?;
    let log = text("log")?.unwrap_or_default();
    if !["", "x", "y", "xy"].contains(&log.as_str()) {
        return Err(fields.problem("log", "log is \"x\", \"y\", \"xy\" or nothing"));
    }
    let reaching = metrics.iter().find(|m| m.level().is_some());
    let level = match reaching.or(metrics.first()) {
        Some(metric) => level(fields, metric, None)?,
        None => None,
    };
    let name = text("flow")?.or(text("link")?).or(text("cross")?);
    let several = line.as_deref() == Some("during");
    let during = if several {
        let all = fields.each("during", window)?;
        all.into_iter().map(Some).collect()
    } else {
        vec![fields.parse("during", window)?]
    };
    if during.is_empty() {
        return Err(fields.problem("line", "line = \"during\" needs a list of times"));
    }
    let base = base(shape, &metrics, &column);
    let unit = fields.parse("unit", |name| {
        base.divisor(name)
            .map(|divisor| (name.to_string(), divisor))
    })?;
    let (name_of, divisor) = base.scale();
    let unit = unit.unwrap_or((name_of.into(), divisor));
    Ok(FigurePlan {
        id: id(fields, "id", "\"fig3\"")?,
        place: text("place")?.unwrap_or_default(),
        caption: text("caption")?.unwrap_or_default(),
        shape,
        terms: during
            .into_iter()
            .flat_map(|during| metrics.iter().map(move |metric| (during, metric)))
            .map(|(during, metric)| Term {
                metric: metric.clone(),
                name: name.clone(),
                during,
                level: level.filter(|_| metric.level().is_some()),
                when: Case::new(),
            })
            .collect(),
        column,
        x,
        line: line.filter(|_| !several),
        when,
        pairs: pairs(fields, shape)?,
        unit,
        log: (log.contains('x'), log.contains('y')),
    })
}

/// Refuses what cannot stand along x.
fn along(
    fields: &Fields<'_>,
    shape: Shape,
    metrics: &[Metric],
    has_x: bool,
) -> Result<(), Problem> {
    if !has_x && matches!(shape, Shape::Lines | Shape::Heat) {
        return Err(fields.problem("kind", "lines and heat maps need x, a variable of [vary]"));
    }
    if shape != Shape::Bars {
        return Ok(());
    }
    if has_x && metrics.len() > 1 {
        return Err(fields.problem("x", "bars have x or metrics, not both"));
    }
    match metrics.iter().find(|m| m.unit() != metrics[0].unit()) {
        Some(other) => {
            let text = format!("{} is in another unit than the first", other.name());
            Err(fields.problem("metrics", text))
        }
        None => Ok(()),
    }
}

/// True if a scatter is of both terms of ratios.
fn pairs(fields: &Fields<'_>, shape: Shape) -> Result<bool, Problem> {
    let pairs = fields.parse("pairs", |text| match text {
        "over" if shape == Shape::Scatter => Ok(()),
        "over" => Err("only a scatter has pairs".into()),
        _ => Err(format!("'{text}': pairs is \"over\" or not given")),
    })?;
    Ok(pairs.is_some())
}

/// Metrics to draw, and of a series its column.
fn metrics(fields: &Fields<'_>, shape: Shape) -> Result<(Vec<Metric>, String), Problem> {
    let named = |key: &str, name: &str| Metric::named(name).map_err(|e| fields.problem(key, e));
    if shape == Shape::Table || (shape == Shape::Bars && fields.has("metrics")) {
        let names = fields.list("metrics")?;
        if names.is_empty() {
            let text = "it needs some metrics, as in metrics = [\"goodput\", \"sender_cpu\"]";
            return Err(fields.problem("kind", text));
        }
        let all = names.iter().map(|name| named("metrics", &name.value));
        return Ok((all.collect::<Result<_, _>>()?, String::new()));
    }
    let metric = fields.needed("metric", "\"goodput\"")?.value;
    if shape != Shape::Series {
        return Ok((vec![named("metric", &metric)?], String::new()));
    }
    if !COLUMNS.contains(&metric.as_str()) {
        let text = unknown("series", &metric, COLUMNS.into_iter());
        return Err(fields.problem("metric", text));
    }
    Ok((vec![Metric::Goodput], metric))
}

/// Unit of the values of a figure.
fn base(shape: Shape, metrics: &[Metric], column: &str) -> Unit {
    match column {
        _ if shape != Shape::Series => metrics.first().map_or(Unit::Number, Metric::unit),
        "goodput" => Unit::Rate,
        "rtt" => Unit::Millis,
        "sender_core" | "receiver_core" => Unit::Share,
        "retransmits" | "duplicate_acks" | "timeouts" => Unit::Number,
        _ => Unit::Bytes,
    }
}

fn shape(text: &str) -> Result<Shape, String> {
    const SHAPES: [(&str, Shape); 6] = [
        ("lines", Shape::Lines),
        ("bars", Shape::Bars),
        ("heat", Shape::Heat),
        ("scatter", Shape::Scatter),
        ("series", Shape::Series),
        ("table", Shape::Table),
    ];
    let found = SHAPES.iter().find(|(name, _)| *name == text);
    let names = SHAPES.iter().map(|(name, _)| *name);
    found
        .map(|(_, shape)| *shape)
        .ok_or_else(|| unknown("kind", text, names))
}
