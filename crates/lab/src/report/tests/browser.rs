//! Tests that a page is as good in a browser as it is on paper. Runs only where there is a
//! Chromium.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, mpsc},
    time::Duration,
};

use serde_json::Value;

use super::{example, served};
use crate::report::{html, write};

/// Names in the order in which they are looked for.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// None, and why, if there is no Chromium to ask.
fn chromium() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: none of {} is installed", NAMES.join(", "));
    }
    found
}

/// Flags with a profile in `folder`.
fn flags(folder: &Path) -> [String; 5] {
    [
        "--headless=new".into(),
        "--no-sandbox".into(),
        "--disable-gpu".into(),
        "--allow-file-access-from-files".into(),
        format!("--user-data-dir={}", folder.join("profile").display()),
    ]
}

/// Document after its scripts have run, and the output.
fn browse(chromium: &Path, folder: &Path, more: &[&str], url: &str) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new("timeout")
        .arg("120")
        .arg(chromium)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
        ])
        .args(["--enable-logging=stderr", "--allow-file-access-from-files"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{err}");
    (out, err)
}

/// Findings that a page has written into itself.
fn found(dom: &str) -> Value {
    let (_, found) = dom.split_once("<pre id=\"found\">").unwrap();
    let (found, _) = found.split_once("</pre>").unwrap();
    serde_json::from_str(found).unwrap()
}

fn no_complaint(printed: &str) {
    let said: Vec<_> = printed.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "{said:#?}");
}

/// Page in a frame, because a window is never narrower than 500 px or so. Opened parts must fit as
/// well.
const WRAPPER: &str = r#"<!doctype html><meta charset="utf-8"><body style="margin:0">
<pre id="found"></pre>
<iframe src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<script>
document.querySelector("iframe").onload = (event) => {
  const view = event.target.contentWindow, page = view.document;
  for (const details of page.querySelectorAll("details")) details.open = true;
  const size = (e) => { const r = e.getBoundingClientRect(); return [r.width, r.height, r.right]; };
  const figures = [...page.querySelectorAll("figure .ground")].map((figure) =>
    [...figure.querySelectorAll("svg")].map(size).filter(([w, h]) => w > 0 && h > 0));
  const clipped = [...page.querySelectorAll("main *")].filter((e) =>
    !e.closest("svg") && !e.closest(".scroll") && !e.closest(".unseen") && size(e)[2] > view.innerWidth + 0.5);
  document.getElementById("found").textContent = JSON.stringify({
    inner: view.innerWidth,
    scroll: page.scrollingElement.scrollWidth,
    figures,
    clipped: clipped.map((e) => e.tagName + "." + e.className),
    title: page.title,
    headers: page.querySelectorAll(".verdicts thead").length,
  });
};
</script>"#;

#[test]
fn a_page_fits_its_window_and_every_figure_is_seen_once() {
    let Some(chromium) = chromium() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = example::page();
    write(&page, folder.path()).unwrap();
    for width in [390, 760, 1440] {
        let wrapper = folder.path().join("wrapper.html");
        fs::write(&wrapper, WRAPPER.replace("WIDTH", &width.to_string())).unwrap();
        let url = format!("file://{}", wrapper.display());
        let (dom, printed) = browse(&chromium, folder.path(), &["--window-size=1500,1000"], &url);
        no_complaint(&printed);
        let found = found(&dom);
        assert_eq!(found["inner"], width);
        assert!(found["scroll"].as_i64() <= Some(width), "{found:#}");
        assert_eq!(found["clipped"], Value::Array(Vec::new()), "{width}");
        let figures = found["figures"].as_array().unwrap();
        assert_eq!(figures.len(), 7);
        for figure in figures {
            let shown = figure.as_array().unwrap();
            assert_eq!(shown.len(), 1, "one of the two drawings: {found:#}");
            assert!(shown[0][0].as_f64() >= Some(320.0), "{found:#}");
        }
        assert!(
            found["title"].as_str().unwrap().starts_with("Comparison"),
            "{found:#}"
        );
    }
}

#[test]
fn a_page_that_is_served_replaces_itself() {
    let Some(chromium) = chromium() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = served::Growing::default();
    served::served(&source, |at| {
        let more = ["--virtual-time-budget=15000"];
        let url = format!("http://{at}/");
        let (dom, printed) = browse(&chromium, folder.path(), &more, &url);
        no_complaint(&printed);
        assert!(dom.contains("Comparison of contemporary"), "{dom}");
        assert!(
            dom.contains("<p id=\"status\" role=\"status\"></p>"),
            "no complaint"
        );
        assert!(!dom.contains("made 0 times before"), "it was replaced");
    });
}

/// Server's reply: the page has grown by the time it is first asked for, and there is no server any
/// more at the second.
const REPLY: &str = r#"
let asked = 0;
const found = {};
const section = () => document.getElementById("experiment-K3");
const kept = () => [section().getBoundingClientRect().top, document.getElementById("data-k3-window").open];
window.fetch = async (path) => {
  if (path !== "/version") return { ok: true, text: async () => GROWN };
  asked += 1;
  if (asked === 1) {
    document.getElementById("data-k3-window").open = true;
    section().scrollIntoView();
    found.before = kept();
  } else {
    found.after = kept();
    found.text = document.querySelector(".about").textContent;
    throw new TypeError("no server");
  }
  return { ok: true, text: async () => "2" };
};
setTimeout(() => {
  found.status = document.getElementById("status").textContent;
  const element = document.body.appendChild(document.createElement("pre"));
  element.id = "found";
  element.textContent = JSON.stringify(found);
}, 7000);
"#;

#[test]
fn what_is_replaced_stays_where_it_was_on_the_screen() {
    let Some(chromium) = chromium() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut page = example::page();
    let old = html::live(&page, "1");
    page.about = "It has grown. ".repeat(200);
    page.deviations.push("Another.".into());
    let grown = serde_json::to_string(&html::live(&page, "2")).unwrap();
    let reply = REPLY.replace("GROWN", &grown.replace("</", "<\\/"));
    let script = include_str!("../html/live.js");
    let scripts = format!("<script>{reply}</script><script>{script}</script></body>");
    let old = old.replace("<script src=\"/live.js\" defer></script>", "");
    let path = folder.path().join("page.html");
    fs::write(&path, old.replace("</body>", &scripts)).unwrap();
    let url = format!("file://{}", path.display());
    let (dom, printed) = browse(
        &chromium,
        folder.path(),
        &["--virtual-time-budget=9000"],
        &url,
    );
    no_complaint(&printed);
    let found = found(&dom);
    assert!(
        found["text"].as_str().unwrap().starts_with("It has grown."),
        "{found:#}"
    );
    let [before, after] = ["before", "after"].map(|when| found[when][0].as_f64().unwrap());
    // The browser snaps a scroll position to whole pixels, and there were two scrolls; a line has 24.
    assert!(
        (before - after).abs() <= 2.0 && before.abs() < 1.0,
        "{found:#}"
    );
    assert_eq!(found["after"][1], true, "what was opened is open");
    assert!(
        found["status"].as_str().unwrap().contains("has ended"),
        "{found:#}"
    );
}

/// A profile in which no page may run scripts.
fn without_scripts(folder: &Path) {
    let profile = folder.join("profile/Default");
    fs::create_dir_all(&profile).unwrap();
    let text = r#"{"profile":{"default_content_setting_values":{"javascript":2}}}"#;
    fs::write(profile.join("Preferences"), text).unwrap();
}

#[test]
fn without_scripts_a_page_that_is_served_is_loaded_again() {
    let Some(chromium) = chromium() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    without_scripts(folder.path());
    let (made, pages) = mpsc::channel();
    let source = served::Growing {
        made_one: Some(Mutex::new(made)),
        ..served::Growing::default()
    };
    served::served(&source, |at| {
        let shot = folder.path().join("shot.png");
        let mut browser = Command::new(&chromium)
            .args(flags(folder.path()))
            .arg(format!("--screenshot={}", shot.display()))
            .arg("--virtual-time-budget=30000")
            .arg(format!("http://{at}/"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let twice = [(); 2].map(|()| pages.recv_timeout(Duration::from_mins(1)));
        browser.kill().unwrap();
        browser.wait().unwrap();
        assert_eq!(twice, [Ok(0), Ok(1)]);
    });
    // One for each page: no script has asked for it.
    assert_eq!(source.asked.into_inner(), source.made.into_inner());
}
