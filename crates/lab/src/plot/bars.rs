//! Draws groups of bars.

use super::{
    Bars, Chart, Point,
    axes::{self, Table},
    legend::{BAND, swatch},
    scale::{Bounds, Scale, number, shown, to_f64},
    scene::{Anchor, Pen, Rect, Scene},
    style::{FAINT, INK, Style, WHITE, bound, colour, faded, whisker},
    text,
};

/// Share of a group's column that its bars take.
const FILLED: f64 = 0.82;

/// Draws the bars; true if there was anything to draw.
pub(super) fn draw(
    scene: &mut Scene,
    area: Rect,
    chart: &Chart,
    (groups, series): (&[String], &[Bars]),
    style: &Style,
) -> bool {
    let most = groups.len();
    let points = series
        .iter()
        .flat_map(|bars| bars.values.iter().take(most).flatten())
        .filter(|p| shown(chart.y.log, p.y));
    let values = points.flat_map(|p| {
        let (low, high) = p.range.unwrap_or((p.y, p.y));
        [p.y, low, high]
    });
    let bounds = if chart.y.log {
        Bounds::Loose
    } else {
        Bounds::Zero
    };
    let Some(y) = Scale::new(&chart.y, bounds, values) else {
        return false;
    };
    let names = (chart.x.label.as_str(), groups);
    let (table, y) = axes::grouped(scene, area, names, (&chart.y.label, y), style);
    let ground = if y.log { y.lo } else { 0.0 };
    let place = Place {
        wide: table.slot * FILLED / to_f64(series.len().max(1)),
        table,
        ground,
        y,
    };
    for (s, bars) in series.iter().enumerate() {
        for group in 0..groups.len() {
            let left = place.table.rect.left
                + place.table.slot * (to_f64(group) + (1.0 - FILLED) / 2.0)
                + place.wide * to_f64(s);
            let point = bars.values.get(group).and_then(Option::as_ref);
            place.bar(scene, left, bars, point, style);
        }
    }
    if !y.log {
        let zero = y.clamped(0.0).floor() + 0.5;
        let rect = place.table.rect;
        scene.line(
            vec![(rect.left, zero), (rect.right, zero)],
            Pen::new(INK, 1.0),
        );
    }
    true
}

struct Place {
    table: Table,
    y: Scale,
    /// Coordinate at which bars begin.
    ground: f64,
    /// Width of one bar, px.
    wide: f64,
}

impl Place {
    fn bar(&self, scene: &mut Scene, left: f64, bars: &Bars, point: Option<&Point>, style: &Style) {
        let gap = if self.wide > 6.0 { 1.0 } else { 0.0 };
        let (left, right) = (left + gap, left + self.wide - gap);
        let middle = f64::midpoint(left, right);
        let floor = self.y.clamped(self.ground);
        let Some(point) = point.filter(|p| shown(self.y.log, p.y)) else {
            if self.wide >= 8.0 {
                let at = (middle, floor - 4.0);
                scene.text(at, "–", (style.tick, FAINT), Anchor::Middle);
            }
            return;
        };
        let top = self.y.clamped(point.y);
        let rect = Rect::new(left, top.min(floor), right, top.max(floor));
        let range = point.range.filter(|(l, h)| l.is_finite() && h.is_finite());
        let ends = range.map(|(l, h)| (self.y.clamped(l), self.y.clamped(h)));
        let mut highest = rect.top;
        if bars.origin.is_paper() {
            if let Some((low, high)) = ends {
                scene.fill(
                    Rect::new(left, high, right, low),
                    faded(colour(bars.origin, 0), BAND),
                );
                highest = highest.min(high);
            }
            let radius = style.mark.min(self.wide / 2.6);
            scene.line(
                vec![(left, top), (right, top)],
                Pen::new(colour(bars.origin, 0), 1.0),
            );
            bound(scene, (middle, top), radius, bars.origin, point.mark);
            highest = highest.min(top - radius);
        } else {
            swatch(scene, rect, bars.origin, bars.colour);
            if let Some(ends) = ends {
                let cap = (self.wide / 4.0).min(4.0);
                whisker(scene, middle, ends, cap + 0.5, Pen::new(WHITE, 2.6));
                whisker(scene, middle, ends, cap, Pen::new(INK, 1.1));
                highest = highest.min(ends.1);
            }
        }
        self.value(scene, (middle, highest), point.y, style);
        let column = Rect::new(left, self.table.rect.top, right, self.table.rect.bottom);
        scene.tip(column, point.label.as_deref());
    }

    /// The number above a bar, where it has space.
    fn value(&self, scene: &mut Scene, (x, y): (f64, f64), value: f64, style: &Style) {
        let size = style.tick - 1.5;
        let number = number(value);
        let above = y - size > self.table.rect.top - style.tick && value >= 0.0;
        if above && text::width(&number, size) <= self.wide + 2.0 {
            scene.text((x, y - 3.0), &number, (size, FAINT), Anchor::Middle);
        }
    }
}
