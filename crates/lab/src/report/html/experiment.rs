//! Shows one experiment: what it is, its figures, what deviates, what is missing, and the command
//! that repeats it.

use maud::{Markup, PreEscaped, html};

use super::{data, numbers};
use crate::{
    plot,
    report::{Figure, NARROW, Section, Table, WIDE, of_paper},
};

/// The section with this id.
pub(super) fn section(id: &str, section: &Section) -> Markup {
    html! {
        section.experiment id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { span.id { (section.id) ":" } " " (section.title) }
            @if !section.about.is_empty() { p { (section.about) } }
            @for line in &section.open { p.words { (line) "." } }
            @if !section.remarks.is_empty() { (remarks(section)) }
            @for drawn in &section.figures { (figure(drawn)) }
            @for one in &section.tables { (table(one)) }
            @if let Some(line) = section.missing() { p.words { (line) } }
            @if section.verdicts.is_empty() {
                p.words { "No published number is compared here." }
            } @else {
                p { a href={ "#" (numbers::group(id)) } { "Published numbers of " (section.id) } }
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
            p { strong { "Not valid or ended early" } }
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
