//! How curves are drawn.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::RGBColor;

use super::{Curves, CurvesError, Line, Panel};

const WIDTH: u32 = 800;
const PANEL_HEIGHT: u32 = 260;
const TITLE_HEIGHT: u32 = 40;
/// Colours that people who see few colours can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// The picture as text of an SVG file.
pub(super) fn draw(curves: &Curves) -> Result<String, CurvesError> {
    let refused = |reason: String| CurvesError::Draw {
        title: curves.title.clone(),
        reason,
    };
    let panels: Vec<&Panel> = curves
        .panels
        .iter()
        .filter(|panel| finite(panel).next().is_some())
        .collect();
    if panels.is_empty() {
        return Err(refused("there is no line with a finite value".to_owned()));
    }
    let mut svg = String::new();
    draw_into(&mut svg, &curves.title, &panels).map_err(|error| refused(error.to_string()))?;
    Ok(svg)
}

type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

fn draw_into(svg: &mut String, title: &str, panels: &[&Panel]) -> Result<(), DrawError> {
    let count = u32::try_from(panels.len()).unwrap_or(u32::MAX);
    let height = TITLE_HEIGHT.saturating_add(PANEL_HEIGHT.saturating_mul(count));
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let body = root.titled(title, ("sans-serif", 22))?;
    for (area, panel) in body.split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(area, panel)?;
    }
    root.present()
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) -> Result<(), DrawError> {
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.name, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(steps(panel), values(panel))?;
    chart
        .configure_mesh()
        .x_desc("step")
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        draw_line(&mut chart, line, *colour)?;
    }
    if panel.lines.len() > 1 {
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Draws each stretch between two gaps; a stretch of one point is a dot.
fn draw_line(chart: &mut Chart<'_, '_>, line: &Line, colour: RGBColor) -> Result<(), DrawError> {
    let mut labelled = false;
    for stretch in line.points.split(|(_, value)| !value.is_finite()) {
        let stretch: Vec<(f64, f64)> = stretch.iter().map(as_point).collect();
        let style = colour.stroke_width(2);
        let drawn = match stretch.as_slice() {
            [] => continue,
            [alone] => chart.draw_series([Circle::new(*alone, 3, colour.filled())])?,
            _ => chart.draw_series(LineSeries::new(stretch, style))?,
        };
        if !labelled {
            let mark = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style);
            drawn.label(&line.name).legend(mark);
            labelled = true;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "step counts are far below 2^52")]
fn as_point(&(step, value): &(u64, f64)) -> (f64, f64) {
    (step as f64, value)
}

fn finite(panel: &Panel) -> impl Iterator<Item = (f64, f64)> {
    let points = panel.lines.iter().flat_map(|line| &line.points);
    points.map(as_point).filter(|(_, value)| value.is_finite())
}

fn steps(panel: &Panel) -> Range<f64> {
    let (low, high) = bounds(finite(panel).map(|(step, _)| step));
    low..high.max(low + 1.0)
}

/// From the lowest to the highest value, with some air around them.
fn values(panel: &Panel) -> Range<f64> {
    let (low, high) = bounds(finite(panel).map(|(_, value)| value));
    let air = match high - low {
        0.0 if low == 0.0 => 1.0,
        0.0 => low.abs() * 0.1,
        spread => spread * 0.05,
    };
    low - air..high + air
}

fn bounds(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
        (low.min(number), high.max(number))
    })
}

/// A number in few characters.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-3..1e5).contains(&size) => format!("{value:.1e}"),
        size if size < 1.0 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}
