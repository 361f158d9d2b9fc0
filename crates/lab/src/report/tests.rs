mod browser;
pub(super) mod example;
mod served;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use super::*;

/// Every `id="..."` in a text.
fn ids(html: &str) -> Vec<&str> {
    html.split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn every_text_is_shown_as_it_is() {
    let html = html(&example::page());
    let escaped = "&lt;script&gt;document.title = 'taken'&lt;/script&gt; &amp; &quot;so on&quot;";
    assert!(html.matches(escaped).count() > 10);
    assert!(!html.contains("<script"), "the page has no scripts");
}

#[test]
fn links_within_the_page_lead_somewhere_and_ids_are_unique() {
    let html = html(&example::page());
    let all = ids(&html);
    let unique: BTreeSet<_> = all.iter().collect();
    assert_eq!(all.len(), unique.len());
    let targets: Vec<_> = html
        .split("href=\"#")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(targets.len() > 6);
    for target in targets {
        assert!(all.contains(&target), "{target}");
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let html = html(&example::page());
    for mark in [
        "src=",
        "@import",
        "url(http",
        "<link rel=\"stylesheet",
        "<iframe",
        "<object",
    ] {
        assert!(!html.contains(mark), "{mark}");
    }
}

#[test]
fn the_page_says_at_once_what_was_reproduced() {
    let page = example::page();
    let sentence = "Of 13 numbers: 5 reproduced, 3 missed (1 known), 2 fitted (1 inside, 1 outside), \
                    1 shown, 1 not comparable, 1 not run.";
    assert_eq!(page.score().sentence(), sentence);
    let html = html(&page);
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("<h1>") < at(sentence) && at(sentence) < at("Six round-trip times"));
    let bar = html.split("<svg class=\"bar\"").nth(1).unwrap();
    let bar = bar.split("</svg>").next().unwrap();
    assert_eq!(bar.matches("<rect class=\"part part-").count(), 8);
    assert!(bar.contains("<title>1 fitted, outside</title>"), "{bar}");
    let markdown = markdown(&page);
    let bar = "    ✓✓✓✓✓✗✗✗=≠·~–\n    ✓ 5 met   ✗ 2 missed   ✗ 1 missed, known   = 1 fitted, inside   \
               ≠ 1 fitted, outside   · 1 shown   ~ 1 not comparable   – 1 not run\n";
    assert!(markdown.contains(bar), "{markdown}");
    assert!(markdown.contains(&format!("**{sentence}**")));
    assert!(markdown.contains("**37 of 168 runs have ended.**"));
}

#[test]
fn a_published_number_has_one_row_with_its_cases_folded() {
    let page = example::page();
    let html = html(&page);
    let rows = html.matches("<tbody id=\"number-").count();
    assert_eq!(rows, 13);
    let (_, feedback) = html.split_once("Feedback of UDT").unwrap();
    let main = feedback.split("<details").next().unwrap();
    assert!(
        main.contains("loss 0.3 %, RTT 150 ms") && !main.contains("goodput /"),
        "{main}"
    );
    let folded = feedback.split("</details>").next().unwrap();
    assert!(folded.contains("4 cases: 4 met"), "{folded}");
    assert_eq!(folded.matches("<td>emu</td>").count(), 4, "{folded}");
    for raw in [
        "<code>goodput / goodput with rtt=0ms</code>",
        "loss=0.2% rtt=100ms",
    ] {
        assert!(folded.contains(raw), "{folded}");
    }
    let markdown = markdown(&page);
    let row = "| K3 | Feedback of UDT | Fig. 3 | 1.2 MiB/GiB, printed | \
               0.78 MiB/GiB (loss 0.3 %, RTT 150 ms) | met | 4 met |";
    assert!(markdown.contains(row), "{markdown}");
}

#[test]
fn what_was_not_run_is_one_line_and_what_is_not_valid_is_said() {
    for text in [html(&example::page()), markdown(&example::page())] {
        assert!(
            text.contains("3 experiments are not run: K5, K5, K6"),
            "{text}"
        );
        assert!(
            text.contains("Not valid or ended early") && text.contains("its window needs 1.2 GiB")
        );
        assert!(text.contains("Not drawn, as no run has the data: fig8."));
        assert!(text.contains("sim: 3 of 12 runs are not made yet."));
    }
    let html = html(&example::page());
    assert!(
        !html.contains("id=\"experiment-K6\""),
        "no section without runs"
    );
    assert!(html.contains("<span class=\"missed\">2 runs not valid or ended early</span>"));
}

#[test]
fn a_quick_run_says_so_on_top() {
    let mut page = example::page();
    assert!(!html(&page).contains("Quick run") && !markdown(&page).contains("Quick run"));
    page.quick = true;
    let (html, markdown) = (html(&page), markdown(&page));
    assert!(html.find("Quick run.") < html.find("<h1>"));
    assert!(markdown.find("**Quick run.**") < markdown.find("numbers:"));
}

#[test]
fn a_page_without_results_says_so() {
    let page = Page {
        sections: Vec::new(),
        ..example::page()
    };
    assert!(html(&page).contains("No published number has been compared yet"));
    assert!(markdown(&page).contains("No published number has been compared yet"));
}

#[test]
fn markdown_is_neither_markup_nor_steers_a_terminal() {
    let mut page = example::page();
    page.title = "a\u{1b}[31m | <b>\n# `x`".into();
    let markdown = markdown(&page);
    assert!(
        markdown.starts_with("# a\\\\u{1b}\\[31m \\| \\<b\\> \\# \\`x\\`\n"),
        "{markdown}"
    );
    let rows = markdown.lines().filter(|l| l.starts_with("| Fig. 3"));
    for row in rows {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 11, "{row}");
    }
}

/// The example with two of its figures: drawing all of them takes longest.
fn stored() -> Page {
    let mut page = example::page();
    page.sections.truncate(1);
    page.sections[0].figures.truncate(2);
    page
}

#[test]
fn a_page_is_stored_with_its_figures_and_nothing_else_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("runs.jsonl"), "{}").unwrap();
    let page = stored();
    let files = write(&page, folder.path()).unwrap();
    let report = folder.path().join("report.html");
    assert_eq!(files.last(), Some(&report));
    assert_eq!(files.len(), 2 + 2 * 2);
    assert_eq!(write(&page, folder.path()).unwrap(), files);
    let list = |folder: &Path| fs::read_dir(folder).unwrap().flatten().count();
    assert_eq!(list(folder.path()), 2 + 2, "no temporary file is left");
    assert_eq!(list(&folder.path().join("figures")), 2 * 2);
    assert_eq!(fs::read(folder.path().join("runs.jsonl")).unwrap(), b"{}");
    assert_eq!(
        fs::read_to_string(folder.path().join("report.html")).unwrap(),
        html(&page)
    );
    assert!(
        fs::read(folder.path().join("figures/k1-rate.png"))
            .unwrap()
            .starts_with(b"\x89PNG")
    );
}

#[test]
fn what_cannot_be_stored_leaves_the_old_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut page = stored();
    write(&page, folder.path()).unwrap();
    let report = folder.path().join("report.html");
    let old = fs::read(&report).unwrap();
    page.title = "another".into();
    page.sections[0].figures[1].id = "../report".into();
    let e = write(&page, folder.path()).unwrap_err();
    assert!(e.to_string().contains("'../report'"), "{e}");
    page.sections[0].figures[1].id = "k1-rate".into();
    let e = write(&page, folder.path()).unwrap_err();
    assert!(e.to_string().contains("two figures"), "{e}");
    page.sections[0].figures[1].id = "b".into();
    // A folder in the way of the last file, and one that cannot be written.
    let blocked = folder.path().join("figures/b.svg");
    fs::create_dir(&blocked).unwrap();
    let e = write(&page, folder.path()).unwrap_err();
    assert!(e.to_string().contains("b.svg"), "{e}");
    assert_eq!(fs::read(&report).unwrap(), old);
    let left = fs::read_dir(folder.path()).unwrap().flatten();
    assert!(
        left.into_iter()
            .all(|f| !f.file_name().to_string_lossy().ends_with(".tmp"))
    );
}

#[test]
fn figures_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), folder.path().join("figures")).unwrap();
    let e = write(&stored(), folder.path()).unwrap_err();
    assert!(e.to_string().contains("it is a link"), "{e}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn files_can_be_read_by_others_as_far_as_the_umask_allows() {
    let folder = tempfile::tempdir().unwrap();
    write(&stored(), folder.path()).unwrap();
    fs::write(folder.path().join("plain"), "").unwrap();
    let mode = |name: &str| {
        fs::metadata(folder.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("report.html"), mode("plain"));
}

#[test]
fn the_version_is_another_when_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    let now = || version([file.as_path()]).unwrap();
    let none = now();
    fs::write(&file, "{}\n").unwrap();
    let one = now();
    assert_eq!(one, now());
    fs::write(&file, "{}\n{}\n").unwrap();
    assert!(none != one && one != now());
}
