//! How is a figure drawn? A [`Chart`] is data: axes, and lines, bars, a heat map or a scatter of points.

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Above the figure.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub body: Body,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Quantity and unit, as in `loss, %`.
    pub label: String,
    /// Logarithmic; values that are not positive are left out.
    pub log: bool,
    /// From and to; from the data if not given.
    pub range: Option<(f64, f64)>,
}

/// What is drawn.
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
        /// Whether x and y are the same quantity.
        diagonal: bool,
    },
}

/// Whose figures they are, which decides how they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Simulated: solid lines, filled marks.
    Simulated,
    /// Measured on real sockets: dashed lines, hollow marks.
    Measured,
    /// Printed in a paper: marks alone, in black, with a band from low to high.
    Published,
}

/// One line, or set of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Whose.
    pub origin: Origin,
    /// Lines with the same number have the same colour: a simulated and a measured one, say.
    pub colour: usize,
    /// In the order of x.
    pub points: Vec<Point>,
}

/// One point: a median, and what lies around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// Least and greatest over the seeds, or the bounds of a published figure.
    pub range: Option<(f64, f64)>,
    /// What a pointer resting on it shows, if anything.
    pub label: Option<String>,
}

/// One bar in every group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// In the legend.
    pub name: String,
    /// Whose.
    pub origin: Origin,
    /// As of [`Line::colour`].
    pub colour: usize,
    /// One per group; `x` is not used.
    pub values: Vec<Option<Point>>,
}
