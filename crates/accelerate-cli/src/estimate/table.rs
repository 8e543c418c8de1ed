//! Tables of box characters, to the letter as the original draws them.

/// How the last column makes room for a long title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TitleFit {
    /// By what the title needs.
    Exact,
    /// By twice the difference, also where the title is shorter than the row.
    AsOriginal,
}

/// A table with a title over it.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    pub(crate) title: String,
    pub(crate) fit: TitleFit,
    pub(crate) headers: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// The table as lines, without a line end behind the last one.
    pub(crate) fn draw(&self) -> String {
        let widths = self.widths();
        let inner = widths.iter().sum::<usize>() + N.saturating_sub(1);
        let rule = |left: char, middle: &str, right: char| {
            let parts: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
            format!("{left}{}{right}", parts.join(middle))
        };
        let line = |cells: &[&str; N]| {
            let parts: Vec<String> = cells
                .iter()
                .zip(widths)
                .map(|(c, w)| center(c, w))
                .collect();
            format!("│{}│", parts.join("│"))
        };
        let mut lines = vec![
            rule('┌', "─", '┐'),
            format!("│{}│", center(&self.title, inner)),
            rule('├', "┬", '┤'),
            line(&self.headers),
            rule('├', "┼", '┤'),
        ];
        let rows = self.rows.iter();
        lines.extend(rows.map(|row| line(&row.each_ref().map(String::as_str))));
        lines.push(rule('└', "┴", '┘'));
        lines.join("\n")
    }

    /// Each column is as wide as its longest text; the last one makes room for a long title.
    fn widths(&self) -> [usize; N] {
        let mut widths = self.headers.map(width);
        for row in &self.rows {
            for (longest, text) in widths.iter_mut().zip(row) {
                *longest = (*longest).max(width(text));
            }
        }
        let sum: usize = widths.iter().sum();
        let title = width(&self.title);
        if let Some(last) = widths.last_mut() {
            *last += match self.fit {
                TitleFit::Exact => title.saturating_sub(sum + N - 1),
                // The whole row is measured, borders included.
                TitleFit::AsOriginal if title > sum => 2 * title.abs_diff(sum + N + 1),
                TitleFit::AsOriginal => 0,
            };
        }
        widths
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Python's `str.center`: the odd space goes to the left where the field is odd as well.
fn center(text: &str, field: usize) -> String {
    let space = field.saturating_sub(width(text));
    let left = space / 2 + (space & field & 1);
    format!("{}{text}{}", " ".repeat(left), " ".repeat(space - left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(title: &str, row: [&str; 4]) -> String {
        let headers = [
            "dtype",
            "Largest Layer",
            "Total Size",
            "Training using Adam",
        ];
        let rows = vec![row.map(str::to_owned)];
        let title = title.to_owned();
        Table {
            title,
            fit: TitleFit::AsOriginal,
            headers,
            rows,
        }
        .draw()
    }

    #[test]
    fn a_long_title_widens_the_last_column() {
        let drawn = table(
            "Memory Usage for loading `timm/resnet50.a1_in1k`",
            ["float32", "9.0 MB", "97.7 MB", "390.78 MB"],
        );
        let expected = "\
┌────────────────────────────────────────────────────┐
│  Memory Usage for loading `timm/resnet50.a1_in1k`  │
├───────┬─────────────┬──────────┬───────────────────┤
│ dtype │Largest Layer│Total Size│Training using Adam│
├───────┼─────────────┼──────────┼───────────────────┤
│float32│    9.0 MB   │ 97.7 MB  │     390.78 MB     │
└───────┴─────────────┴──────────┴───────────────────┘";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn the_original_draws_the_same_around_the_limit() {
        let recorded = include_str!("../../tests/fixtures/tables.json");
        let cases: Vec<(String, String)> = serde_json::from_str(recorded).unwrap();
        assert!(cases.len() > 20);
        for (title, drawn) in cases {
            let row = ["float32", "86.47 MB", "413.18 MB", "1.61 GB"];
            assert_eq!(table(&title, row), drawn, "{title}");
        }
    }

    #[test]
    fn other_tables_are_no_wider_than_needed() {
        let drawn = |title: &str| {
            let table = Table {
                title: title.to_owned(),
                fit: TitleFit::Exact,
                headers: ["a", "b"],
                rows: vec![["1".to_owned(), "22".to_owned()]],
            };
            table.draw()
        };
        assert_eq!(drawn("long title").lines().nth(1), Some("│long title│"));
        assert_eq!(drawn("t").lines().nth(2), Some("├─┬──┤"));
    }

    #[test]
    fn centers_as_python_does() {
        assert_eq!(center("ab", 5), "  ab ");
        assert_eq!(center("a", 4), " a  ");
        assert_eq!(center("abc", 2), "abc");
        assert_eq!(center("é", 3), " é ");
    }
}
