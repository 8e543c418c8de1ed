//! What stands on the screen: the run, its curves, its ranks, what was said, and the keys.
//!
//! Nothing is told by colour alone.

mod curves;
mod ranks;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph},
};

use super::{
    Abilities,
    snapshot::{Snapshot, State},
    words,
};
use crate::plain_text;

/// Lines of output that are always shown, where there is output.
const OUTPUT: u16 = 6;
/// Warnings that are shown.
const NOTICES: u16 = 3;

/// What is shown.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) abilities: Abilities,
    pub(super) first_rank: usize,
    pub(super) first_curve: usize,
    pub(super) keys: &'static str,
    pub(super) output: Option<Vec<String>>,
}

impl Shown<'_> {
    /// A colour, where there may be one.
    fn style(&self, colour: Color) -> Style {
        match self.abilities.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A part of the screen with a name.
    fn part(&self, name: String) -> Block<'static> {
        Block::new()
            .borders(Borders::TOP)
            .border_style(self.quiet())
            .title(Span::styled(
                name,
                Style::new().add_modifier(Modifier::BOLD),
            ))
    }
}

/// Draws everything; returns how many curves the screen has room for.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) -> usize {
    let snapshot = shown.snapshot;
    let height = frame.area().height;
    let notices = heading_and(snapshot.notices.len().min(usize::from(NOTICES)));
    let output = match shown.output {
        Some(_) => OUTPUT.min(height / 4),
        None => 0,
    };
    // The ranks get no more than a third, so that curves stay.
    let ranks = heading_and(snapshot.ranks.len() + usize::from(!snapshot.ranks.is_empty()) * 2);
    let [head, curves, ranks, notices, output, foot] = Layout::vertical([
        Constraint::Length(2 + u16::from(snapshot.problem.is_some())),
        Constraint::Min(0),
        Constraint::Length(ranks.min((height / 3).max(5))),
        Constraint::Length(notices),
        Constraint::Length(output),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(shown, head.width)), head);
    let room = curves::draw(frame, shown, curves);
    ranks::draw(frame, shown, ranks);
    draw_lines(frame, shown, notices, " Warnings ", &snapshot.notices);
    if let Some(lines) = &shown.output {
        draw_lines(frame, shown, output, " Output ", lines);
    }
    let keys = format!("{}   Left/Right curves   Up/Down ranks", shown.keys);
    frame.render_widget(Paragraph::new(keys).style(shown.quiet()), foot);
    room
}

/// The height of a part with so many lines; nothing if there are none.
fn heading_and(lines: usize) -> u16 {
    match lines {
        0 => 0,
        lines => u16::try_from(lines + 1).unwrap_or(u16::MAX),
    }
}

fn header(shown: &Shown<'_>, width: u16) -> Vec<Line<'static>> {
    let snapshot = shown.snapshot;
    let colour = match snapshot.state {
        State::Running => Color::Green,
        State::Failed(_) | State::Crashed => Color::Red,
        _ => Color::Reset,
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut first = vec![Span::styled(plain_text::line(&snapshot.name), bold)];
    if !snapshot.name.is_empty() {
        first.push(Span::raw("  "));
    }
    let state = plain_text::line(&snapshot.state.words());
    first.push(Span::styled(state, shown.style(colour)));
    if let Some(elapsed) = snapshot.elapsed {
        first.push(Span::raw(format!("  {}", words::duration(elapsed))));
    }
    let mut lines = vec![Line::from(first), Line::from(progress(snapshot, width))];
    if let Some(problem) = &snapshot.problem {
        let text = plain_text::line(&format!("note: {problem}"));
        lines.push(Line::styled(text, shown.style(Color::Yellow)));
    }
    lines
}

/// How far the run has come, with a bar where it says how far it will go.
fn progress(snapshot: &Snapshot, width: u16) -> String {
    let Some(step) = snapshot.step else {
        return "no steps yet".to_owned();
    };
    let Some(total) = snapshot.total_steps else {
        return format!("step {step}");
    };
    let share = (step as f64 / total as f64).clamp(0.0, 1.0);
    let mut text = format!("step {step} of {total}  {:3.0}% ", 100.0 * share);
    if snapshot.state == State::Running
        && share > 0.0
        && let Some(elapsed) = snapshot.elapsed
    {
        let left = elapsed.mul_f64((1.0 - share) / share);
        text += &format!(" about {} left ", words::duration(left));
    }
    let bar = usize::from(width)
        .saturating_sub(text.chars().count() + 1)
        .min(40);
    let done = (share * bar as f64).round() as usize;
    text + &"█".repeat(done) + &"░".repeat(bar.saturating_sub(done))
}

/// The last of the lines that the place has room for.
fn draw_lines(frame: &mut Frame<'_>, shown: &Shown<'_>, area: Rect, name: &str, lines: &[String]) {
    let block = shown.part(name.to_owned());
    let room = usize::from(block.inner(area).height);
    let hidden = lines.len().saturating_sub(room);
    let text: Vec<Line<'_>> = lines
        .iter()
        .skip(hidden)
        .map(|line| Line::raw(plain_text::line(line)))
        .collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

#[cfg(test)]
mod tests;
