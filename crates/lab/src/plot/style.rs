//! Style of a figure: colours, sizes and marks. The colours are those of Okabe and Ito (2008),
//! which people with a deficiency of colour vision can distinguish. They are without black, which
//! is a paper's, and yellow, which is too pale for lines on white. Marks differ too, for print
//! without colours.

use super::{
    Mark, Origin,
    scene::{Colour, Pen, Place, Rect, Scene},
};

const COLOURS: [Colour; 7] = [
    rgb(0x00_72B2),
    rgb(0xD5_5E00),
    rgb(0x00_9E73),
    rgb(0xCC_79A7),
    rgb(0xE6_9F00),
    rgb(0x56_B4E9),
    rgb(0x76_7676),
];

pub(super) const WHITE: Colour = rgb(0xFF_FFFF);
pub(super) const BLACK: Colour = rgb(0x00_0000);
pub(super) const INK: Colour = rgb(0x22_2222);
pub(super) const FAINT: Colour = rgb(0x59_5959);
pub(super) const GRID: Colour = rgb(0xDD_DDDD);
pub(super) const FINE_GRID: Colour = rgb(0xF0_F0F0);
pub(super) const BORDER: Colour = rgb(0x80_8080);
pub(super) const EMPTY: Colour = rgb(0xEC_ECEC);

#[expect(clippy::cast_possible_truncation, reason = "one byte each")]
const fn rgb(hex: u32) -> Colour {
    plotters::style::RGBAColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8, 1.0)
}

pub(super) fn faded(colour: Colour, alpha: f64) -> Colour {
    plotters::style::RGBAColor(colour.0, colour.1, colour.2, alpha)
}

/// Mixed with white: unlike what shines through, it covers the grid.
pub(super) fn tinted(colour: Colour, share: f64) -> Colour {
    let mix = |c: u8| {
        let mixed = f64::from(c) * share + 255.0 * (1.0 - share);
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 255")]
        #[expect(clippy::cast_sign_loss, reason = "between 0 and 255")]
        let byte = mixed.round() as u8;
        byte
    };
    plotters::style::RGBAColor(mix(colour.0), mix(colour.1), mix(colour.2), 1.0)
}

/// Sizes, px.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// True for a style as for a phone.
    pub small: bool,
    pub title: f64,
    pub label: f64,
    pub tick: f64,
    pub stroke: f64,
    pub mark: f64,
    pub margin: f64,
}

impl Style {
    pub(super) fn of(width: f64) -> Self {
        let small = width < 520.0;
        Self {
            small,
            title: if small { 13.0 } else { 15.0 },
            label: if small { 11.0 } else { 12.5 },
            tick: if small { 10.5 } else { 11.5 },
            stroke: if small { 1.5 } else { 1.8 },
            mark: if small { 3.0 } else { 3.6 },
            margin: if small { 6.0 } else { 10.0 },
        }
    }

    /// Distance from one line of text to the next.
    pub(super) fn leading(em: f64) -> f64 {
        (em * 1.35).ceil()
    }

    pub(super) fn line(&self, origin: Origin, colour: Colour) -> Pen {
        Pen {
            dash: (origin == Origin::Measured).then_some(self.stroke * 3.0),
            ..Pen::new(colour, self.stroke)
        }
    }
}

/// The colour of number `n`, or a paper's.
pub(super) fn colour(origin: Origin, n: usize) -> Colour {
    if origin.is_paper() {
        BLACK
    } else {
        COLOURS[n % COLOURS.len()]
    }
}

/// Draws the mark of number `n`.
pub(super) fn mark(scene: &mut Scene, at: Place, radius: f64, origin: Origin, n: usize) {
    let colour = colour(origin, n);
    let hollow = matches!(origin, Origin::Measured | Origin::Inferred);
    let pen = Pen::new(colour, (radius * 0.4).max(1.2));
    let (x, y) = at;
    let corners: &[(f64, f64)] = match n % 5 {
        0 => {
            let fill = if hollow { WHITE } else { colour };
            scene.disc(at, radius, fill);
            if hollow {
                scene.ring(at, radius, pen);
            }
            return;
        }
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)],
        3 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        _ => &[(0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)],
    };
    let mut points: Vec<Place> = corners
        .iter()
        .map(|(dx, dy)| (x + dx * radius, y + dy * radius))
        .collect();
    scene.area(points.clone(), if hollow { WHITE } else { colour });
    if hollow {
        points.extend([points[0], points[1]]);
        scene.line(points, pen);
    }
}

/// Draws a point of a paper's: its mark, or the bar and arrow of a bound.
pub(super) fn bound(scene: &mut Scene, (x, y): Place, radius: f64, origin: Origin, of: Mark) {
    let up = match of {
        Mark::Value => return mark(scene, (x, y), radius, origin, 0),
        Mark::Range => return,
        Mark::AtLeast => -1.0,
        Mark::AtMost => 1.0,
    };
    let pen = Pen::new(colour(origin, 0), 1.4);
    let tip = y + up * radius * 3.0;
    scene.line(vec![(x - radius, y), (x + radius, y)], pen);
    scene.line(vec![(x, y), (x, tip)], pen);
    let wing = radius * 0.8;
    let wings = [-wing, wing].map(|dx| (x + dx, tip - up * wing));
    scene.line(vec![wings[0], (x, tip), wings[1]], pen);
}

/// A whisker from `low` to `high` with caps, px.
pub(super) fn whisker(scene: &mut Scene, x: f64, (low, high): (f64, f64), cap: f64, pen: Pen) {
    scene.line(vec![(x, low), (x, high)], pen);
    for y in [low, high] {
        scene.line(vec![(x - cap, y), (x + cap, y)], pen);
    }
}

/// Light diagonals, and a dash in the middle: there is no value.
pub(super) fn hatch(scene: &mut Scene, rect: Rect, em: f64) {
    scene.fill(rect, EMPTY);
    let (w, h) = (rect.width(), rect.height());
    let pen = Pen::new(rgb(0xCF_CFCF), 1.0);
    let mut offset = 7.0;
    while offset < w + h {
        let from = (rect.left + (offset - h).max(0.0), rect.top + offset.min(h));
        let to = (rect.left + offset.min(w), rect.top + (offset - w).max(0.0));
        scene.line(vec![from, to], pen);
        offset += 7.0;
    }
    if w > em && h > em {
        let (x, y) = rect.centre();
        scene.text(
            (x, y + em * 0.35),
            "–",
            (em, FAINT),
            super::scene::Anchor::Middle,
        );
    }
}
