//! Shows a page in a terminal or a repository, as Markdown, with links to the figures beside it.

use std::fmt::{self, Write as _};

use farhaul_core::text;

use super::{
    Figure, Number, Outcome, Page, QUICK, Section, Table, Verdict, counted, numbers, unrun,
};

/// The page in Markdown, for a file beside `figures`.
pub fn markdown(page: &Page) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _infallible = whole(&mut out, page);
    out
}

fn whole(out: &mut String, page: &Page) -> fmt::Result {
    writeln!(out, "# {}\n", inline(&page.title))?;
    if page.quick {
        writeln!(out, "> **Quick run.** {QUICK}\n")?;
    }
    if let Some(progress) = &page.progress {
        let (count, text) = (progress.count(), inline(&progress.text));
        writeln!(out, "**{count} have ended.** {text}\n")?;
    }
    verdict(out, page)?;
    if !page.source.is_empty() {
        writeln!(out, "After {}\n", inline(&page.source))?;
    }
    paragraph(out, &page.about)?;
    table_of_numbers(out, page)?;
    if let Some(line) = unrun(&page.unrun()) {
        writeln!(out, "{}.\n", inline(&line))?;
    }
    list(out, "Deviations from the paper", "##", &page.deviations)?;
    for one in page.ran() {
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

/// The verdict in a sentence, and as a bar of signs.
fn verdict(out: &mut String, page: &Page) -> fmt::Result {
    let score = page.score();
    writeln!(out, "**{}**\n", inline(&score.sentence()))?;
    if score.numbers() == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "{}",
        block(&format!("{}\n{}", score.bar(), score.legend()))
    )
}

/// A row per published number, with its worst case.
fn table_of_numbers(out: &mut String, page: &Page) -> fmt::Result {
    let all = numbers(page.ran());
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Published numbers and ours\n")?;
    let head = [
        "",
        "number",
        "place",
        "published",
        "ours, worst case",
        "verdict",
        "cases",
        "",
    ];
    writeln!(
        out,
        "| {} |\n|{}",
        head.join(" | "),
        "---|".repeat(head.len())
    )?;
    for number in &all {
        writeln!(out, "{}", number_row(number))?;
    }
    writeln!(out)
}

fn number_row(number: &Number<'_>) -> String {
    let worst = number.worst;
    let ours = match (worst.ours.as_str(), worst.setting.as_str()) {
        ("", _) => "-".into(),
        (ours, "") => ours.into(),
        (ours, setting) => format!("{ours} ({setting})"),
    };
    let texts = [
        &number.section.id,
        &worst.quantity,
        &worst.place,
        &worst.published,
        &ours,
    ];
    let cells = texts.map(|text| inline(text)).join(" | ");
    let (name, cases) = (emphasised(number.outcome), counted(&number.tally()));
    format!("| {cells} | {name} | {cases} | {} |", inline(number.note()))
}

/// Name of an outcome; a new miss stands out.
fn emphasised(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Missed => "**missed**",
        other => other.name(),
    }
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    let (id, title) = (inline(&section.id), inline(&section.title));
    writeln!(out, "## {id}: {title}\n")?;
    paragraph(out, &section.about)?;
    for line in &section.open {
        writeln!(out, "{}.\n", inline(line))?;
    }
    list(out, "Not valid or ended early", "###", &section.remarks)?;
    for one in &section.figures {
        figure(out, one)?;
    }
    for one in &section.tables {
        table(out, one)?;
    }
    if let Some(line) = section.missing() {
        writeln!(out, "{}\n", inline(&line))?;
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
    writeln!(out, "### Cases\n")?;
    writeln!(
        out,
        "| place | figure | case | backend | published | ours | range | allowed | outcome | |"
    )?;
    writeln!(out, "|{}", "---|".repeat(10))?;
    for v in verdicts {
        let texts = [&v.place, &v.what, &v.case, &v.backend.to_owned()];
        let cells = texts.map(|text| inline(text)).join(" | ");
        let figures = [&v.published, &v.ours, &v.range, &v.bounds];
        let figures = figures.map(|text| inline(text)).join(" | ");
        let (outcome, note) = (emphasised(v.outcome), inline(&v.note));
        writeln!(out, "| {cells} | {figures} | {outcome} | {note} |")?;
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
