//! Charts: small panels with the same look, one beside another.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{Failed, axis::Axis};

/// The backend draws on whole pixels; drawn at twice its size, a bar may be half a pixel wide.
const FINE: u32 = 2;

const HEADER: u32 = 74;
const FONT: &str = "sans-serif";

/// Colours that stay apart for those who see fewer of them (Okabe and Ito, 2008).
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
];

/// From the edge of a panel to its axis.
const LEFT: u32 = 54;

const GREY: RGBColor = RGBColor(90, 90, 90);

/// The radius of a dot.
const DOT: u32 = 3 * FINE;

/// The colour of a time in which the server was down.
const DOWN: RGBColor = RGBColor(236, 228, 222);

/// A titled sheet of panels.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) columns: usize,
    /// Width and height of a panel in pixels.
    pub(crate) panel: (u32, u32),
    pub(crate) legend: Vec<Key>,
    pub(crate) panels: Vec<Panel>,
}

/// An entry of the legend; series refer to it by its place.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
}

#[derive(Clone, Copy)]
pub(crate) enum Mark {
    Area(RGBColor),
    Line(RGBColor),
    Dots(RGBColor),
    /// The shade behind the others while the server is down.
    Down,
}

pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The time in which the server is down.
    pub(crate) down: Option<(f64, f64)>,
    /// The place of the key, and the points.
    pub(crate) series: Vec<(usize, Vec<(f64, f64)>)>,
}

/// The outline of a histogram whose bars begin at zero and are `width` wide.
pub(crate) fn steps(counts: impl IntoIterator<Item = f64>, width: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    let mut height = 0.0;
    let mut x = 0.0;
    for count in counts {
        if count != height {
            points.extend([(x, height), (x, count)]);
            height = count;
        }
        x += width;
    }
    points.extend([(x, height), (x, 0.0)]);
    points
}

// === impl Chart ===

impl Chart {
    /// The chart as an SVG document.
    pub(crate) fn svg(&self) -> Result<String, Failed> {
        let rows = self.panels.len().div_ceil(self.columns) as u32;
        let width = self.panel.0 * self.columns as u32;
        let height = self.panel.1 * rows + HEADER;
        let fine = (width * FINE, height * FINE);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, fine).into_drawing_area();
            area.fill(&WHITE)?;
            let (header, body) = area.split_vertically(HEADER * FINE);
            self.draw_header(&header)?;
            let places = body.split_evenly((rows as usize, self.columns));
            for (place, panel) in places.iter().zip(&self.panels) {
                self.draw_panel(place, panel)?;
            }
            area.present()?;
        }
        let size = |(width, height)| format!("<svg width=\"{width}\" height=\"{height}\"");
        Ok(svg.replacen(&size(fine), &size((width, height)), 1))
    }

    fn draw_header<B>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Failed>
    where
        B: DrawingBackend<ErrorType: 'static>,
    {
        let fine = |pixels: i32| pixels * FINE as i32;
        let left = Pos::new(HPos::Left, VPos::Center);
        let write = |text: &str, at: (i32, i32), font: TextStyle<'_>| {
            let at = (fine(at.0), fine(at.1));
            area.draw(&Text::new(text.to_owned(), at, font.pos(left)))
        };
        write(&self.title, (12, 17), font(16))?;
        write(&self.subtitle, (12, 38), font(12).color(&GREY))?;
        let (mut x, y) = (12, 60);
        for key in &self.legend {
            let (from, to) = ((fine(x), fine(y - 5)), (fine(x + 16), fine(y + 5)));
            let patch = |colour: RGBColor| Rectangle::new([from, to], colour.filled());
            match key.mark {
                Mark::Area(colour) => area.draw(&patch(colour))?,
                Mark::Down => area.draw(&patch(DOWN))?,
                Mark::Line(colour) => {
                    let line = vec![(from.0, fine(y)), (to.0, fine(y))];
                    area.draw(&PathElement::new(line, stroke(colour)))?;
                }
                Mark::Dots(colour) => {
                    area.draw(&Circle::new(
                        (fine(x + 8), fine(y)),
                        DOT,
                        colour.stroke_width(2),
                    ))?;
                }
            }
            write(key.name, (x + 22, y), font(12))?;
            // No fonts are read, so the width of a name is an estimate.
            x += 22 + key.name.chars().count() as i32 * 6 + 24;
        }
        Ok(())
    }

    fn draw_panel<B>(&self, area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<(), Failed>
    where
        B: DrawingBackend<ErrorType: 'static>,
    {
        let (x, y) = (&panel.x, &panel.y);
        let (title, plot) = area.split_vertically(26 * FINE);
        let place = ((LEFT * FINE) as i32, (14 * FINE) as i32);
        let style = font(13).pos(Pos::new(HPos::Left, VPos::Center));
        title.draw(&Text::new(panel.title.as_str(), place, style))?;
        let mut chart = ChartBuilder::on(&plot)
            .margin_top(5 * FINE)
            .margin_left(6 * FINE)
            .margin_bottom(8 * FINE)
            .margin_right(14 * FINE)
            .x_label_area_size(34 * FINE)
            .y_label_area_size((LEFT - 6) * FINE)
            .build_cartesian_2d(x.clone(), y.clone())?;
        if let Some((from, to)) = panel.down {
            let corners = [(from, y.ends.0), (to, y.ends.1)];
            chart.draw_series([Rectangle::new(corners, DOWN.filled())])?;
        }
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(BLACK.mix(0.12).stroke_width(FINE))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.5).stroke_width(FINE))
            .set_all_tick_mark_size(4 * FINE)
            .label_style(font(11))
            .axis_desc_style(font(11))
            .x_label_formatter(&Axis::label)
            .y_label_formatter(&Axis::label)
            .x_desc(x.name)
            .y_desc(y.name)
            .draw()?;
        for (key, points) in &panel.series {
            let points = points.clone();
            match self.legend[*key].mark {
                Mark::Area(colour) => {
                    chart.draw_series([Polygon::new(points, colour.filled())])?;
                }
                Mark::Line(colour) => {
                    chart.draw_series([PathElement::new(points, stroke(colour))])?;
                }
                Mark::Dots(colour) => {
                    let dots = points
                        .into_iter()
                        .map(|at| Circle::new(at, DOT, colour.stroke_width(2)));
                    chart.draw_series(dots)?;
                }
                Mark::Down => {}
            }
        }
        Ok(())
    }
}

fn font(size: u32) -> TextStyle<'static> {
    (FONT, size * FINE).into_font().color(&BLACK)
}

fn stroke(colour: RGBColor) -> ShapeStyle {
    colour.stroke_width(2 * FINE)
}
