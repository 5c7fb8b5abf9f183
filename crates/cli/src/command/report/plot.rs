//! Plots as SVG, drawn by the plotters library.

use std::fmt::Display;

use plotters::coord::{Shift, ranged1d::AsRangedCoord, ranged1d::ValueFormatter};
use plotters::prelude::*;

use super::text::{escaped, nanoseconds, tick};

/// Why a plot could not be drawn.
#[derive(Debug)]
pub(super) struct PlotError(String);

impl Display for PlotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a plot could not be drawn: {}", self.0)
    }
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Colours that colour-blind readers can distinguish (M. Okabe, K. Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
const WIDTH: u32 = 620;
const HEIGHT: u32 = 340;
/// Lines with at most this many points show each point.
const DOTTED: usize = 12;
const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);

fn colour(nth: usize) -> RGBColor {
    COLOURS[nth % COLOURS.len()]
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", f64::from(size)).into_font().color(&INK)
}

/// A line of a plot.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// How the values of a plot are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0.
    Linear,
    /// Nanoseconds; equal distances are equal ratios.
    LogNs,
}

/// Lines over time or another number. `names`: labels of the whole numbers on the horizontal axis.
pub(super) fn lines(
    series: &[Series],
    across: &str,
    scale: Scale,
    names: Option<&[&str]>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let (x_end, least, most) = extent(series);
        let x = 0.0..names.map_or(x_end, |names| names.len() as f64 - 1.0);
        match scale {
            Scale::Linear => draw(&area, series, across, x, 0.0..most * 1.08, &tick, names)?,
            Scale::LogNs => {
                let (least, most) = (least.max(1.0) / 1.3, most.max(2.0) * 1.3);
                // Labels are at powers of the base; below two decades, base 10 has at most one.
                let base = if most / least < 100.0 { 2.0 } else { 10.0 };
                draw(&area, series, across, x, (least..most).log_scale().base(base), &nanoseconds, names)?;
            }
        }
        area.present()?;
    }
    Ok(legend(series) + &finished(&svg))
}

/// The colours of the lines, outside the plot so that it hides none.
fn legend(series: &[Series]) -> String {
    let entry = |(nth, series): (usize, &Series)| {
        let RGBColor(r, g, b) = colour(nth);
        format!("<span style=\"color: rgb({r}, {g}, {b})\">&#9632;</span> {}", escaped(&series.name))
    };
    let entries: Vec<String> = series.iter().enumerate().map(entry).collect();
    format!("<div class=\"legend\">{}</div>\n", entries.join(" &#160; "))
}

/// The largest x, the least and the largest y. The extent is never empty.
fn extent(series: &[Series]) -> (f64, f64, f64) {
    let points = || series.iter().flat_map(|series| &series.points);
    let most = |figures: &mut dyn Iterator<Item = f64>| figures.fold(f64::MIN_POSITIVE, f64::max);
    let least = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let x = most(&mut points().map(|p| p.0));
    (if x > 1e-9 { x } else { 1.0 }, least, most(&mut points().map(|p| p.1)).max(1e-9))
}

fn draw<Y>(
    area: &Area<'_>,
    series: &[Series],
    across: &str,
    x: std::ops::Range<f64>,
    y: Y,
    y_label: &dyn Fn(f64) -> String,
    names: Option<&[&str]>,
) -> Result<(), PlotError>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let x_label = |at: &f64| match names {
        Some(names) => names.get(at.round() as usize).copied().unwrap_or("").to_owned(),
        None => tick(*at),
    };
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(font(12))
        .axis_desc_style(font(13))
        .x_desc(across)
        .x_labels(names.map_or(8, <[_]>::len))
        .y_labels(6)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|y| y_label(*y))
        .draw()?;
    for (nth, series) in series.iter().enumerate() {
        let style = colour(nth).stroke_width(2);
        chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
        if series.points.len() <= DOTTED {
            let dots = series.points.iter().map(|&point| Circle::new(point, 3, colour(nth).filled()));
            chart.draw_series(dots)?;
        }
    }
    Ok(())
}

/// One bar of a group.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) figure: f64,
    /// The column that it belongs to; determines its colour.
    pub(super) side: usize,
}

/// Groups of bars below each other, each with its name above it.
pub(super) fn bars(groups: &[(String, Vec<Bar>)]) -> Result<String, PlotError> {
    const LEFT: i32 = 96;
    const RIGHT: i32 = 70;
    const BAR: i32 = 15;
    const NAME: i32 = 20;
    let rows: usize = groups.iter().map(|group| group.1.len()).sum();
    let height = (rows as i32 * BAR + groups.len() as i32 * (NAME + 8) + 12).max(40) as u32;
    let most = groups.iter().flat_map(|group| &group.1).map(|bar| bar.figure).fold(1e-12, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut y = 6;
        for (name, bars) in groups {
            area.draw(&Text::new(name.clone(), (8, y + 3), font(13)))?;
            y += NAME;
            for bar in bars {
                let width = (f64::from(WIDTH as i32 - LEFT - RIGHT) * bar.figure.max(0.0) / most).max(1.0);
                let right = LEFT + width as i32;
                area.draw(&Text::new(bar.name.clone(), (16, y + 2), font(11)))?;
                area.draw(&Rectangle::new([(LEFT, y + 1), (right, y + BAR - 2)], colour(bar.side).filled()))?;
                area.draw(&Text::new(super::text::figure(bar.figure), (right + 6, y + 2), font(11)))?;
                y += BAR;
            }
            y += 8;
        }
        area.present()?;
    }
    Ok(finished(&svg))
}

/// An SVG as a part of a page, where it needs no namespace; so the page contains no URL.
fn finished(svg: &str) -> String {
    let start = svg.find("<svg").unwrap_or(0);
    svg[start..].replace(" xmlns=\"http://www.w3.org/2000/svg\"", " role=\"img\"")
}

/// A plot in a frame, with a caption that screen readers announce.
pub(super) fn figure(caption: &str, svg: &str) -> String {
    let caption = escaped(caption);
    format!("<figure aria-label=\"{caption}\">\n<figcaption>{caption}</figcaption>\n{svg}</figure>\n")
}
