//! Shows one experiment: what it is, its figures, a verdict on each published number, what
//! deviates, what is missing, and the command that repeats it.

use maud::{Markup, PreEscaped, html};

use super::{badge, class, data};
use crate::{
    plot,
    report::{Figure, NARROW, Section, Table, Verdict, WIDE, of_paper},
};

/// The section with this id.
pub(super) fn section(id: &str, section: &Section) -> Markup {
    html! {
        section.experiment id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { span.id { (section.id) } " " (section.title) }
            @if !section.about.is_empty() { p { (section.about) } }
            @if !section.remarks.is_empty() { (remarks(section)) }
            @for drawn in &section.figures { (figure(drawn)) }
            @for one in &section.tables { (table(one)) }
            @if section.verdicts.is_empty() {
                p.words { "No published number is compared here." }
            } @else {
                (verdicts(id, section))
            }
            @if !section.deviations.is_empty() {
                h3 { "Deviations from the paper" }
                ul { @for deviation in &section.deviations { li { (deviation) } } }
            }
            @if !section.repeat.is_empty() {
                h3 { "To repeat it" }
                pre { code { (section.repeat) } }
            }
        }
    }
}

fn remarks(section: &Section) -> Markup {
    html! {
        div.remarks role="note" {
            p { strong { "Not valid or not run" } }
            ul { @for remark in &section.remarks { li { (remark) } } }
        }
    }
}

/// The figure for wide and for narrow windows; the style shows one of them.
fn figure(figure: &Figure) -> Markup {
    let drawn = plot::svg(&figure.chart, WIDE).and_then(|wide| {
        let narrow = plot::svg(&figure.chart, NARROW)?;
        Ok((wide, narrow))
    });
    html! {
        figure id={ "figure-" (figure.id) } {
            @match &drawn {
                Ok((wide, narrow)) => {
                    @let words = data::words(&figure.chart);
                    div.ground role="img" aria-label=(words) {
                        div.wide aria-hidden="true" { (PreEscaped(wide)) }
                        div.narrow aria-hidden="true" { (PreEscaped(narrow)) }
                    }
                }
                Err(e) => div.remarks role="note" {
                    p { strong { "Not drawn: " } (figure.chart.title) ": " (e) }
                },
            }
            figcaption {
                @if !figure.place.is_empty() { b { (figure.place) } (of_paper(&figure.place)) ". " }
                (figure.caption)
                @if drawn.is_ok() {
                    span.files {
                        " " a href={ "figures/" (figure.id) ".svg" } { "SVG" }
                        " " a href={ "figures/" (figure.id) ".png" } { "PNG" }
                    }
                }
            }
            (data::table(&figure.id, &figure.chart))
        }
    }
}

fn table(table: &Table) -> Markup {
    let id = format!("table-{}", table.id);
    html! {
        h3 id=(id) {
            @if !table.place.is_empty() { (table.place) (of_paper(&table.place)) ". " }
            (table.caption)
        }
        div.scroll role="region" aria-labelledby=(id) tabindex="0" {
            table aria-labelledby=(id) {
                thead { tr { @for name in &table.head { th.number scope="col" { (name) } } } }
                tbody { @for row in &table.rows {
                    tr { @for cell in row { td.number { (cell) } } }
                } }
            }
        }
    }
}

/// The id of a verdict's row.
pub(super) fn row(id: &str, n: usize) -> String {
    format!("{id}-{}", n + 1)
}

/// The columns; in a narrow window each row is a card with these names in it.
const COLUMNS: [&str; 7] = [
    "Place",
    "Quantity",
    "Backend",
    "Published",
    "Ours",
    "Allowed",
    "Outcome",
];

/// The roles are stated because cards are no table for browsers otherwise.
fn verdicts(id: &str, section: &Section) -> Markup {
    html! {
        h3 id={ (id) "-numbers" } { "Published numbers and ours" }
        div.scroll role="region" aria-labelledby={ (id) "-numbers" } tabindex="0" {
            table.verdicts role="table" aria-labelledby={ (id) "-numbers" } {
                thead role="rowgroup" { tr role="row" {
                    @for column in COLUMNS { th scope="col" role="columnheader" { (column) } }
                } }
                tbody role="rowgroup" { @for (n, verdict) in section.verdicts.iter().enumerate() {
                    (verdict_row(&row(id, n), verdict))
                } }
            }
        }
    }
}

fn verdict_row(id: &str, verdict: &Verdict) -> Markup {
    let [place, _, backend, published, ours, allowed, outcome] = COLUMNS;
    html! {
        tr id=(id) role="row" class=(class(verdict.outcome)) {
            td role="cell" data-name=(place) { (verdict.place) }
            th.what scope="row" role="rowheader" { (verdict.title()) }
            td role="cell" data-name=(backend) { (verdict.backend) }
            td role="cell" data-name=(published) { (verdict.published) }
            td role="cell" data-name=(ours) {
                @if verdict.ours.is_empty() { "–" } @else { b { (verdict.ours) } }
                @if !verdict.range.is_empty() { span.range { (verdict.range) } }
            }
            td role="cell" data-name=(allowed) { (verdict.bounds) }
            td role="cell" data-name=(outcome) {
                (badge(verdict.outcome))
                @if !verdict.note.is_empty() { span.note { (verdict.note) } }
            }
        }
    }
}
