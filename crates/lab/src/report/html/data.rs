//! Describes a figure to people who do not see it: a sentence, and its numbers as a table.

use maud::{Markup, html};

use crate::plot::{Bars, Body, Chart, Line, Origin, Point};

/// A line with more points than this is summarised.
const POINTS: usize = 60;

/// The figure in one sentence.
pub(super) fn words(chart: &Chart) -> String {
    let over = format!("{} over {}", chart.y.label, chart.x.label);
    let named = |name: &str, origin| format!("{name} ({})", whose(origin));
    let lines = |all: &[Line]| {
        let names: Vec<_> = all.iter().map(|l| named(&l.name, l.origin)).collect();
        names.join(", ")
    };
    let body = match &chart.body {
        Body::Lines(all) => format!("Lines, {over}: {}", lines(all)),
        Body::Scatter { sets, .. } => format!("Points, {over}: {}", lines(sets)),
        Body::Bars { groups, series } => {
            let names: Vec<_> = series.iter().map(|s| named(&s.name, s.origin)).collect();
            let (y, groups) = (&chart.y.label, groups.join(", "));
            format!("Bars, {y}, for {groups}: {}", names.join(", "))
        }
        Body::Heat { columns, rows, .. } => {
            let (width, height) = (columns.len(), rows.len());
            let (x, y) = (&chart.x.label, &chart.y.label);
            format!("Coloured table, {height} rows of {y} and {width} columns of {x}")
        }
    };
    let title = match chart.title.as_str() {
        "" => String::new(),
        title => format!("{title}. "),
    };
    format!("{title}{body}. The data follow as a table.")
}

fn whose(origin: Origin) -> &'static str {
    match origin {
        Origin::Simulated => "simulated",
        Origin::Measured => "measured",
        Origin::Published => "published",
        Origin::Inferred => "derived or assumed",
    }
}

/// Table that can be opened below a figure.
pub(super) fn table(id: &str, chart: &Chart) -> Markup {
    let of = match chart.title.as_str() {
        "" => "the figure",
        title => title,
    };
    html! {
        details id={ "data-" (id) } {
            summary { "Data of the figure" }
            div.scroll role="region" aria-label={ "Data of " (of) } tabindex="0" {
                @match &chart.body {
                    Body::Lines(lines) => (points(chart, lines)),
                    Body::Scatter { sets, .. } => (points(chart, sets)),
                    Body::Bars { groups, series } => (bars(chart, groups, series)),
                    Body::Heat { columns, rows, cells } => (heat(chart, columns, rows, cells)),
                }
            }
        }
    }
}

fn points(chart: &Chart, lines: &[Line]) -> Markup {
    let (long, short): (Vec<_>, Vec<_>) = lines.iter().partition(|l| l.points.len() > POINTS);
    let series = if chart.key.is_empty() {
        "Series"
    } else {
        &chart.key
    };
    html! {
        @if !short.is_empty() {
            table.data {
                thead { tr {
                    th scope="col" { (series) } th scope="col" { "Whose" }
                    th.number scope="col" { (chart.x.label) } th.number scope="col" { (chart.y.label) }
                    th.number scope="col" { "Range" } th scope="col" { "Remark" }
                } }
                tbody { @for line in short { @for point in &line.points {
                    tr {
                        td { (line.name) } td { (whose(line.origin)) }
                        td.number { (number(point.x)) } td.number { (number(point.y)) }
                        td.number { (range(point)) } td { (point.label.as_deref().unwrap_or_default()) }
                    }
                } } }
            }
        }
        @if !long.is_empty() {
            p { "Of lines with more than " (POINTS) " points:" }
            table.data {
                thead { tr {
                    th scope="col" { (series) } th scope="col" { "Whose" } th.number scope="col" { "Points" }
                    th.number scope="col" { (chart.x.label) }
                    th.number scope="col" { (chart.y.label) ": least" } th.number scope="col" { "median" }
                    th.number scope="col" { "greatest" }
                } }
                tbody { @for line in long { (long_line(line)) } }
            }
        }
    }
}

fn long_line(line: &Line) -> Markup {
    let sorted = |value: fn(&Point) -> f64| {
        let mut all: Vec<_> = line.points.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (x, y) = (sorted(|p| p.x), sorted(|p| p.y));
    let at = |values: &[f64], i: usize| values.get(i).map_or_else(String::new, |v| number(*v));
    let last = line.points.len() - 1;
    html! {
        tr {
            td { (line.name) } td { (whose(line.origin)) } td.number { (line.points.len()) }
            td.number { (at(&x, 0)) " to " (at(&x, last)) }
            td.number { (at(&y, 0)) } td.number { (at(&y, last / 2)) } td.number { (at(&y, last)) }
        }
    }
}

fn bars(chart: &Chart, groups: &[String], series: &[Bars]) -> Markup {
    html! {
        table.data {
            caption { (chart.y.label) }
            thead { tr {
                th scope="col" { (chart.x.label) }
                @for one in series { th.number scope="col" { (one.name) " (" (whose(one.origin)) ")" } }
            } }
            tbody { @for (i, group) in groups.iter().enumerate() {
                tr {
                    th scope="row" { (group) }
                    @for one in series { td.number {
                        @match one.values.get(i).and_then(Option::as_ref) {
                            Some(point) => { (number(point.y)) " " span.range { (range(point)) } }
                            None => "–",
                        }
                    } }
                }
            } }
        }
    }
}

fn heat(chart: &Chart, columns: &[String], rows: &[String], cells: &[Vec<Option<f64>>]) -> Markup {
    html! {
        table.data {
            caption { "Rows: " (chart.y.label) "; columns: " (chart.x.label) }
            thead { tr {
                td {}
                @for column in columns { th.number scope="col" { (column) } }
            } }
            // The first row is at the bottom of the figure.
            tbody { @for (i, row) in rows.iter().enumerate().rev() {
                tr {
                    th scope="row" { (row) }
                    @for j in 0..columns.len() { td.number {
                        @match cells.get(i).and_then(|r| r.get(j)).copied().flatten() {
                            Some(value) => (number(value)),
                            None => "–",
                        }
                    } }
                }
            } }
        }
    }
}

fn range(point: &Point) -> String {
    match point.range {
        Some((low, high)) => format!("{} to {}", number(low), number(high)),
        None => String::new(),
    }
}

/// The number with four significant digits, and every one before the point.
fn number(value: f64) -> String {
    let size = value.abs();
    if (1_000.0..1e7).contains(&size) {
        return format!("{value:.0}");
    }
    let short = format!("{value:.3e}");
    match short.parse::<f64>() {
        Ok(rounded) if size < 1_000.0 && (size >= 1e-4 || size == 0.0) => rounded.to_string(),
        _ => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Axis;

    #[test]
    fn a_figure_without_a_title_has_words_all_the_same() {
        let mut chart = Chart {
            title: "Rates".into(),
            x: Axis::default(),
            y: Axis::default(),
            key: String::new(),
            body: Body::Lines(Vec::new()),
        };
        assert!(words(&chart).starts_with("Rates. Lines"));
        chart.title.clear();
        assert!(words(&chart).starts_with("Lines"));
        let table = table("a", &chart).into_string();
        assert!(table.contains("\"Data of the figure\""), "{table}");
    }

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let cases = [
            (0.0, "0"),
            (0.1, "0.1"),
            (0.000_25, "0.00025"),
            (3.56, "3.56"),
            (28.1, "28.1"),
            (97.856, "97.86"),
            (1_024.4, "1024"),
            (6_215.0, "6215"),
            (-12.5, "-12.5"),
            (1e10, "1.000e10"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
