//! The ranks: how far each is, where the time of its steps goes, and whether others wait for it.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table},
};

use super::{Shown, words};
use crate::{
    plain_text,
    watch::snapshot::{RankView, Split},
};

/// A sign and a colour for each part of a step, in their order.
const PARTS: [(&str, Color); 4] = [
    ("░", Color::Yellow),
    ("█", Color::Blue),
    ("▒", Color::Magenta),
    ("·", Color::Gray),
];
const HEAD: [&str; 9] = [
    "rank",
    "step",
    "a step",
    "",
    "samples/s",
    "tokens/s",
    "memory",
    "norm",
    "",
];

/// Draws as many ranks as there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>, area: Rect) {
    let ranks = &shown.snapshot.ranks;
    if ranks.is_empty() || area.height < 2 {
        return;
    }
    let late: Vec<_> = ranks
        .iter()
        .filter(|rank| rank.is_straggler)
        .map(|rank| rank.rank.to_string())
        .collect();
    let title = match late.as_slice() {
        [] => format!(" {} ranks ", ranks.len()),
        late => format!(" {} ranks, stragglers: {} ", ranks.len(), late.join(", ")),
    };
    let block = shown.part(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [legend, table] = ratatui::layout::Layout::vertical([
        Constraint::Length(u16::from(inner.height > 2)),
        Constraint::Min(0),
    ])
    .areas(inner);
    frame.render_widget(Paragraph::new(explained(shown)), legend);
    let bar = usize::from(inner.width.saturating_sub(78).clamp(8, 40));
    let longest = ranks
        .iter()
        .map(|rank| rank.split.whole())
        .fold(0.0, f64::max);
    let rows = ranks.iter().skip(shown.first_rank);
    let rows = rows.map(|rank| row(shown, rank, bar, longest));
    let widths = [5, 8, 10, u16::try_from(bar).unwrap_or(8), 10, 10, 10, 9];
    let widths = widths.map(Constraint::Length).into_iter();
    let table_widget = Table::new(rows, widths.chain([Constraint::Min(9)]))
        .header(Row::new(HEAD).style(shown.quiet()));
    frame.render_widget(table_widget, table);
}

/// What the signs mean.
fn explained(shown: &Shown<'_>) -> Line<'static> {
    let names = Split::default().parts();
    let parts = names
        .iter()
        .zip(PARTS)
        .flat_map(|((name, _), (sign, colour))| {
            [
                Span::styled(sign, shown.style(colour)),
                Span::raw(format!(" {name}   ")),
            ]
        });
    Line::from(parts.collect::<Vec<_>>())
}

fn row(shown: &Shown<'_>, rank: &RankView, bar: usize, longest: f64) -> Row<'static> {
    let number = |value: Option<f64>| value.map(words::number).unwrap_or_default();
    let word = match (rank.is_straggler, &rank.warning) {
        (true, _) => "STRAGGLER".to_owned(),
        (false, Some(warning)) => plain_text::line(warning),
        (false, None) => String::new(),
    };
    let row = Row::new([
        Line::raw(rank.rank.to_string()),
        Line::raw(rank.step.to_string()),
        Line::raw(words::seconds(rank.split.whole())),
        split(shown, &rank.split, bar, longest),
        Line::raw(number(rank.samples_per_second)),
        Line::raw(number(rank.tokens_per_second)),
        Line::raw(rank.memory.map(words::bytes).unwrap_or_default()),
        Line::raw(number(rank.gradient_norm)),
        Line::raw(word),
    ]);
    match rank.is_straggler {
        true => row.style(Style::new().add_modifier(Modifier::BOLD)),
        false => row,
    }
}

/// The parts of a step as a bar, which is as long as `bar` for the slowest rank.
fn split(shown: &Shown<'_>, split: &Split, bar: usize, longest: f64) -> Line<'static> {
    let share = match longest > 0.0 {
        true => split.whole() / longest,
        false => 0.0,
    };
    let width = (share * bar as f64).round() as usize;
    let shares = split.shares(width).into_iter().zip(PARTS);
    let spans =
        shares.map(|(count, (sign, colour))| Span::styled(sign.repeat(count), shown.style(colour)));
    Line::from(spans.collect::<Vec<_>>())
}
