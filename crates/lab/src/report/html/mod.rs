//! Shows a page in a browser. As one HTML document that loads nothing: style and figures are in it,
//! and it works without scripts.
//!
//! - here: the frame, and the words on the whole study
//! - `numbers`: the verdict and the table of published numbers
//! - `experiment`: a section with its figures
//! - `data`: the numbers of a figure, as a table

mod data;
mod experiment;
mod numbers;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Outcome, Page, Progress, QUICK, Section, counted, numbers as by_number, numbers::tally, unrun,
};

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
    let ran: Vec<_> = sections.iter().copied().filter(|(_, s)| s.ran).collect();
    let main = html! {
        @if page.quick { p.quick role="note" { strong { "Quick run. " } (QUICK) } }
        (head(page))
        @if let Some(progress) = &page.progress { (running(progress, version.is_some())) }
        (numbers::verdict(page))
        @if !page.about.is_empty() { p.about { (page.about) } }
        @if !sections.is_empty() { (contents(&ran, &page.unrun())) }
        (numbers::table(&ran))
        @if !page.deviations.is_empty() {
            section #deviations {
                h2 { "Deviations from the paper" }
                ul { @for deviation in &page.deviations { li { (deviation) } } }
            }
        }
        @for (id, section) in &ran { (experiment::section(id, section)) }
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

/// The outcome in words; colour and sign only repeat it.
fn badge(outcome: Outcome) -> Markup {
    html! {
        span class={ "outcome " (class(outcome)) } {
            span.sign aria-hidden="true" { (outcome.sign()) } " " (outcome.name())
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
        | Outcome::FittedOutside
        | Outcome::Shown
        | Outcome::NotComparable
        | Outcome::Incomplete
        | Outcome::NotRun => "apart",
    }
}

/// Experiments that have runs, each with a link; those without a run in one line.
fn contents(ran: &Sections<'_>, missing: &[&Section]) -> Markup {
    html! {
        nav aria-labelledby="contents" {
            h2 #contents { "Experiments" }
            ol.contents { @for (id, section) in ran {
                li {
                    a href={ "#" (id) } {
                        span.id { (section.id) } " " span.title { (section.title) }
                    }
                    span.counts { (counts(section)) }
                }
            } }
            @if let Some(line) = unrun(missing) {
                details #unrun {
                    summary { (line) }
                    ul { @for section in missing {
                        li { (section.id) ": " (section.title) " " code { (section.repeat) } }
                    } }
                }
            }
        }
    }
}

/// Numbers by outcome, as in `12 met; 1 missed`, and runs that are not valid or ended early.
fn counts(section: &Section) -> Markup {
    let numbers = by_number([section]);
    let tally = tally(numbers.iter().map(|n| n.outcome));
    html! {
        @if tally.is_empty() { "nothing compared" } @else { (counted(&tally)) }
        @match section.remarks.len() {
            0 => {}
            1 => { "; " span.missed { "1 run not valid or ended early" } }
            n => { "; " span.missed { (n) " runs not valid or ended early" } }
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
