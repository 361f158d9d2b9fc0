//! Turns a picture into SVG or PNG. `plotters` paints the shapes, at a multiple of the size because
//! its coordinates are whole numbers. An SVG is scaled back by a transformation, a bitmap by
//! averaging.

use plotters::{
    backend::{BitMapBackend, DrawingBackend, SVGBackend},
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea as _},
    element::{Circle, DashedPathElement, PathElement, Polygon, Text},
    style::{
        Color as _, FontTransform, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    PlotError,
    scene::{Anchor, Colour, Pen, Place, Scene, Shape, Tip},
    text,
};

/// Steps per pixel of an SVG.
const FINE: u32 = 10;
/// Bitmaps are painted this much larger.
const OVER: u32 = 3;

/// Distance from the top of a text's box to its base line, in the text's size: `plotters` makes an
/// SVG's text so.
const SVG_BASE: f64 = 0.76 / text::EM;
/// Distance from the top of a bitmap's text box to its base line, in the text's size.
const BITMAP_BASE: f64 = 0.5;

/// Paints the scene as SVG.
pub(super) fn svg(scene: &Scene) -> Result<String, PlotError> {
    let mut painted = String::new();
    let size = (scene.size.0 * FINE, scene.size.1 * FINE);
    {
        let area = SVGBackend::with_string(&mut painted, size).into_drawing_area();
        let brush = Brush {
            scale: f64::from(FINE),
            base: SVG_BASE,
        };
        brush.paint(&area, &scene.shapes)?;
        area.present().map_err(|e| PlotError::draw(&e))?;
    }
    let inner = painted
        .split_once('>')
        .and_then(|(_, rest)| rest.rsplit_once("</svg>"))
        .map_or("", |(inner, _)| inner);
    let (width, height) = scene.size;
    let tips: String = scene.tips.iter().map(tip).collect();
    let name = escaped(&scene.name);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{name}\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n<g \
         transform=\"scale({})\" stroke-linejoin=\"round\">{inner}</g>\n{tips}</svg>\n",
        1.0 / f64::from(FINE),
    ))
}

fn tip(tip: &Tip) -> String {
    let area = tip.area;
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#FFFFFF\" \
         fill-opacity=\"0\"><title>{}</title></rect>\n",
        area.left,
        area.top,
        area.width(),
        area.height(),
        escaped(&tip.text)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Paints the scene as PNG.
pub(super) fn png(scene: &Scene) -> Result<Vec<u8>, PlotError> {
    let (width, height) = (scene.size.0 * OVER, scene.size.1 * OVER);
    let mut large = vec![255; bytes(width) * bytes(height) * 3];
    {
        let backend = BitMapBackend::with_buffer(&mut large, (width, height));
        let area = backend.into_drawing_area();
        let brush = Brush {
            scale: f64::from(OVER),
            base: BITMAP_BASE,
        };
        brush.paint(&area, &scene.shapes)?;
        area.present().map_err(|e| PlotError::draw(&e))?;
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, scene.size.0, scene.size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&averaged(&large, bytes(width)))?;
    writer.finish()?;
    Ok(file)
}

fn bytes(pixels: u32) -> usize {
    usize::try_from(pixels).expect("an address space has more than 32 bits, or as many")
}

/// One pixel of each square of [`OVER`] by [`OVER`]; `width` of the larger picture.
fn averaged(large: &[u8], width: usize) -> Vec<u8> {
    let over = bytes(OVER);
    let mut small = Vec::with_capacity(large.len() / over / over);
    for rows in large.chunks_exact(width * 3 * over) {
        for x in 0..width / over {
            for channel in 0..3 {
                let mut sum = 0;
                for row in rows.chunks_exact(width * 3) {
                    let first = x * over * 3 + channel;
                    sum += (0..over)
                        .map(|i| u32::from(row[first + 3 * i]))
                        .sum::<u32>();
                }
                let mean = (sum + OVER * OVER / 2) / (OVER * OVER);
                small.push(u8::try_from(mean).unwrap_or(u8::MAX));
            }
        }
    }
    small
}

struct Brush {
    scale: f64,
    base: f64,
}

impl Brush {
    fn paint<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        shapes: &[Shape],
    ) -> Result<(), PlotError> {
        for shape in shapes {
            let painted = match shape {
                Shape::Line { points, pen } => {
                    let (points, style) = (self.places(points), self.stroke(*pen));
                    match pen.dash {
                        None => area.draw(&PathElement::new(points, style)),
                        Some(dash) => {
                            let (dash, gap) =
                                (self.length(dash), self.length(dash * 0.6 + pen.width));
                            area.draw(&DashedPathElement::new(points, dash, gap, style))
                        }
                    }
                }
                Shape::Area { points, colour } => {
                    area.draw(&Polygon::new(self.places(points), colour.filled()))
                }
                Shape::Disc {
                    centre,
                    radius,
                    colour,
                } => area.draw(&Circle::new(
                    self.place(*centre),
                    self.length(*radius),
                    colour.filled(),
                )),
                Shape::Ring {
                    centre,
                    radius,
                    pen,
                } => area.draw(&Circle::new(
                    self.place(*centre),
                    self.length(*radius),
                    self.stroke(*pen),
                )),
                Shape::Text {
                    at,
                    text,
                    size,
                    colour,
                    anchor,
                    turned,
                } => {
                    let (style, at) = self.lettering(*at, (*size, *colour), *anchor, *turned);
                    area.draw(&Text::new(text.as_str(), at, style))
                }
            };
            painted.map_err(|e| PlotError::draw(&e))?;
        }
        Ok(())
    }

    fn lettering(
        &self,
        (x, y): Place,
        (em, colour): (f64, Colour),
        anchor: Anchor,
        turned: bool,
    ) -> (TextStyle<'static>, (i32, i32)) {
        let font = text::font(em * self.scale);
        let down = em * text::EM * self.base;
        let (font, at) = if turned {
            (font.transform(FontTransform::Rotate270), (x - down, y))
        } else {
            (font, (x, y - down))
        };
        let h_pos = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let style = TextStyle {
            color: colour.to_backend_color(),
            ..TextStyle::from(font).pos(Pos::new(h_pos, VPos::Top))
        };
        (style, self.place(at))
    }

    fn stroke(&self, pen: Pen) -> ShapeStyle {
        let width = u32::try_from(self.length(pen.width))
            .unwrap_or_default()
            .max(1);
        pen.colour.stroke_width(width)
    }

    fn places(&self, places: &[Place]) -> Vec<(i32, i32)> {
        places.iter().map(|p| self.place(*p)).collect()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a picture has less than 2^31 steps; what lies outside is saturated"
    )]
    fn place(&self, (x, y): Place) -> (i32, i32) {
        // Down, so that a line of one pixel through the middle of a pixel fills it.
        (
            (x * self.scale).floor() as i32,
            (y * self.scale).floor() as i32,
        )
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "lengths are those of marks and strokes"
    )]
    fn length(&self, pixels: f64) -> i32 {
        (pixels * self.scale).round() as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_of_pixels_is_averaged() {
        let over = bytes(OVER);
        let mut large = vec![0; 2 * over * over * 3];
        for row in large.chunks_exact_mut(2 * over * 3) {
            row[..3].fill(90);
        }
        assert_eq!(averaged(&large, 2 * over), [30, 30, 30, 0, 0, 0]);
    }
    #[test]
    fn every_sign_that_is_written_is_in_the_font() {
        let painted = |sign: char| {
            let mut scene = Scene::new((24, 24), "");
            let black = super::super::style::BLACK;
            scene.text((2.0, 18.0), &sign.to_string(), (16.0, black), Anchor::Start);
            png(&scene).unwrap()
        };
        let unknown = painted('\u{10348}');
        assert_ne!(unknown, painted(' '), "a box");
        for sign in "aZ09%äéµμσ−×≤≥·…–½⁻⁰¹²³⁴⁵⁶⁷⁸⁹".chars() {
            assert_ne!(painted(sign), unknown, "{sign}");
        }
    }
}
