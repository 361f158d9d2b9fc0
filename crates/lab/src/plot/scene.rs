//! A picture: shapes in pixels of the requested size, in the order in which they are painted.

use plotters::style::RGBAColor;

use super::text;

pub(super) type Colour = RGBAColor;

/// A place, px from the left and from the top.
pub(super) type Place = (f64, f64);

/// Axis-parallel, px.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Rect {
    pub(super) const fn new(left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            left,
            top,
            right,
            bottom,
        }
    }

    pub(super) fn width(self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(self) -> f64 {
        self.bottom - self.top
    }

    pub(super) fn centre(self) -> Place {
        (
            f64::midpoint(self.left, self.right),
            f64::midpoint(self.top, self.bottom),
        )
    }

    pub(super) fn has(self, (x, y): Place) -> bool {
        // A mark on the border belongs to the picture, whatever was rounded.
        x >= self.left - 0.01
            && x <= self.right + 0.01
            && y >= self.top - 0.01
            && y <= self.bottom + 0.01
    }

    fn corners(self) -> Vec<Place> {
        vec![
            (self.left, self.top),
            (self.right, self.top),
            (self.right, self.bottom),
            (self.left, self.bottom),
        ]
    }
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen {
    pub colour: Colour,
    pub width: f64,
    /// Length of the dashes, px.
    pub dash: Option<f64>,
}

impl Pen {
    pub(super) const fn new(colour: Colour, width: f64) -> Self {
        Self {
            colour,
            width,
            dash: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Shape that is painted.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Line {
        points: Vec<Place>,
        pen: Pen,
    },
    Area {
        points: Vec<Place>,
        colour: Colour,
    },
    Disc {
        centre: Place,
        radius: f64,
        colour: Colour,
    },
    Ring {
        centre: Place,
        radius: f64,
        pen: Pen,
    },
    Text {
        /// Position of the anchor, on the base line.
        at: Place,
        text: String,
        /// Height of capitals and descenders, px.
        size: f64,
        colour: Colour,
        anchor: Anchor,
        /// True for text read from bottom to top.
        turned: bool,
    },
}

/// Text shown to a pointer that rests in an area.
#[derive(Clone, Debug)]
pub(super) struct Tip {
    pub area: Rect,
    pub text: String,
}

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub size: (u32, u32),
    /// Description of the picture, for people who cannot see it.
    pub name: String,
    pub shapes: Vec<Shape>,
    pub tips: Vec<Tip>,
}

impl Scene {
    pub(super) fn new(size: (u32, u32), name: &str) -> Self {
        Self {
            size,
            name: text::plain(name),
            shapes: Vec::new(),
            tips: Vec::new(),
        }
    }

    pub(super) fn rect(&self) -> Rect {
        Rect::new(0.0, 0.0, f64::from(self.size.0), f64::from(self.size.1))
    }

    pub(super) fn line(&mut self, points: Vec<Place>, pen: Pen) {
        if points.len() > 1 {
            self.shapes.push(Shape::Line { points, pen });
        }
    }

    pub(super) fn area(&mut self, points: Vec<Place>, colour: Colour) {
        if points.len() > 2 {
            self.shapes.push(Shape::Area { points, colour });
        }
    }

    pub(super) fn disc(&mut self, centre: Place, radius: f64, colour: Colour) {
        self.shapes.push(Shape::Disc {
            centre,
            radius,
            colour,
        });
    }

    pub(super) fn ring(&mut self, centre: Place, radius: f64, pen: Pen) {
        self.shapes.push(Shape::Ring {
            centre,
            radius,
            pen,
        });
    }

    pub(super) fn fill(&mut self, rect: Rect, colour: Colour) {
        self.area(rect.corners(), colour);
    }

    pub(super) fn outline(&mut self, rect: Rect, pen: Pen) {
        let mut points = rect.corners();
        points.push(points[0]);
        points.push(points[1]);
        self.line(points, pen);
    }

    pub(super) fn text(
        &mut self,
        at: Place,
        text: &str,
        (size, colour): (f64, Colour),
        anchor: Anchor,
    ) {
        self.write(at, text, (size, colour), anchor, false);
    }

    pub(super) fn write(
        &mut self,
        at: Place,
        text: &str,
        (size, colour): (f64, Colour),
        anchor: Anchor,
        turned: bool,
    ) {
        let text = text::plain(text);
        if !text.is_empty() {
            self.shapes.push(Shape::Text {
                at,
                text,
                size,
                colour,
                anchor,
                turned,
            });
        }
    }

    pub(super) fn tip(&mut self, area: Rect, text: Option<&str>) {
        let text = text::plain(text.unwrap_or_default());
        if !text.is_empty() {
            self.tips.push(Tip { area, text });
        }
    }
}
