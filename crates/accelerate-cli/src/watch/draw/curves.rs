//! The curves, side by side and one below the other, as the screen has room.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    symbols::Marker,
    text::Line,
    widgets::{Axis, Chart, Dataset, GraphType, Paragraph},
};

use super::{Shown, words};
use crate::{plain_text, watch::snapshot::CurveView};

/// Smaller charts tell nothing.
const LOWEST: u16 = 7;
const NARROWEST: u16 = 38;

/// Draws what there is room for; returns how many charts that is.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>, area: Rect) -> usize {
    let columns = (area.width / NARROWEST).clamp(1, 4);
    let rows = (area.height / (2 * LOWEST)).max(u16::from(area.height >= LOWEST));
    let room = usize::from(columns * rows);
    if room == 0 {
        frame.render_widget(Paragraph::new(values(shown)), area);
        return 1;
    }
    if shown.snapshot.curves.is_empty() {
        let text = match shown.snapshot.name.is_empty() {
            true => "a run appears here once the program logs with the tracker `local`",
            false => "no numbers yet",
        };
        frame.render_widget(Paragraph::new(text).style(shown.quiet()), area);
        return room;
    }
    let needed = shown.snapshot.curves.len().div_ceil(usize::from(columns));
    let rows = usize::from(rows).min(needed);
    let places = Layout::vertical(vec![Constraint::Fill(1); rows]).split(area);
    let cells = places.iter().flat_map(|row| {
        let cells = Layout::horizontal(vec![Constraint::Fill(1); usize::from(columns)]);
        cells.split(*row).to_vec()
    });
    let all = shown.snapshot.latest.len();
    for (at, (curve, cell)) in shown.snapshot.curves.iter().zip(cells).enumerate() {
        let place = (all > room).then(|| format!(" {} of {all}", shown.first_curve + at + 1));
        chart(frame, shown, curve, place.unwrap_or_default(), cell);
    }
    room
}

/// The last values in a few lines, where there is no room for a chart.
fn values(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let latest = shown.snapshot.latest.iter();
    latest
        .map(|(name, value)| {
            let text = format!("{name} {}", words::number(*value));
            Line::raw(plain_text::line(&text))
        })
        .collect()
}

fn chart(frame: &mut Frame<'_>, shown: &Shown<'_>, curve: &CurveView, place: String, area: Rect) {
    let last = curve.last.map_or_else(String::new, words::number);
    let name = plain_text::line(&curve.name);
    let block = shown.part(format!(" {name} {last}{place} "));
    let [left, right] = bounds(curve.points.iter().map(|(x, _)| *x));
    let [bottom, top] = bounds(curve.points.iter().map(|(_, y)| *y));
    let marker = match shown.abilities.braille {
        true => Marker::Braille,
        false => Marker::Dot,
    };
    let graph = match curve.points.len() {
        0 | 1 => GraphType::Scatter,
        _ => GraphType::Line,
    };
    let line = Dataset::default()
        .marker(marker)
        .graph_type(graph)
        .style(shown.style(Color::Cyan))
        .data(&curve.points);
    let axis = |low, high| {
        let labels = [words::number(low), words::number(high)];
        Axis::default()
            .bounds([low, high])
            .labels(labels)
            .style(shown.quiet())
    };
    let steps = Axis::default()
        .bounds([left, right])
        .labels([format!("{left:.0}"), format!("{right:.0}")])
        .style(shown.quiet());
    let chart = Chart::new(vec![line])
        .block(block)
        .x_axis(steps)
        .y_axis(axis(bottom, top));
    frame.render_widget(chart, area);
}

/// The least and the greatest, with something between them.
fn bounds(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return [0.0, 1.0];
    }
    match high > low {
        true => [low, high],
        false => {
            let room = (low.abs() / 10.0).max(0.5);
            [low - room, high + room]
        }
    }
}
