//! Shows what was reproduced: the verdict in a sentence and a bar, and a table with a row per
//! published number, each with its cases folded under it.

use std::ptr;

use maud::{Markup, PreEscaped, html};

use super::{badge, class};
use crate::report::{Number, Outcome, Page, Score, Section, Verdict, counted, numbers};

/// Verdict on the whole page.
pub(super) fn verdict(page: &Page) -> Markup {
    let score = page.score();
    html! {
        section #verdict aria-label="Verdict" {
            p.sentence { (score.sentence()) }
            @if score.numbers() > 0 {
                (bar(&score))
                ul.key { @for (outcome, n) in there(&score) {
                    li { (swatch(outcome)) " " b { (n) } " " (outcome.name()) }
                } }
                details #meanings {
                    summary { "What the words mean" }
                    dl.facts { @for outcome in Outcome::ALL {
                        div { dt { (badge(outcome)) } dd { (outcome.meaning()) } }
                    } }
                }
            }
        }
    }
}

fn there(score: &Score) -> impl Iterator<Item = (Outcome, usize)> {
    let of = |outcome: Outcome| Some((outcome, *score.tally.get(&outcome)?));
    Outcome::ALL.into_iter().filter_map(of)
}

/// Stripes for what was fitted and is outside all the same; the name is unique on the page.
const STRIPES: &str = "<pattern id=\"stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                       patternTransform=\"rotate(45)\"><rect class=\"part-fitted\" width=\"6\" height=\"6\"/>\
                       <rect class=\"part-stripe\" width=\"2.5\" height=\"6\"/></pattern>";

/// One bar of all numbers, a part for each outcome.
fn bar(score: &Score) -> Markup {
    let all = exact(score.numbers());
    let mut left = 0.0;
    let parts = there(score).map(|(outcome, n)| {
        let wide = exact(n) / all * 100.0;
        let from = left;
        left += wide;
        (outcome, n, from, wide)
    });
    html! {
        svg.bar role="img" aria-label=(score.sentence()) width="100%" height="26" {
            defs { (PreEscaped(STRIPES)) }
            @for (outcome, n, from, wide) in parts {
                rect class=(part(outcome)) x={ (percent(from)) } y="0" width={ (percent(wide)) } height="26" {
                    title { (n) " " (outcome.name()) }
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of numbers")]
fn exact(n: usize) -> f64 {
    n as f64
}

fn percent(share: f64) -> String {
    format!("{share:.3}%")
}

fn swatch(outcome: Outcome) -> Markup {
    html! {
        svg.swatch aria-hidden="true" width="14" height="14" {
            rect class=(part(outcome)) width="14" height="14" {}
        }
    }
}

/// Class of an outcome's part of the bar.
const fn part(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "part part-met",
        Outcome::Missed => "part part-missed",
        Outcome::Known => "part part-known",
        Outcome::Fitted => "part part-fitted",
        Outcome::FittedOutside => "part part-outside",
        Outcome::Shown | Outcome::NotComparable | Outcome::Incomplete | Outcome::NotRun => {
            "part part-open"
        }
    }
}

/// Columns of the table; in a narrow window each row is a card with these names in it.
const COLUMNS: [&str; 4] = ["Number", "Published", "Ours, worst case", "Verdict"];

/// The id of the part of the table that belongs to an experiment.
pub(super) fn group(id: &str) -> String {
    format!("numbers-{id}")
}

/// The table of all numbers of experiments that have runs.
pub(super) fn table(sections: &[(&String, &Section)]) -> Markup {
    let all = numbers(sections.iter().map(|(_, section)| *section));
    if all.is_empty() {
        return html! {};
    }
    let own = |section: &Section| {
        let of = all.iter().enumerate();
        of.filter(|(_, n)| ptr::eq(n.section, section))
            .collect::<Vec<_>>()
    };
    html! {
        section #numbers aria-labelledby="numbers-title" {
            h2 #numbers-title { "Published numbers and ours" }
            table.verdicts role="table" aria-labelledby="numbers-title" {
                thead role="rowgroup" { tr role="row" {
                    @for column in COLUMNS { th scope="col" role="columnheader" { (column) } }
                } }
                @for (id, section) in sections {
                    @let own = own(section);
                    @if !own.is_empty() {
                        tbody.group role="rowgroup" {
                            tr role="row" { th role="rowheader" id=(group(id)) colspan="4" scope="rowgroup" {
                                a href={ "#" (id) } { (section.id) ": " (section.title) }
                            } }
                        }
                        @for (n, number) in own { (row(n + 1, number)) }
                    }
                }
            }
        }
    }
}

/// The roles are stated because cards are no table for browsers otherwise.
fn row(n: usize, number: &Number<'_>) -> Markup {
    let [_, published, ours, verdict] = COLUMNS;
    let worst = number.worst;
    html! {
        tbody id={ "number-" (n) } role="rowgroup" class=(class(number.outcome)) {
            tr role="row" {
                th.what scope="row" role="rowheader" {
                    (worst.quantity)
                    @if !worst.place.is_empty() { span.note { (worst.place) } }
                }
                td role="cell" data-name=(published) { (worst.published) }
                td role="cell" data-name=(ours) {
                    @if worst.ours.is_empty() { "–" } @else { b { (worst.ours) } }
                    @if !worst.setting.is_empty() && !worst.ours.is_empty() {
                        span.note { (worst.setting) }
                    }
                }
                td role="cell" data-name=(verdict) {
                    (badge(number.outcome))
                    @if !number.note().is_empty() { span.note { (number.note()) } }
                }
            }
            tr.cases role="row" { td role="cell" colspan="4" { (cases(n, number)) } }
        }
    }
}

/// Every case, folded.
fn cases(n: usize, number: &Number<'_>) -> Markup {
    let count = number.cases.len();
    let noun = if count == 1 { "case" } else { "cases" };
    let figures = |v: &&Verdict| v.what.clone();
    let mut names: Vec<_> = number.cases.iter().map(figures).collect();
    names.dedup();
    html! {
        details id={ "cases-" (n) } {
            summary { (count) " " (noun) ": " (counted(&number.tally())) }
            div.scroll role="region" aria-label={ "Cases of " (number.worst.quantity) } tabindex="0" {
                p { "Compared: " @for (i, name) in names.iter().enumerate() {
                    @if i > 0 { "; " } code { (name) }
                } }
                table.data {
                    thead { tr {
                        th scope="col" { "Case" } th scope="col" { "Backend" } th scope="col" { "Ours" }
                        th scope="col" { "Allowed" } th scope="col" { "Outcome" }
                    } }
                    tbody { @for case in &number.cases { (case_row(case)) } }
                }
            }
        }
    }
}

fn case_row(case: &Verdict) -> Markup {
    html! {
        tr {
            td {
                @if case.setting.is_empty() { "the only one" } @else { (case.setting) }
                code.note { (case.case) }
            }
            td { (case.backend) }
            td {
                @if case.ours.is_empty() { "–" } @else { (case.ours) }
                @if !case.range.is_empty() { span.note { (case.range) } }
            }
            td { (case.bounds) }
            td {
                (badge(case.outcome))
                @if !case.note.is_empty() { span.note { (case.note) } }
            }
        }
    }
}
