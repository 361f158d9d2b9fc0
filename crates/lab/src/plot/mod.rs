//! Draws figures. A [`Chart`] is data: axes, and lines, bars, a heat map or a scatter of points.
//! [`svg`] and [`png()`] draw it, on any machine: the font is built in. Equal charts give equal
//! bytes. [`series`] draws flows over time.

mod axes;
mod bars;
mod heat;
mod legend;
mod lines;
mod paint;
mod scale;
mod scene;
pub mod series;
mod style;
mod text;

#[cfg(test)]
mod tests;

use self::{
    axes::Room,
    scene::{Anchor, Rect, Scene},
    style::{BORDER, FAINT, INK, Style},
};

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title above the figure.
    pub title: String,
    /// Axis to the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The variable that lines or bars differ in, which stands before their names; may be empty.
    pub key: String,
    /// Content of the figure.
    pub body: Body,
}

impl Chart {
    /// True if a point, bar or cell is not a paper's.
    pub(crate) fn has_ours(&self) -> bool {
        let drawn = |l: &Line| !l.origin.is_paper() && !l.points.is_empty();
        match &self.body {
            Body::Lines(lines) | Body::Scatter { sets: lines, .. } => lines.iter().any(drawn),
            Body::Bars { series, .. } => (series.iter().filter(|s| !s.origin.is_paper()))
                .any(|s| s.values.iter().any(Option::is_some)),
            Body::Heat { cells, .. } => cells.iter().flatten().any(Option::is_some),
        }
    }
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Quantity and unit, as in `loss, %`.
    pub label: String,
    /// True for a logarithmic axis; values that are not positive are left out.
    pub log: bool,
    /// Bounds of the axis; from the data if not given.
    pub range: Option<(f64, f64)>,
}

/// Content of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Lines over x, in the order of the legend.
    Lines(Vec<Line>),
    /// Groups of bars side by side, one bar per series in each.
    Bars {
        /// Names along the x axis.
        groups: Vec<String>,
        /// One bar in every group.
        series: Vec<Bars>,
    },
    /// A table of coloured cells.
    Heat {
        /// Along the x axis.
        columns: Vec<String>,
        /// Along the y axis, bottom first.
        rows: Vec<String>,
        /// Rows of columns; none was not measured.
        cells: Vec<Vec<Option<f64>>>,
    },
    /// Points with names, and the diagonal x = y with its factors of two if `diagonal`.
    Scatter {
        /// Sets of points, each with a colour.
        sets: Vec<Line>,
        /// True if x and y are the same quantity.
        diagonal: bool,
    },
}

/// Origin of figures, which decides how they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Simulated: solid lines, filled marks.
    Simulated,
    /// Measured on real sockets: dashed lines, hollow marks.
    Measured,
    /// Printed in a paper: marks alone, in black, with a band from low to high.
    Published,
    /// Derived from what a paper prints, or assumed: the same, hollow.
    Inferred,
}

impl Origin {
    /// True if the figures are a paper's, or somebody's reading of it.
    pub(crate) const fn is_paper(self) -> bool {
        matches!(self, Self::Published | Self::Inferred)
    }
}

/// Mark drawn at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A mark.
    #[default]
    Value,
    /// The point's range alone.
    Range,
    /// A bar with an arrow upwards: this, or more.
    AtLeast,
    /// An arrow downwards: this, or less.
    AtMost,
}

/// One line, or set of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Origin of the line's figures.
    pub origin: Origin,
    /// Lines with the same number have the same colour: a simulated and a measured one, say.
    pub colour: usize,
    /// Points in the order of x.
    pub points: Vec<Point>,
}

/// One point: a median, and what lies around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Position along the axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// Least and greatest over the seeds, or the bounds of a published figure.
    pub range: Option<(f64, f64)>,
    /// Text shown to a pointer that rests on the point, if any; in an SVG only.
    pub label: Option<String>,
    /// Mark that is drawn.
    pub mark: Mark,
}

/// One bar in every group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Name in the legend.
    pub name: String,
    /// Origin of the bars' figures.
    pub origin: Origin,
    /// Colour, as [`Line::colour`].
    pub colour: usize,
    /// One per group; `x` is not used.
    pub values: Vec<Option<Point>>,
}

/// Reason why there is no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The size is not possible.
    #[error("a figure of {0} x {1} pixels: give 160 x 120 to 8000 x 8000")]
    Size(u32, u32),
    /// Something could not be drawn.
    #[error("a figure could not be drawn: {0}")]
    Draw(String),
    /// The PNG could not be made.
    #[error("a figure could not be stored as PNG: {0}")]
    Encode(#[from] png::EncodingError),
}

impl PlotError {
    fn draw(error: &dyn std::fmt::Display) -> Self {
        Self::Draw(error.to_string())
    }
}

/// The chart as SVG for a space of `size` px. It has no size of its own, but a `viewBox`: it scales to the width it
/// is given, but is laid out for `size`. It has no ids, so several may stand in one page.
pub fn svg(chart: &Chart, size: (u32, u32)) -> Result<String, PlotError> {
    paint::svg(&picture(chart, size)?)
}

/// The chart as PNG of `size` px.
pub fn png(chart: &Chart, size: (u32, u32)) -> Result<Vec<u8>, PlotError> {
    paint::png(&picture(chart, size)?)
}

fn canvas(name: &str, size: (u32, u32)) -> Result<Scene, PlotError> {
    let (width, height) = size;
    if !(160..=8_000).contains(&width) || !(120..=8_000).contains(&height) {
        return Err(PlotError::Size(width, height));
    }
    Ok(Scene::new(size, name))
}

fn picture(chart: &Chart, size: (u32, u32)) -> Result<Scene, PlotError> {
    let mut scene = canvas(&chart.title, size)?;
    let style = Style::of(f64::from(size.0));
    let margin = style.margin;
    let whole = scene.rect();
    let area = Rect::new(margin, margin, whole.right - margin, whole.bottom - margin);
    let area = title(&mut scene, area, &chart.title, &style);
    let area = legend::draw(&mut scene, area, chart, &style);
    let drawn = match &chart.body {
        Body::Lines(lines) => lines::lines(&mut scene, area, chart, lines, Room::default(), &style),
        Body::Scatter { sets, diagonal } => {
            lines::scatter(&mut scene, area, chart, (sets, *diagonal), &style)
        }
        Body::Bars { groups, series } => {
            bars::draw(&mut scene, area, chart, (groups, series), &style)
        }
        Body::Heat {
            columns,
            rows,
            cells,
        } => heat::draw(&mut scene, area, chart, (columns, rows), cells, &style),
    };
    if !drawn {
        nothing(&mut scene, area, &style);
    }
    Ok(scene)
}

/// Writes the title on at most two lines; returns the rest of `area`.
fn title(scene: &mut Scene, area: Rect, title: &str, style: &Style) -> Rect {
    let mut y = area.top;
    for line in text::wrap(title, style.title, area.width(), 2) {
        scene.text(
            (area.left, y + style.title),
            &line,
            (style.title, INK),
            Anchor::Start,
        );
        y += Style::leading(style.title);
    }
    let gap = if y > area.top { 5.0 } else { 0.0 };
    Rect {
        top: y + gap,
        ..area
    }
}

fn nothing(scene: &mut Scene, area: Rect, style: &Style) {
    scene.outline(area, scene::Pen::new(BORDER, 1.0));
    let (x, y) = area.centre();
    scene.text((x, y), "no data", (style.label, FAINT), Anchor::Middle);
}
