//! The numbers that the ranks of one side wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

/// What one side measured in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Numbers {
    /// In seconds or bytes; of several ranks the greatest.
    measures: BTreeMap<String, f64>,
    /// What came out of the work.
    checks: BTreeMap<String, f64>,
}

impl Numbers {
    #[cfg(test)]
    pub(super) fn of(measures: &[(&str, f64)]) -> Self {
        let measures = measures.iter();
        Self {
            measures: measures
                .map(|(name, number)| ((*name).to_owned(), *number))
                .collect(),
            checks: BTreeMap::new(),
        }
    }

    /// Adds what one rank wrote.
    pub(super) fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::because(format!("no numbers in `{}`", path.display()), error)
        })?;
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::because(format!("`{}` holds no JSON", path.display()), error)
        })?;
        for (list, name) in [
            (&mut self.measures, "measures"),
            (&mut self.checks, "checks"),
        ] {
            let found = value[name].as_object().ok_or_else(|| lacks(path, name))?;
            for (name, number) in found {
                let number = number.as_f64().ok_or_else(|| lacks(path, name))?;
                let greatest = list.entry(name.clone()).or_insert(number);
                *greatest = greatest.max(number);
            }
        }
        Ok(())
    }

    /// Numbers of different work must not be compared.
    pub(super) fn did_the_work_of(&self, other: &Self) -> Result<(), Failure> {
        if self.checks == other.checks && !self.checks.is_empty() {
            return Ok(());
        }
        Err(Failure::because(
            "the two sides did not do the same work",
            format!(
                "ours: {:?}, the original's: {:?}",
                self.checks, other.checks
            ),
        ))
    }

    pub(super) fn get(&self, name: &str) -> Result<f64, Failure> {
        self.measures
            .get(name)
            .copied()
            .ok_or_else(|| Failure::new(format!("nobody measured `{name}`")))
    }
}

fn lacks(path: &Path, name: &str) -> Failure {
    Failure::new(format!("`{}` lacks the number `{name}`", path.display()))
        .hint("each rank writes objects `measures` and `checks` of numbers there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Numbers {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        fs::write(&path, text).unwrap();
        let mut numbers = Numbers::default();
        numbers.read(&path).unwrap();
        numbers
    }

    #[test]
    fn ranks_count_by_the_greatest_and_work_must_be_equal() {
        let mut one = numbers(r#"{"measures": {"a": 1, "b": 5}, "checks": {"sum": 3}}"#);
        let other = numbers(r#"{"measures": {"a": 2, "b": 4}, "checks": {"sum": 3}}"#);
        one.did_the_work_of(&other).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        fs::write(
            &path,
            r#"{"measures": {"a": 2, "b": 4}, "checks": {"sum": 4}}"#,
        )
        .unwrap();
        one.read(&path).unwrap();
        assert_eq!((one.get("a").unwrap(), one.get("b").unwrap()), (2.0, 5.0));
        assert!(one.did_the_work_of(&other).is_err());
        assert!(one.get("c").unwrap_err().render().contains("`c`"));
        assert!(
            Numbers::default()
                .did_the_work_of(&Numbers::default())
                .is_err()
        );
    }

    #[test]
    fn a_file_without_numbers_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        let mut numbers = Numbers::default();
        assert!(numbers.read(&path).is_err());
        for (text, word) in [
            ("{", "no JSON"),
            ("{}", "`measures`"),
            (r#"{"measures": {"a": "x"}, "checks": {}}"#, "`a`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = numbers.read(&path).unwrap_err().render();
            assert!(error.contains(word), "{error}");
        }
    }
}
