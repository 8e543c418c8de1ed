//! The data: real lines of movie reviews with ratings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A line of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snippet {
    /// What it says.
    pub(crate) text: String,
    /// Whether people rated it above zero.
    pub(crate) positive: bool,
}

/// Why the data cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// The file cannot be read.
    #[error("cannot read the snippets `{}`; `cargo xtask setup` fetches them", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is not of the form that is needed.
    #[error("`{}` line {line}: expected an id, a rating and a text divided by tabs, found `{found}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it says.
        found: String,
    },
    /// Nothing is left to train on.
    #[error("`{}` holds {found} snippets, of which {held_out} are to be held out; nothing is left to train on", path.display())]
    TooFew {
        /// The file.
        path: PathBuf,
        /// How many there are.
        found: usize,
        /// How many were asked for.
        held_out: usize,
    },
}

/// Reads all snippets and holds some out, evenly spread over the file, which is sorted by
/// label: training part, held-out part.
pub(crate) fn read(
    path: &Path,
    held_out: usize,
) -> Result<(Vec<Snippet>, Vec<Snippet>), DataError> {
    let text = fs::read_to_string(path).map_err(|source| DataError::Read {
        path: path.to_owned(),
        source,
    })?;
    let snippets = text
        .lines()
        .enumerate()
        .map(|(index, line)| {
            parse(line).ok_or_else(|| DataError::Line {
                path: path.to_owned(),
                line: index + 1,
                found: line.to_owned(),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let found = snippets.len();
    if found <= held_out {
        return Err(DataError::TooFew {
            path: path.to_owned(),
            found,
            held_out,
        });
    }
    // Number `k` of the held-out ones stands at `k * found / held_out`.
    let is_held_out = |index: usize| {
        let next = (index * held_out).div_ceil(found);
        next < held_out && next * found / held_out == index
    };
    let (mut training, mut evaluation) = (Vec::new(), Vec::new());
    for (index, snippet) in snippets.into_iter().enumerate() {
        if is_held_out(index) {
            &mut evaluation
        } else {
            &mut training
        }
        .push(snippet);
    }
    Ok((training, evaluation))
}

fn parse(line: &str) -> Option<Snippet> {
    let mut fields = line.splitn(3, '\t').skip(1);
    let rating = fields
        .next()?
        .trim()
        .parse()
        .ok()
        .filter(|rating: &f64| rating.is_finite())?;
    let text = fields.next()?.to_owned();
    Some(Snippet {
        text,
        positive: rating > 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn ratings_become_labels_and_lines_are_held_out() {
        let file = file("1\t0\tneither\r\n2\t-0.5\tso so\r\n3\t2.25\ta joy\twith a tab");
        let (training, held_out) = read(file.path(), 1).unwrap();
        assert_eq!(
            training[1],
            Snippet {
                text: "a joy\twith a tab".into(),
                positive: true
            }
        );
        assert!(!training[0].positive);
        assert_eq!(
            held_out,
            [Snippet {
                text: "neither".into(),
                positive: false
            }]
        );
    }

    #[test]
    fn held_out_lines_are_spread_evenly_and_nothing_is_lost() {
        let lines: Vec<String> = (0..23).map(|i| format!("{i}\t1\t{i}")).collect();
        let file = file(&lines.join("\n"));
        for held_out in [0, 1, 5, 7, 22] {
            let (training, evaluation) = read(file.path(), held_out).unwrap();
            assert_eq!(
                (training.len(), evaluation.len()),
                (23 - held_out, held_out)
            );
            let numbers: Vec<usize> = evaluation.iter().map(|s| s.text.parse().unwrap()).collect();
            let expected: Vec<usize> = (0..held_out).map(|k| k * 23 / held_out).collect();
            assert_eq!(numbers, expected);
        }
    }

    #[test]
    fn bad_data_is_named() {
        let broken = file("1\t2\tgood\nno tabs");
        let error = read(broken.path(), 0).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && error.contains("`no tabs`"),
            "{error}"
        );
        let no_number = read(file("1\tnan\tgood").path(), 0);
        assert!(matches!(no_number, Err(DataError::Line { line: 1, .. })));
        for (content, held_out) in [("", 0), ("1\t2\tgood", 1), ("1\t2\tgood", 7)] {
            let error = read(file(content).path(), held_out).unwrap_err();
            assert!(matches!(error, DataError::TooFew { .. }), "{error}");
        }
        assert!(matches!(
            read(Path::new("/nowhere"), 0),
            Err(DataError::Read { .. })
        ));
    }
}
