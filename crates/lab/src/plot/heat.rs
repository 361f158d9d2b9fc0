//! Draws a table of cells, from dark to bright with the value, and with the number in each cell.
//! The colours are viridis, which grows evenly in brightness; logarithmic if the values span more
//! than two decades.

use plotters::style::colors::colormaps::{ColorMap as _, ViridisRGBA};

use super::{
    Axis, Chart, axes,
    scale::{Bounds, Scale, number, to_f64},
    scene::{Anchor, Colour, Pen, Rect, Scene},
    style::{BLACK, BORDER, INK, Style, WHITE, hatch},
    text,
};

/// Draws the cells; true if there was anything to draw.
pub(super) fn draw(
    scene: &mut Scene,
    area: Rect,
    chart: &Chart,
    (columns, rows): (&[String], &[String]),
    cells: &[Vec<Option<f64>>],
    style: &Style,
) -> bool {
    let cell = |row: usize, column: usize| {
        let value = cells.get(row)?.get(column).copied()?;
        value.filter(|v| v.is_finite())
    };
    let all = (0..rows.len()).flat_map(|r| (0..columns.len()).filter_map(move |c| cell(r, c)));
    let values: Vec<f64> = all.collect();
    let Some(scale) = shades(&values) else {
        return false;
    };
    let area = key(scene, area, &scale, style);
    let names = (
        (chart.x.label.as_str(), columns),
        (chart.y.label.as_str(), rows),
    );
    let table = axes::table(scene, area, names.0, names.1, style);
    let rect = table.rect;
    let high = rect.height() / to_f64(rows.len());
    let em = lettering(&values, (table.slot, high), style);
    for row in 0..rows.len() {
        for column in 0..columns.len() {
            let left = rect.left + table.slot * to_f64(column);
            let bottom = rect.bottom - high * to_f64(row);
            let (w, h) = (table.slot, high);
            let line = if w.min(h) > 8.0 { 0.75 } else { 0.0 };
            let inner = Rect::new(
                left + line,
                bottom - h + line,
                left + w - line,
                bottom - line,
            );
            match cell(row, column) {
                None => hatch(scene, inner, style.tick),
                Some(value) => paint(scene, inner, value, &scale, em),
            }
        }
    }
    true
}

fn shades(values: &[f64]) -> Option<Scale> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let axis = Axis {
        log: least > 0.0 && most > least * 100.0,
        ..Axis::default()
    };
    Scale::new(&axis, Bounds::Tight, values.iter().copied())
}

fn paint(scene: &mut Scene, rect: Rect, value: f64, scale: &Scale, em: Option<f64>) {
    let shade = shade(value, scale);
    scene.fill(rect, shade);
    if let Some(em) = em {
        let (x, y) = rect.centre();
        let ink = contrast(shade);
        let at = (x, y + em * 0.36);
        scene.text(at, &number(value), (em, ink), Anchor::Middle);
    }
}

fn shade(value: f64, scale: &Scale) -> Colour {
    let part = scale.over(0.0, 1.0).clamped(value);
    // The darkest and the brightest tenth distinguish less.
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1")]
    ViridisRGBA.get_color((0.08 + 0.9 * part) as f32)
}

/// Black or white, whichever stands out more from `back` (WCAG 2).
fn contrast(back: Colour) -> Colour {
    let linear = |c: u8| {
        let c = f64::from(c) / 255.0;
        if c <= 0.040_45 {
            c / 12.92
        } else {
            ((c + 0.055) / 1.055).powf(2.4)
        }
    };
    let luminance = 0.2126 * linear(back.0) + 0.7152 * linear(back.1) + 0.0722 * linear(back.2);
    if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) {
        BLACK
    } else {
        WHITE
    }
}

/// The size in which every number fits its cell, if it is legible.
fn lettering(values: &[f64], (w, h): (f64, f64), style: &Style) -> Option<f64> {
    let widest = values
        .iter()
        .map(|v| text::width(&number(*v), 1.0))
        .fold(0.1, f64::max);
    let em = ((w - 4.0) / widest).min((h - 2.0) / 1.1).min(style.label);
    (em >= 7.0).then_some(em)
}

/// A strip of the shades with their values.
fn key(scene: &mut Scene, area: Rect, scale: &Scale, style: &Style) -> Rect {
    let high = 9.0;
    let wide = (area.width() * 0.5).min(240.0);
    let strip = Rect::new(
        area.right - wide - 14.0,
        area.top,
        area.right - 14.0,
        area.top + high,
    );
    let steps = 60;
    for step in 0..steps {
        let from = strip.left + wide * to_f64(step) / to_f64(steps);
        let part = (to_f64(step) + 0.5) / to_f64(steps);
        let value = if scale.log {
            scale.lo * (scale.hi / scale.lo).powf(part)
        } else {
            scale.lo + (scale.hi - scale.lo) * part
        };
        let right = (from + wide / to_f64(steps) + 0.3).min(strip.right);
        scene.fill(
            Rect::new(from, strip.top, right, strip.bottom),
            shade(value, scale),
        );
    }
    scene.outline(strip, Pen::new(BORDER, 0.7));
    let scale = scale.over(strip.left, strip.right);
    let base = strip.bottom + 2.0 + style.tick;
    let mut last = f64::NEG_INFINITY;
    for tick in scale.ticks(5) {
        let Some(label) = &tick.label else { continue };
        let at = scale.clamped(tick.value);
        let half = text::width(label, style.tick) / 2.0;
        if at - half > last && at + half <= area.right {
            scene.line(
                vec![(at, strip.bottom), (at, strip.bottom + 3.0)],
                Pen::new(BORDER, 0.7),
            );
            scene.text((at, base), label, (style.tick, INK), Anchor::Middle);
            last = at + half + 6.0;
        }
    }
    Rect {
        top: base + 8.0,
        ..area
    }
}
