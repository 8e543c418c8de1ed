//! The view on the whole terminal: looks at the run again and again, and listens to keys.

use std::{
    io,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    Abilities,
    draw::{self, Shown},
    snapshot::Snapshot,
    source::{Page, Source},
    terminal::{Interrupts, Screen},
};

/// How often the run is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long a key is waited for.
const TICK: Duration = Duration::from_millis(100);

/// What goes on beside the view.
pub(crate) trait Beside {
    /// Whether the view is to end.
    fn is_over(&self) -> bool;

    /// What the keys that end something do.
    fn keys(&self) -> &'static str;

    /// The last lines of output, at most so many; `None` where there is none to be shown.
    fn output(&self, lines: usize) -> Option<Vec<String>> {
        let _ = lines;
        None
    }
}

/// Shows the run until a key ends the view or what goes on beside it does. The terminal is then as it
/// was before.
///
/// # Errors
/// If the terminal refuses.
pub(crate) fn show(
    source: &mut Source,
    abilities: Abilities,
    interrupts: Interrupts,
    beside: &dyn Beside,
) -> io::Result<()> {
    let mut screen = Screen::open(interrupts)?;
    let mut view = View::default();
    let mut snapshot = source.snapshot(view.page);
    let mut looked = Instant::now();
    while !beside.is_over() {
        screen.terminal.draw(|frame| {
            let shown = Shown {
                snapshot: &snapshot,
                abilities,
                first_rank: view.first_rank,
                first_curve: view.page.first,
                keys: beside.keys(),
                output: beside.output(usize::from(frame.area().height)),
            };
            view.page.count = draw::draw(frame, &shown);
        })?;
        let mut changed = looked.elapsed() >= LOOK;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
        {
            match view.key(key, &snapshot) {
                Pressed::Leave => return Ok(()),
                Pressed::Turn => changed = true,
                Pressed::Nothing => {}
            }
        }
        if changed {
            snapshot = source.snapshot(view.page);
            looked = Instant::now();
        }
    }
    Ok(())
}

/// What of the run is in sight.
#[derive(Debug)]
struct View {
    page: Page,
    first_rank: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            page: Page { first: 0, count: 3 },
            first_rank: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pressed {
    Leave,
    /// Something else is in sight.
    Turn,
    Nothing,
}

impl View {
    fn key(&mut self, key: KeyEvent, snapshot: &Snapshot) -> Pressed {
        if key.kind == KeyEventKind::Release {
            return Pressed::Nothing;
        }
        let last_curve = snapshot.latest.len().saturating_sub(1);
        let last_rank = snapshot.ranks.len().saturating_sub(1);
        let step = self.page.count.max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Pressed::Leave,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Pressed::Leave;
            }
            KeyCode::Right | KeyCode::Tab if self.page.first + step <= last_curve => {
                self.page.first += step;
            }
            KeyCode::Left | KeyCode::BackTab => {
                self.page.first = self.page.first.saturating_sub(step);
            }
            KeyCode::Down => self.first_rank = (self.first_rank + 1).min(last_rank),
            KeyCode::Up => self.first_rank = self.first_rank.saturating_sub(1),
            KeyCode::Home => (self.page.first, self.first_rank) = (0, 0),
            _ => return Pressed::Nothing,
        }
        Pressed::Turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, code: KeyCode) -> Pressed {
        let snapshot = Snapshot {
            latest: (0..5).map(|number| (number.to_string(), 0.0)).collect(),
            ..Snapshot::default()
        };
        view.key(KeyEvent::from(code), &snapshot)
    }

    #[test]
    fn pages_of_curves_end_where_the_curves_do() {
        let mut view = View::default();
        assert_eq!(press(&mut view, KeyCode::Right), Pressed::Turn);
        assert_eq!(view.page.first, 3);
        assert_eq!(press(&mut view, KeyCode::Right), Pressed::Nothing);
        press(&mut view, KeyCode::Left);
        press(&mut view, KeyCode::Left);
        assert_eq!(view.page.first, 0);
    }

    #[test]
    fn q_escape_and_ctrl_c_leave() {
        let mut view = View::default();
        assert_eq!(press(&mut view, KeyCode::Char('q')), Pressed::Leave);
        assert_eq!(press(&mut view, KeyCode::Esc), Pressed::Leave);
        assert_eq!(press(&mut view, KeyCode::Char('c')), Pressed::Nothing);
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(key, &Snapshot::default()), Pressed::Leave);
    }
}
