//! Lines as SVG, drawn by the plotters library.

use super::Outcome;
use plotters::prelude::*;

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over a number.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) across: &'static str,
    pub(crate) lines: Vec<Series>,
}

/// Colours that colour-blind readers can distinguish (M. Okabe, K. Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
const SIZE: (u32, u32) = (620, 340);
const GRID: RGBColor = RGBColor(225, 228, 232);

fn colour(nth: usize) -> RGBColor {
    COLOURS[nth % COLOURS.len()]
}

impl Plot {
    /// Its lines, and their names in their colours, as parts of a page.
    pub(crate) fn drawn(&self) -> Outcome<String> {
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())
            .map_err(|error| format!("a plot could not be drawn: {error}"))?;
        Ok(self.legend() + &svg[svg.find("<svg").unwrap_or(0)..])
    }

    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1e-9, f64::max);
        let (x, y) = (most(&mut points().map(|point| point.0)), most(&mut points().map(|point| point.1)));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..x, 0.0..y * 1.08)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(WHITE.mix(0.0)).bold_line_style(GRID).axis_style(GRID);
        mesh.x_desc(self.across).x_labels(8).y_labels(6).draw()?;
        for (nth, line) in self.lines.iter().enumerate() {
            let style = colour(nth).stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        }
        Ok(area.present()?)
    }

    fn legend(&self) -> String {
        let entry = |(nth, line): (usize, &Series)| {
            let RGBColor(r, g, b) = colour(nth);
            format!("<span style=\"color: rgb({r}, {g}, {b})\">&#9632;</span> {}", line.name)
        };
        let entries: Vec<String> = self.lines.iter().enumerate().map(entry).collect();
        format!("<div>{}</div>\n", entries.join(" &#160; "))
    }
}
