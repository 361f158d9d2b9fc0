//! Shows a page in a browser. As one HTML document that loads nothing: style and figures are in it,
//! and it works without scripts.
//!
//! - here: the frame, and the words on the whole study
//! - `experiment`: a section with its figures and verdicts
//! - `data`: the numbers of a figure, as a table

mod data;
mod experiment;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Outcome, Page, Progress, Section, Tally, Verdict, tally};

const STYLE: &str = include_str!("style.css");

/// The page as one HTML document. Links to `figures/ID.svg` and `figures/ID.png` lead to files beside it.
pub fn html(page: &Page) -> String {
    document(page, None)
}

/// The page while the results change: it asks for the version, and replaces itself when there is
/// another.
pub(super) fn live(page: &Page, version: &str) -> String {
    document(page, Some(version))
}

/// Instead of the page of results that cannot be read; it, too, replaces itself.
pub(super) fn failure(why: &str) -> String {
    let main = html! {
        h1 { "The results cannot be shown" }
        p { (why) }
    };
    frame("Not shown", Some(""), &main)
}

fn frame(title: &str, version: Option<&str>, main: &Markup) -> String {
    let whole = html! {
        (DOCTYPE)
        html lang="en" data-version=[version] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
                @if version.is_some() {
                    noscript { meta http-equiv="refresh" content="10"; }
                    script src="/live.js" defer {}
                }
            }
            body {
                @if version.is_some() { p #status role="status" {} }
                main { (main) }
            }
        }
    };
    whole.into_string()
}

fn document(page: &Page, version: Option<&str>) -> String {
    let ids = ids(&page.sections);
    let sections: Vec<_> = ids.iter().zip(&page.sections).collect();
    let main = html! {
        (head(page))
        @if let Some(progress) = &page.progress { (running(progress, version.is_some())) }
        (summary(page, &sections))
        @if !sections.is_empty() { (contents(&sections)) }
        @for (id, section) in &sections { (experiment::section(id, section)) }
        (facts(page))
    };
    let title = format!("{} ({})", page.title, page.name);
    frame(&title, version, &main)
}

/// An id per section, from its own if that can be had.
fn ids(sections: &[Section]) -> Vec<String> {
    let mut used = BTreeSet::new();
    let mut ids = Vec::with_capacity(sections.len());
    for section in sections {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let wanted: String = section.id.chars().map(plain).collect();
        let free = (1..).map(|n| match n {
            1 => format!("experiment-{wanted}"),
            n => format!("experiment-{wanted}-{n}"),
        });
        ids.extend(free.into_iter().find(|id| used.insert(id.clone())));
    }
    ids
}

fn head(page: &Page) -> Markup {
    html! {
        header {
            p.study { "Study " code { (page.name) } }
            h1 { (page.title) }
            @if !page.source.is_empty() { p.source { "After " (page.source) } }
            @if !page.about.is_empty() { p.about { (page.about) } }
        }
    }
}

fn running(progress: &Progress, live: bool) -> Markup {
    let count = progress.count();
    html! {
        section.running aria-label="Progress" {
            p {
                strong { (count) } " have ended. "
                @if !live { "This page was made meanwhile. " }
            }
            progress max=(progress.runs.max(1)) value=(progress.ended.min(progress.runs)) aria-label="Runs" { (count) }
            @if !progress.text.is_empty() { p { (progress.text) } }
        }
    }
}

type Sections<'a> = [(&'a String, &'a Section)];

fn summary(page: &Page, sections: &Sections<'_>) -> Markup {
    let tally = tally(page.verdicts());
    html! {
        section #summary {
            h2 { "Summary" }
            @if tally.is_empty() {
                p { "No published number has been compared yet." }
            } @else {
                (outcomes(&tally, page.rows()))
                (misses(sections))
            }
            @if !page.deviations.is_empty() {
                h3 { "Deviations from the paper" }
                ul { @for deviation in &page.deviations { li { (deviation) } } }
            }
        }
    }
}

fn outcomes(tally: &Tally, rows: usize) -> Markup {
    html! {
        table.outcomes {
            caption.unseen { "How many comparisons have which outcome" }
            thead { tr {
                th scope="col" { "Outcome" }
                th.number scope="col" { "Comparisons" }
                th scope="col" { "Meaning" }
            } }
            tbody { @for outcome in Outcome::ALL {
                @let n = tally.get(&outcome).copied().unwrap_or_default();
                tr.none[n == 0] {
                    th scope="row" { (badge(outcome)) }
                    td.number { (n) }
                    td { (outcome.meaning()) }
                }
            } }
            tfoot { tr {
                th scope="row" { "all" }
                td.number { (tally.values().sum::<usize>()) }
                td { (format!("comparisons, one per case and backend, with {rows} numbers of the table")) }
            } }
        }
    }
}

/// The outcome in words; colour and sign only repeat it.
fn badge(outcome: Outcome) -> Markup {
    let sign = match outcome {
        Outcome::Met => "✓",
        Outcome::Missed | Outcome::Known => "✗",
        Outcome::Fitted => "=",
        Outcome::Shown | Outcome::Incomplete | Outcome::NotRun => "–",
        Outcome::NotComparable => "≠",
    };
    html! {
        span class={ "outcome " (class(outcome)) } {
            span.sign aria-hidden="true" { (sign) } " " (outcome.name())
        }
    }
}

/// Class for the style.
fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "met",
        Outcome::Missed => "missed",
        Outcome::Known => "known",
        Outcome::Fitted
        | Outcome::Shown
        | Outcome::NotComparable
        | Outcome::Incomplete
        | Outcome::NotRun => "apart",
    }
}

/// A link to each.
fn misses(sections: &Sections<'_>) -> Markup {
    let missed = |v: &&(usize, &Verdict)| v.1.outcome.is_miss();
    let lists: Vec<_> = (sections.iter())
        .map(|(id, section)| {
            let all: Vec<_> = section.verdicts.iter().enumerate().collect();
            let missed: Vec<_> = all.iter().filter(missed).copied().collect();
            (id, section, missed)
        })
        .filter(|(_, _, missed)| !missed.is_empty())
        .collect();
    html! {
        h3 { "Missed" }
        @if lists.is_empty() {
            p { "None." }
        }
        @for (id, section, missed) in lists {
            h4 { (section.id) " " (section.title) }
            ul.misses { @for (n, verdict) in missed {
                li { (miss(id, n, verdict)) }
            } }
        }
    }
}

fn miss(id: &str, n: usize, verdict: &Verdict) -> Markup {
    html! {
        a href={ "#" (experiment::row(id, n)) } { (verdict.placed()) }
        " (" (verdict.backend) "): " (verdict.compared())
    }
}

fn contents(sections: &Sections<'_>) -> Markup {
    html! {
        nav aria-labelledby="contents" {
            h2 #contents { "Experiments" }
            ol.contents { @for (id, section) in sections {
                li {
                    a href={ "#" (id) } {
                        span.id { (section.id) } " " (section.title)
                    }
                    span.leader aria-hidden="true" {}
                    span.counts { (counts(section)) }
                }
            } }
        }
    }
}

/// Counts as in `12 met · 1 missed · 2 remarks`.
fn counts(section: &Section) -> Markup {
    let tally = tally(&section.verdicts);
    let there = Outcome::ALL.into_iter().filter_map(|outcome| {
        let n = *tally.get(&outcome)?;
        Some((outcome, n))
    });
    html! {
        @if tally.is_empty() { "nothing compared" }
        @for (i, (outcome, n)) in there.enumerate() {
            @if i > 0 { " · " }
            span class=(class(outcome)) { (n) " " (outcome.name()) }
        }
        @match section.remarks.len() {
            0 => {}
            1 => { " · " span.missed { "1 remark" } }
            n => { " · " span.missed { (n) " remarks" } }
        }
    }
}

fn facts(page: &Page) -> Markup {
    html! {
        section #facts {
            h2 { "How it was run" }
            dl.facts { @for (name, value) in &page.facts {
                div { dt { (name) } dd { (value) } }
            } }
            p.words {
                b { "sim" } ": in the simulator, in virtual time. "
                b { "emu" } ": real sockets over an emulated network. A published number is "
                b { "printed" } " in the paper, " b { "derived" } " from what is printed, "
                b { "assumed" } " where the paper leaves it open, or " b { "recalled" }
                " without the source at hand."
            }
        }
    }
}
