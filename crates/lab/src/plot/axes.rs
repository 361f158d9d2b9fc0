//! Draws the surroundings of a plot: a light grid, ticks, and the names of the axes.

use super::{
    scale::{Scale, Tick, to_f64},
    scene::{Anchor, Pen, Rect, Scene},
    style::{BORDER, FINE_GRID, GRID, INK, Style},
    text,
};

/// Gap from a label to what it labels, px.
const GAP: f64 = 5.0;

/// A plot with two scales.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    pub rect: Rect,
    pub x: Scale,
    pub y: Scale,
}

/// Settings that panels above one another share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Width left of the plot, px; as needed if not given.
    pub gutter: Option<f64>,
    /// True if nothing is written below it.
    pub bare: bool,
    /// True for a plot as wide as it is high.
    pub square: bool,
}

/// The side with the upward axis.
struct Left {
    rect: Rect,
    ticks: Vec<Tick>,
    turned: bool,
}

/// Room below a plot with a numeric axis.
fn below(label: &str, room: Room, style: &Style) -> f64 {
    if room.bare {
        return 3.0;
    }
    let named = if label.is_empty() {
        0.0
    } else {
        Style::leading(style.label)
    };
    GAP + Style::leading(style.tick) + named
}

/// Width left of a plot of about `height`.
pub(super) fn gutter(label: &str, y: &Scale, height: f64, style: &Style) -> f64 {
    let ticks = y.ticks(most(height, style));
    let labels = ticks.iter().filter_map(|t| t.label.as_deref());
    let widest = labels
        .map(|l| text::width(l, style.tick))
        .fold(0.0, f64::max);
    let name = if turned(label, height, style) {
        Style::leading(style.label) + 2.0
    } else {
        0.0
    };
    (name + widest + GAP).ceil()
}

fn turned(label: &str, height: f64, style: &Style) -> bool {
    !style.small && !label.is_empty() && text::width(label, style.label) <= height
}

#[expect(clippy::cast_possible_truncation, reason = "between 3 and 8")]
#[expect(clippy::cast_sign_loss, reason = "between 3 and 8")]
fn most(height: f64, style: &Style) -> usize {
    (height / (style.tick * 2.4)).clamp(3.0, 8.0) as usize
}

/// Decides where the plot is in `area`, with `below` px beneath it.
fn left(area: Rect, label: &str, y: &Scale, below: f64, room: Room, style: &Style) -> Left {
    let bottom = (area.bottom - below).floor() + 0.5;
    let half_tick = style.tick / 2.0;
    let turned = turned(label, bottom - area.top - half_tick, style);
    let named = if turned || label.is_empty() {
        0.0
    } else {
        Style::leading(style.label)
    };
    let outside = if room.square {
        Style::leading(style.tick)
    } else {
        half_tick
    };
    let above = named + outside;
    let top = (area.top + above).floor() + 0.5;
    let gutter = room
        .gutter
        .unwrap_or_else(|| gutter(label, y, bottom - top, style));
    let rect = Rect::new(
        (area.left + gutter).floor() + 0.5,
        top.min(bottom - 1.0),
        area.right.floor() - 0.5,
        bottom,
    );
    let ticks = y.ticks(most(rect.height(), style));
    Left {
        rect,
        ticks,
        turned,
    }
}

fn draw_left(scene: &mut Scene, area: Rect, label: &str, left: &Left, y: &Scale, style: &Style) {
    let rect = left.rect;
    for fine in [true, false] {
        for tick in left.ticks.iter().filter(|t| t.label.is_none() == fine) {
            let at = y.clamped(tick.value).floor() + 0.5;
            let colour = if fine { FINE_GRID } else { GRID };
            let line = vec![(rect.left, at), (rect.right, at)];
            scene.line(line, Pen::new(colour, 1.0));
            if let Some(label) = &tick.label {
                let place = (rect.left - GAP, at + style.tick * 0.36);
                scene.text(place, label, (style.tick, INK), Anchor::End);
            }
        }
    }
    if left.turned {
        let at = (area.left + style.label, rect.centre().1);
        scene.write(at, label, (style.label, INK), Anchor::Middle, true);
    } else {
        let fitted = text::fit(&text::plain(label), style.label, area.width());
        let at = (area.left, area.top + style.label);
        scene.text(at, &fitted, (style.label, INK), Anchor::Start);
    }
}

fn border(scene: &mut Scene, rect: Rect) {
    let pen = Pen::new(BORDER, 1.0);
    scene.line(
        vec![
            (rect.left, rect.top),
            (rect.left, rect.bottom),
            (rect.right, rect.bottom),
        ],
        pen,
    );
}

fn draw_name(scene: &mut Scene, area: Rect, rect: Rect, label: &str, style: &Style) {
    let fitted = text::fit(&text::plain(label), style.label, area.width());
    let half = text::width(&fitted, style.label) / 2.0;
    let x = rect.centre().0.min(area.right - half).max(area.left + half);
    let at = (x, area.bottom - style.label * 0.3);
    scene.text(at, &fitted, (style.label, INK), Anchor::Middle);
}

/// Draws the surroundings of a plot with two numeric axes.
pub(super) fn plane(
    scene: &mut Scene,
    area: Rect,
    (x_label, x): (&str, Scale),
    (y_label, y): (&str, Scale),
    room: Room,
    style: &Style,
) -> Plane {
    let mut side = left(area, y_label, &y, below(x_label, room, style), room, style);
    // Half of the last label stands to the right of the plot, or the name of a diagonal.
    side.rect.right -= if room.square { 34.0 } else { 16.0 };
    let mut area = area;
    if room.square && side.rect.width() > side.rect.height() {
        let rest = ((side.rect.width() - side.rect.height()) / 2.0).floor();
        area.left += rest;
        side.rect.left += rest;
        side.rect.right -= rest;
    }
    let rect = side.rect;
    let y = y.over(rect.bottom, rect.top);
    let x = x.over(rect.left, rect.right);
    let ticks = spaced(&x, rect.width(), style);
    for fine in [true, false] {
        for tick in ticks.iter().filter(|t| t.label.is_none() == fine) {
            let at = x.clamped(tick.value).floor() + 0.5;
            let colour = if fine { FINE_GRID } else { GRID };
            let line = vec![(at, rect.top), (at, rect.bottom)];
            scene.line(line, Pen::new(colour, 1.0));
        }
    }
    draw_left(scene, area, y_label, &side, &y, style);
    border(scene, rect);
    if !room.bare {
        let base = rect.bottom + GAP + style.tick;
        for tick in &ticks {
            let at = x.clamped(tick.value);
            if let Some(label) = &tick.label {
                scene.text((at, base), label, (style.tick, INK), Anchor::Middle);
            }
        }
        draw_name(scene, area, rect, x_label, style);
    }
    Plane { rect, x, y }
}

/// Ticks that have space for their labels.
fn spaced(x: &Scale, width: f64, style: &Style) -> Vec<Tick> {
    let between = style.tick;
    let fits = |ticks: &[Tick]| {
        let labelled = ticks.iter().filter_map(|t| {
            let half = text::width(t.label.as_deref()?, style.tick) / 2.0;
            Some((x.clamped(t.value), half))
        });
        let labelled: Vec<_> = labelled.collect();
        labelled
            .windows(2)
            .all(|two| two[1].0 - two[0].0 >= two[0].1 + two[1].1 + between)
    };
    #[expect(clippy::cast_possible_truncation, reason = "between 2 and 10")]
    #[expect(clippy::cast_sign_loss, reason = "between 2 and 10")]
    let mut most = (width / 45.0).clamp(2.0, 10.0) as usize;
    let mut ticks = x.ticks(most);
    while most > 2 && !fits(&ticks) {
        most -= 1;
        ticks = x.ticks(most);
    }
    ticks
}

/// A plot with names along the x axis.
pub(super) struct Table {
    pub rect: Rect,
    /// Width of one name's column.
    pub slot: f64,
}

/// Draws the surroundings of a plot with names to the right and numbers upwards.
pub(super) fn grouped(
    scene: &mut Scene,
    area: Rect,
    (x_label, names): (&str, &[String]),
    (y_label, y): (&str, Scale),
    style: &Style,
) -> (Table, Scale) {
    let room = Room::default();
    // Widths hardly depend on the height, which depends on the widths.
    let rough = left(area, y_label, &y, area.height() / 4.0, room, style);
    let slot = rough.rect.width() / to_f64(names.len().max(1));
    let names = Names::of(names, slot, style);
    let side = left(area, y_label, &y, names.below(x_label, style), room, style);
    let rect = side.rect;
    let y = y.over(rect.bottom, rect.top);
    draw_left(scene, area, y_label, &side, &y, style);
    border(scene, rect);
    let slot = rect.width() / to_f64(names.lines.len().max(1));
    names.draw(scene, rect, slot, style);
    draw_name(scene, area, rect, x_label, style);
    (Table { rect, slot }, y)
}

/// Draws the surroundings of a table with names on both sides.
pub(super) fn table(
    scene: &mut Scene,
    area: Rect,
    (x_label, columns): (&str, &[String]),
    (y_label, rows): (&str, &[String]),
    style: &Style,
) -> Table {
    let most = area.width() * if style.small { 0.3 } else { 0.25 };
    let widths = rows
        .iter()
        .map(|r| text::width(&text::plain(r), style.tick));
    let gutter = (widths.fold(0.0, f64::max) + GAP).min(most);
    let turned = turned(y_label, area.height() * 0.6, style);
    let name = Style::leading(style.label) + 2.0;
    let (beside, above) = match (turned, y_label.is_empty()) {
        (_, true) => (0.0, 0.0),
        (true, _) => (name, 0.0),
        (false, _) => (0.0, name),
    };
    let left = (area.left + gutter + beside).floor();
    let right = area.right.floor();
    let slot = (right - left) / to_f64(columns.len().max(1));
    let names = Names::of(columns, slot, style);
    let bottom = (area.bottom - names.below(x_label, style)).floor();
    let rect = Rect::new(left, (area.top + above).floor(), right, bottom);
    names.draw(scene, rect, slot, style);
    let height = rect.height() / to_f64(rows.len().max(1));
    let every = stride(rows.len(), rect.height(), style);
    for (i, row) in rows.iter().enumerate().filter(|(i, _)| i % every == 0) {
        let y = rect.bottom - height * (to_f64(i) + 0.5);
        let row = text::fit(&text::plain(row), style.tick, gutter - GAP + 0.5);
        let at = (left - GAP, y + style.tick * 0.36);
        scene.text(at, &row, (style.tick, INK), Anchor::End);
    }
    let side = Left {
        rect,
        ticks: Vec::new(),
        turned,
    };
    let unused = Scale {
        lo: 0.0,
        hi: 1.0,
        log: false,
        from: rect.bottom,
        to: rect.top,
    };
    draw_left(scene, area, y_label, &side, &unused, style);
    draw_name(scene, area, rect, x_label, style);
    Table { rect, slot }
}

/// Every how many of `count` names has space.
fn stride(count: usize, space: f64, style: &Style) -> usize {
    let fits = (space / Style::leading(style.tick)).floor().max(1.0);
    #[expect(clippy::cast_possible_truncation, reason = "at most the count")]
    #[expect(clippy::cast_sign_loss, reason = "positive")]
    let every = (to_f64(count) / fits).ceil() as usize;
    every.max(1)
}

/// Breaks the name into as many lines, but of about the same width.
fn balanced(name: &str, mut lines: Vec<String>, mut space: f64, style: &Style) -> Vec<String> {
    let joined = lines.join(" ");
    while lines.len() > 1 {
        space *= 0.92;
        let narrower = text::wrap(name, style.tick, space, lines.len());
        if narrower.len() != lines.len() || narrower.join(" ") != joined {
            break;
        }
        lines = narrower;
    }
    lines
}

/// Names under a plot: on a few lines each, or turned where that is too wide.
struct Names {
    lines: Vec<Vec<String>>,
    turned: bool,
    height: f64,
}

impl Names {
    fn of(names: &[String], slot: f64, style: &Style) -> Self {
        let most = 3;
        let flat: Vec<_> = names
            .iter()
            .map(|name| text::wrap(name, style.tick, slot - 6.0, most))
            .collect();
        let whole = |(name, lines): (&String, &Vec<String>)| {
            let plain = text::plain(name);
            lines.join(" ") == plain.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        if names.iter().zip(&flat).all(whole) {
            let flat: Vec<_> = names
                .iter()
                .zip(flat)
                .map(|(name, lines)| balanced(name, lines, slot - 6.0, style))
                .collect();
            let rows = flat.iter().map(Vec::len).max().unwrap_or(1);
            return Self {
                lines: flat,
                turned: false,
                height: to_f64(rows) * Style::leading(style.tick),
            };
        }
        let longest = if style.small { 80.0 } else { 110.0 };
        let lines: Vec<_> = names
            .iter()
            .map(|name| vec![text::fit(&text::plain(name), style.tick, longest)])
            .collect();
        let widths = lines.iter().flatten().map(|l| text::width(l, style.tick));
        Self {
            height: widths.fold(0.0, f64::max) + 2.0,
            lines,
            turned: true,
        }
    }

    fn below(&self, label: &str, style: &Style) -> f64 {
        let named = if label.is_empty() {
            0.0
        } else {
            Style::leading(style.label)
        };
        GAP + self.height + named
    }

    fn draw(&self, scene: &mut Scene, rect: Rect, slot: f64, style: &Style) {
        let every = if self.turned {
            stride(self.lines.len(), rect.width(), style)
        } else {
            1
        };
        for (i, lines) in self
            .lines
            .iter()
            .enumerate()
            .filter(|(i, _)| i % every == 0)
        {
            let x = rect.left + slot * (to_f64(i) + 0.5);
            for (row, line) in lines.iter().enumerate() {
                if self.turned {
                    let at = (x + style.tick * 0.36, rect.bottom + GAP);
                    scene.write(at, line, (style.tick, INK), Anchor::End, true);
                } else {
                    let down = style.tick + to_f64(row) * Style::leading(style.tick);
                    let at = (x, rect.bottom + GAP + down);
                    scene.text(at, line, (style.tick, INK), Anchor::Middle);
                }
            }
        }
    }
}
