//! Draws the legend: beside the plot if there is space, above it otherwise; never on the data.

use super::{
    Body, Chart, Line, Origin,
    lines::marked,
    scene::{Anchor, Pen, Rect, Scene},
    style::{FAINT, INK, Style, colour, faded, mark, tinted},
    text,
};

/// An entry.
struct Key<'a> {
    name: &'a str,
    origin: Origin,
    colour: usize,
    look: Look,
}

#[derive(Clone, Copy, PartialEq)]
enum Look {
    Line,
    /// A line without marks.
    Bare,
    Mark,
    Bar,
}

impl<'a> Key<'a> {
    fn sample(&self) -> f64 {
        if self.look == Look::Mark {
            MARK
        } else {
            SAMPLE
        }
    }

    fn width(&self, style: &Style) -> f64 {
        self.sample() + GAP + text::width(&text::plain(self.name), style.tick)
    }

    fn of(line: &'a Line, look: Look) -> Self {
        Self {
            name: &line.name,
            origin: line.origin,
            colour: line.colour,
            look: match look {
                Look::Line if !marked(line) => Look::Bare,
                look => look,
            },
        }
    }
}

/// Width of a sample and the gap behind it, px.
const SAMPLE: f64 = 26.0;
const MARK: f64 = 12.0;
const GAP: f64 = 5.0;
/// Between two entries in a row, px.
const BETWEEN: f64 = 16.0;

fn keys(body: &Body) -> Vec<Key<'_>> {
    let keys: Vec<Key<'_>> = match body {
        Body::Lines(lines) => lines.iter().map(|l| Key::of(l, Look::Line)).collect(),
        Body::Scatter { sets, .. } => sets.iter().map(|l| Key::of(l, Look::Mark)).collect(),
        Body::Bars { series, .. } => {
            let keys = series.iter().map(|bars| Key {
                name: &bars.name,
                origin: bars.origin,
                colour: bars.colour,
                look: Look::Bar,
            });
            keys.collect()
        }
        Body::Heat { .. } => Vec::new(),
    };
    let named = |key: &Key<'_>| !key.name.trim().is_empty();
    keys.into_iter().filter(named).collect()
}

/// The name of what the entries differ in, with its width.
struct Heading {
    text: String,
    wide: f64,
}

impl Heading {
    /// None if the chart has no such name.
    fn of(chart: &Chart, style: &Style) -> Option<Self> {
        let name = text::plain(chart.key.trim());
        let text = format!("{name}:");
        let wide = text::width(&text, style.tick);
        (!name.is_empty()).then_some(Self { text, wide })
    }

    fn draw(&self, scene: &mut Scene, (x, y): (f64, f64), wide: f64, style: &Style) {
        let at = (x, y + style.tick * 0.36);
        let text = text::fit(&self.text, style.tick, wide);
        scene.text(at, &text, (style.tick, INK), Anchor::Start);
    }
}

/// Draws the legend of `chart`; returns the rest of `area`.
pub(super) fn draw(scene: &mut Scene, area: Rect, chart: &Chart, style: &Style) -> Rect {
    let keys = keys(&chart.body);
    if keys.is_empty() {
        return area;
    }
    let heading = Heading::of(chart, style);
    let named = heading.as_ref().map_or(0.0, |h| h.wide);
    let widest = keys.iter().map(|k| k.width(style)).fold(named, f64::max);
    let leading = Style::leading(style.tick) + 2.0;
    let rows = keys.len() + usize::from(heading.is_some());
    let column = leading * super::scale::to_f64(rows);
    let beside = widest + BETWEEN;
    if !style.small
        && keys.len() > 2
        && beside <= area.width() * 0.3
        && column <= area.height() * 0.9
    {
        let left = area.right - widest;
        let mut y = area.top + 8.0;
        if let Some(heading) = &heading {
            heading.draw(scene, (left, y + leading / 2.0), widest, style);
            y += leading;
        }
        for key in &keys {
            entry(scene, key, (left, y + leading / 2.0), widest, style);
            y += leading;
        }
        return Rect {
            right: area.right - beside,
            ..area
        };
    }
    above(scene, area, (heading.as_ref(), &keys), leading, style)
}

/// Puts the entries into rows, the first of which begins after `used` px.
fn rows<'a>(
    keys: &'a [Key<'a>],
    width: f64,
    mut used: f64,
    style: &Style,
) -> Vec<Vec<(&'a Key<'a>, f64)>> {
    let mut rows: Vec<Vec<(&Key<'_>, f64)>> = vec![Vec::new()];
    for key in keys {
        let wide = key.width(style).min(width);
        if used > 0.0 && used + wide > width {
            rows.push(Vec::new());
            used = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((key, wide));
        }
        used += wide + BETWEEN;
    }
    rows
}

/// Draws the legend in rows above the plot, a third of the height at most.
fn above(
    scene: &mut Scene,
    area: Rect,
    (heading, keys): (Option<&Heading>, &[Key<'_>]),
    leading: f64,
    style: &Style,
) -> Rect {
    let named = heading.map_or(0.0, |h| (h.wide + BETWEEN / 2.0).min(area.width()));
    let rows = rows(keys, area.width(), named, style);
    let mut y = area.top;
    let mut drawn = 0;
    if let Some(heading) = heading {
        heading.draw(scene, (area.left, y + leading / 2.0), area.width(), style);
    }
    for (i, row) in rows.iter().enumerate() {
        let full = y + 2.0 * leading > area.top + area.height() * 0.4;
        if full && i + 1 < rows.len() {
            let text = format!("and {} more", keys.len() - drawn);
            let from = if i == 0 { named } else { 0.0 };
            let at = (area.left + from, y + leading / 2.0 + style.tick * 0.35);
            scene.text(at, &text, (style.tick, FAINT), Anchor::Start);
            y += leading;
            break;
        }
        let mut x = area.left + if i == 0 { named } else { 0.0 };
        for (key, wide) in row {
            entry(scene, key, (x, y + leading / 2.0), *wide, style);
            x += wide + BETWEEN;
        }
        drawn += row.len();
        y += leading;
    }
    Rect {
        top: y + 5.0,
        ..area
    }
}

fn entry(scene: &mut Scene, key: &Key<'_>, (x, y): (f64, f64), wide: f64, style: &Style) {
    sample(scene, key, (x, y), style);
    let at = (x + key.sample() + GAP, y + style.tick * 0.36);
    let name = text::fit(
        &text::plain(key.name),
        style.tick,
        wide - key.sample() - GAP + 0.5,
    );
    scene.text(at, &name, (style.tick, INK), Anchor::Start);
}

fn sample(scene: &mut Scene, key: &Key<'_>, (x, y): (f64, f64), style: &Style) {
    let ink = colour(key.origin, key.colour);
    let middle = (x + key.sample() / 2.0, y);
    match (key.look, key.origin) {
        (Look::Bar, Origin::Simulated | Origin::Measured) => {
            swatch(
                scene,
                Rect::new(x + 6.0, y - 5.0, x + SAMPLE - 2.0, y + 5.0),
                key.origin,
                key.colour,
            );
            return;
        }
        (Look::Bar | Look::Line | Look::Bare, Origin::Published | Origin::Inferred) => {
            let band = Rect::new(middle.0 - 4.0, y - 6.0, middle.0 + 4.0, y + 6.0);
            scene.fill(band, faded(ink, BAND));
        }
        (Look::Line | Look::Bare, origin) => {
            let pen = style.line(origin, ink);
            scene.line(vec![(x, y), (x + SAMPLE, y)], pen);
            if key.look == Look::Bare {
                return;
            }
        }
        (Look::Mark, _) => {}
    }
    mark(scene, middle, style.mark, key.origin, key.colour);
}

/// Opacity of a paper's band.
pub(super) const BAND: f64 = 0.16;

/// A bar.
pub(super) fn swatch(scene: &mut Scene, rect: Rect, origin: Origin, n: usize) {
    let ink = colour(origin, n);
    if origin == Origin::Simulated {
        scene.fill(rect, ink);
        return;
    }
    let wide = 1.4_f64.min(rect.width() / 3.0);
    let half = wide / 2.0;
    scene.fill(rect, tinted(ink, 0.12));
    let inner = Rect::new(
        rect.left + half,
        rect.top + half,
        rect.right - half,
        rect.bottom - half,
    );
    let pen = Pen {
        dash: Some(4.0),
        ..Pen::new(ink, wide)
    };
    scene.outline(inner, pen);
}
