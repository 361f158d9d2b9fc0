//! Draws lines and points in a plane.

use super::{
    Axis, Chart, Line, Point,
    axes::{self, Plane, Room},
    legend::BAND,
    scale::{Bounds, Scale, shown},
    scene::{Anchor, Pen, Place, Rect, Scene},
    style::{BORDER, FAINT, Style, bound, colour, faded, mark, whisker},
};

/// Points above which a line has a band instead of whiskers.
const FEW: usize = 16;
/// Points above which marks would hide the line.
const MARKED: usize = 40;

/// Draws lines; true if there was anything to draw.
pub(super) fn lines(
    scene: &mut Scene,
    area: Rect,
    chart: &Chart,
    lines: &[Line],
    room: Room,
    style: &Style,
) -> bool {
    // What is sampled over time fills the width.
    let bounds = if lines.iter().all(marked) {
        Bounds::Loose
    } else {
        Bounds::Tight
    };
    let Some((x, y)) = scales(chart, lines, bounds) else {
        return false;
    };
    let area = note(scene, area, lines, (&x, &y), style);
    let labels = ((chart.x.label.as_str(), x), (chart.y.label.as_str(), y));
    let plane = axes::plane(scene, area, labels.0, labels.1, room, style);
    for line in lines {
        spread(scene, &plane, line, style);
    }
    let ordered = |published: bool| {
        lines
            .iter()
            .filter(move |l| l.origin.is_paper() == published)
    };
    for line in ordered(false) {
        let pen = style.line(line.origin, colour(line.origin, line.colour));
        for run in runs(&plane, line) {
            for part in clipped(&thinned(run), plane.rect) {
                scene.line(part, pen);
            }
        }
    }
    for line in ordered(false).chain(ordered(true)) {
        marks(scene, &plane, line, style, marked(line));
    }
    true
}

/// Draws points alone; true if there was anything to draw.
pub(super) fn scatter(
    scene: &mut Scene,
    area: Rect,
    chart: &Chart,
    (sets, diagonal): (&[Line], bool),
    style: &Style,
) -> bool {
    let scales = if diagonal {
        equal(chart, sets).map(|scale| (scale, scale))
    } else {
        scales(chart, sets, Bounds::Loose)
    };
    let Some((x, y)) = scales else {
        return false;
    };
    let area = note(scene, area, sets, (&x, &y), style);
    let room = Room {
        square: diagonal,
        ..Room::default()
    };
    let labels = ((chart.x.label.as_str(), x), (chart.y.label.as_str(), y));
    let plane = axes::plane(scene, area, labels.0, labels.1, room, style);
    if diagonal {
        factors(scene, &plane, style);
    }
    for set in sets {
        whiskers(scene, &plane, set, style);
    }
    for set in sets {
        marks(scene, &plane, set, style, true);
    }
    true
}

fn values(point: &Point) -> impl Iterator<Item = f64> {
    let (low, high) = point.range.unwrap_or((point.y, point.y));
    [point.y, low, high].into_iter()
}

/// Points that can be shown at all.
fn visible<'a>(
    lines: &'a [Line],
    x: &'a Axis,
    y: &'a Axis,
) -> impl Iterator<Item = &'a Point> + Clone {
    lines
        .iter()
        .flat_map(|line| &line.points)
        .filter(|p| shown(x.log, p.x) && shown(y.log, p.y))
}

/// The scales of a chart.
pub(super) fn scales(chart: &Chart, lines: &[Line], x_bounds: Bounds) -> Option<(Scale, Scale)> {
    let points = visible(lines, &chart.x, &chart.y);
    let x = Scale::new(&chart.x, x_bounds, points.clone().map(|p| p.x))?;
    let inside = points.filter(|p| x.holds(p.x));
    let y = Scale::new(&chart.y, Bounds::Loose, inside.flat_map(values))?;
    Some((x, y))
}

/// One logarithmic scale for both axes.
fn equal(chart: &Chart, sets: &[Line]) -> Option<Scale> {
    let axis = Axis {
        log: true,
        ..chart.x.clone()
    };
    let points = visible(sets, &axis, &axis);
    Scale::new(
        &axis,
        Bounds::Loose,
        points.flat_map(|p| values(p).chain([p.x])),
    )
}

/// Says how many points the axes leave out.
fn note(
    scene: &mut Scene,
    area: Rect,
    lines: &[Line],
    (x, y): (&Scale, &Scale),
    style: &Style,
) -> Rect {
    let points = lines.iter().flat_map(|line| &line.points);
    let known = points.filter(|p| p.x.is_finite() && p.y.is_finite());
    let outside = known.filter(|p| !x.holds(p.x) || !y.holds(p.y)).count();
    if outside == 0 {
        return area;
    }
    let noun = if outside == 1 { "point" } else { "points" };
    let text = format!("{outside} {noun} outside the axes");
    let at = (area.right, area.bottom - 2.0);
    scene.text(at, &text, (style.tick, FAINT), Anchor::End);
    Rect {
        bottom: area.bottom - Style::leading(style.tick),
        ..area
    }
}

/// Position of a point, if it can be shown.
fn place(plane: &Plane, point: &Point) -> Option<Place> {
    Some((plane.x.at(point.x)?, plane.y.at(point.y)?))
}

/// The line's points, interrupted where there is no value.
fn runs(plane: &Plane, line: &Line) -> Vec<Vec<Place>> {
    let mut runs = vec![Vec::new()];
    for point in &line.points {
        match (place(plane, point), runs.last_mut()) {
            (Some(at), Some(run)) => run.push(at),
            _ => runs.push(Vec::new()),
        }
    }
    runs
}

/// The points that give the same picture: of each half pixel's column the first, lowest, highest
/// and last.
fn thinned(points: Vec<Place>) -> Vec<Place> {
    if points.len() < 2_000 {
        return points;
    }
    let mut kept: Vec<Place> = Vec::new();
    let column = |at: &Place| (at.0 * 2.0).floor();
    for group in points.chunk_by(|a, b| column(a).total_cmp(&column(b)).is_eq()) {
        let by_y = |a: &usize, b: &usize| group[*a].1.total_cmp(&group[*b].1);
        let all = 0..group.len();
        let mut some = vec![0, group.len() - 1];
        some.extend(all.clone().min_by(by_y));
        some.extend(all.max_by(by_y));
        some.sort_unstable();
        some.dedup();
        kept.extend(some.into_iter().map(|i| group[i]));
    }
    kept
}

/// The parts of a line that are within `rect`.
fn clipped(points: &[Place], rect: Rect) -> Vec<Vec<Place>> {
    let mut parts: Vec<Vec<Place>> = Vec::new();
    for two in points.windows(2) {
        let Some((from, to)) = segment(two[0], two[1], rect) else {
            continue;
        };
        let same = |a: Place, b: Place| (a.0 - b.0).abs() + (a.1 - b.1).abs() < 1e-6;
        match parts.last_mut() {
            Some(part) if part.last().is_some_and(|last| same(*last, from)) => part.push(to),
            _ => parts.push(vec![from, to]),
        }
    }
    parts
}

/// A segment within `rect`, after Liang and Barsky (1984).
fn segment(a: Place, b: Place, rect: Rect) -> Option<(Place, Place)> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut first, mut last) = (0.0_f64, 1.0_f64);
    for (step, space) in [
        (-dx, a.0 - rect.left),
        (dx, rect.right - a.0),
        (-dy, a.1 - rect.top),
        (dy, rect.bottom - a.1),
    ] {
        if step == 0.0 {
            if space < 0.0 {
                return None;
            }
        } else if step < 0.0 {
            first = first.max(space / step);
        } else {
            last = last.min(space / step);
        }
    }
    let at = |t: f64| (a.0 + t * dx, a.1 + t * dy);
    (first <= last).then(|| (at(first), at(last)))
}

/// True if every point of a line has a mark.
pub(super) fn marked(line: &Line) -> bool {
    line.origin.is_paper() || line.points.len() <= MARKED
}

/// Draws what lies around the points: a band if they are many, whiskers otherwise.
fn spread(scene: &mut Scene, plane: &Plane, line: &Line, style: &Style) {
    if line.points.len() < FEW {
        whiskers(scene, plane, line, style);
        return;
    }
    let published = line.origin.is_paper();
    let shade = faded(
        colour(line.origin, line.colour),
        if published { BAND } else { 0.2 },
    );
    let edges = |point: &Point| {
        let (low, high) = point
            .range
            .filter(|(l, h)| l.is_finite() && h.is_finite())?;
        let x = plane.x.at(point.x).filter(|_| plane.x.holds(point.x))?;
        plane.y.at(point.y)?;
        Some((x, plane.y.clamped(low), plane.y.clamped(high)))
    };
    let edges: Vec<_> = line.points.iter().map(edges).collect();
    for run in edges.split(Option::is_none) {
        let run = || run.iter().flatten();
        let lower = run().map(|(x, low, _)| (*x, *low));
        let upper = run().rev().map(|(x, _, high)| (*x, *high));
        scene.area(lower.chain(upper).collect(), shade);
    }
}

fn whiskers(scene: &mut Scene, plane: &Plane, line: &Line, style: &Style) {
    let ink = colour(line.origin, line.colour);
    for point in &line.points {
        let Some((low, high)) = point.range.filter(|(l, h)| l.is_finite() && h.is_finite()) else {
            continue;
        };
        let Some((x, _)) = place(plane, point).filter(|_| plane.x.holds(point.x)) else {
            continue;
        };
        let ends = (plane.y.clamped(low), plane.y.clamped(high));
        if line.origin.is_paper() {
            let half = style.mark * 1.2;
            scene.fill(
                Rect::new(x - half, ends.1, x + half, ends.0),
                faded(ink, BAND),
            );
        } else {
            whisker(scene, x, ends, style.mark * 0.9, Pen::new(ink, 1.0));
        }
    }
}

fn marks(scene: &mut Scene, plane: &Plane, line: &Line, style: &Style, drawn: bool) {
    // A value between two gaps is no line.
    let alone = |i: usize| {
        let shown = |i: Option<usize>| {
            i.and_then(|i| line.points.get(i))
                .is_some_and(|p| place(plane, p).is_some())
        };
        !shown(i.checked_sub(1)) && !shown(Some(i + 1))
    };
    for (i, point) in line.points.iter().enumerate() {
        let Some(at) = place(plane, point).filter(|at| plane.rect.has(*at)) else {
            continue;
        };
        if line.origin.is_paper() {
            bound(scene, at, style.mark, line.origin, point.mark);
        } else if drawn || alone(i) {
            mark(scene, at, style.mark, line.origin, line.colour);
        }
        let reach = style.mark * 2.0;
        let area = Rect::new(at.0 - reach, at.1 - reach, at.0 + reach, at.1 + reach);
        scene.tip(area, point.label.as_deref());
    }
}

/// The line on which both are equal, and those of twice and half.
fn factors(scene: &mut Scene, plane: &Plane, style: &Style) {
    let names = [
        (1.0, None, "y = x"),
        (2.0, Some(4.0), "2×"),
        (0.5, Some(4.0), "½×"),
    ];
    for (factor, dash, name) in names {
        let pen = Pen {
            dash,
            ..Pen::new(BORDER, 1.0)
        };
        let at = |x: f64| Some((plane.x.at(x)?, plane.y.at(x * factor)?));
        let (Some(from), Some(to)) = (at(plane.x.lo), at(plane.x.hi)) else {
            continue;
        };
        let Some((from, to)) = segment(from, to, plane.rect) else {
            continue;
        };
        scene.line(vec![from, to], pen);
        // Beyond the border, where no point is.
        let (size, (x, y)) = (style.tick, to);
        if y <= plane.rect.top + 0.5 && factor > 1.0 {
            scene.text((x, y - 4.0), name, (size, FAINT), Anchor::Middle);
        } else {
            let at = (x + 4.0, y + size * 0.36);
            scene.text(at, name, (size, FAINT), Anchor::Start);
        }
    }
}
