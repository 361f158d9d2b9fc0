//! Shows a page in a terminal or a repository, as Markdown, with links to the figures beside it.

use std::fmt::{self, Write as _};

use farhaul_core::text;

use super::{Figure, Outcome, Page, Section, Table, Verdict, tally};

/// The page in Markdown, for a file beside `figures`.
pub fn markdown(page: &Page) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _infallible = whole(&mut out, page);
    out
}

fn whole(out: &mut String, page: &Page) -> fmt::Result {
    writeln!(out, "# {}\n", inline(&page.title))?;
    if !page.source.is_empty() {
        writeln!(out, "After {}\n", inline(&page.source))?;
    }
    paragraph(out, &page.about)?;
    if let Some(progress) = &page.progress {
        let (count, text) = (progress.count(), inline(&progress.text));
        writeln!(out, "**{count} have ended.** {text}\n")?;
    }
    outcomes(out, page)?;
    list(out, "Deviations from the paper", "##", &page.deviations)?;
    for one in &page.sections {
        section(out, one)?;
    }
    if !page.facts.is_empty() {
        writeln!(out, "## How it was run\n")?;
        for (name, value) in &page.facts {
            writeln!(out, "- {}: {}", inline(name), inline(value))?;
        }
    }
    Ok(())
}

fn outcomes(out: &mut String, page: &Page) -> fmt::Result {
    let tally = tally(page.verdicts());
    if tally.is_empty() {
        return writeln!(out, "No published number has been compared yet.\n");
    }
    writeln!(out, "| outcome | comparisons | |\n|---|--:|---|")?;
    for outcome in Outcome::ALL {
        let n = tally.get(&outcome).copied().unwrap_or_default();
        writeln!(out, "| {} | {n} | {} |", outcome.name(), outcome.meaning())?;
    }
    writeln!(
        out,
        "\nThey are with {} numbers of the table.\n",
        page.rows()
    )?;
    let missed: Vec<_> = (page.sections.iter())
        .flat_map(|s| s.verdicts.iter().map(move |v| (s, v)))
        .filter(|(_, v)| v.outcome.is_miss())
        .map(|(s, v)| {
            let (what, backend) = (v.placed(), v.backend);
            format!("{}, {what} ({backend}): {}", s.id, v.compared())
        })
        .collect();
    list(out, "Missed", "##", &missed)
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    let (id, title) = (inline(&section.id), inline(&section.title));
    writeln!(out, "## {id} {title}\n")?;
    paragraph(out, &section.about)?;
    list(out, "Not valid or not run", "###", &section.remarks)?;
    for one in &section.figures {
        figure(out, one)?;
    }
    for one in &section.tables {
        table(out, one)?;
    }
    verdicts(out, &section.verdicts)?;
    list(out, "Deviations from the paper", "###", &section.deviations)?;
    if section.repeat.is_empty() {
        return Ok(());
    }
    writeln!(out, "To repeat it:\n\n{}", block(&section.repeat))
}

/// The place as it stands before a caption.
fn placed(place: &str) -> String {
    match place {
        "" => String::new(),
        place => format!("{}{}. ", inline(place), super::of_paper(place)),
    }
}

fn table(out: &mut String, table: &Table) -> fmt::Result {
    let row = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| inline(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    let place = placed(&table.place);
    writeln!(
        out,
        "{place}{}:\n\n{}",
        inline(&table.caption),
        row(&table.head)
    )?;
    writeln!(out, "|{}", "--:|".repeat(table.head.len()))?;
    for cells in &table.rows {
        writeln!(out, "{}", row(cells))?;
    }
    writeln!(out)
}

fn figure(out: &mut String, figure: &Figure) -> fmt::Result {
    let place = placed(&figure.place);
    let caption = inline(&figure.caption);
    let id = &figure.id;
    writeln!(out, "![{place}{caption}](figures/{id}.svg)\n")
}

fn verdicts(out: &mut String, verdicts: &[Verdict]) -> fmt::Result {
    if verdicts.is_empty() {
        return writeln!(out, "No published number is compared here.\n");
    }
    writeln!(
        out,
        "| place | quantity | backend | published | ours | range | allowed | outcome | |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    for v in verdicts {
        let outcome = match v.outcome {
            Outcome::Missed => "**missed**",
            other => other.name(),
        };
        let cells = [&v.place, &v.title(), &v.backend.to_owned()].map(|text| inline(text));
        let figures = [&v.published, &v.ours, &v.range, &v.bounds].map(|text| inline(text));
        let (cells, figures) = (cells.join(" | "), figures.join(" | "));
        writeln!(
            out,
            "| {cells} | {figures} | {outcome} | {} |",
            inline(&v.note)
        )?;
    }
    writeln!(out)
}

fn paragraph(out: &mut String, text: &str) -> fmt::Result {
    if text.is_empty() {
        Ok(())
    } else {
        writeln!(out, "{}\n", inline(text))
    }
}

/// Writes a list with its heading; nothing if there is none.
fn list(out: &mut String, title: &str, level: &str, all: &[String]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "{level} {title}\n")?;
    for one in all {
        writeln!(out, "- {}", inline(one))?;
    }
    writeln!(out)
}

/// `text` on one line in which nothing is markup, nor steers a terminal.
fn inline(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut escaped = String::with_capacity(text.len());
    for c in text::plain(&words.join(" ")).chars() {
        if r"\`*_[]<>|#~&".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The text as code, line by line.
fn block(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .map(|l| format!("    {}\n", text::plain(l)))
        .collect();
    lines.concat()
}
