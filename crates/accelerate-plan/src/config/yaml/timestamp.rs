//! Which unquoted scalars YAML 1.1 takes for a date, with or without a time.

/// Whether a text is a date, or a date with a time.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut rest = Cursor(text.as_bytes());
    if !(rest.digits(4, 4) && rest.one(b"-")) {
        return false;
    }
    let Cursor(after_year) = rest;
    if rest.digits(2, 2) && rest.one(b"-") && rest.digits(2, 2) && rest.0.is_empty() {
        return true;
    }
    rest = Cursor(after_year);
    rest.digits(1, 2)
        && rest.one(b"-")
        && rest.digits(1, 2)
        && (rest.one(b"Tt") || rest.blanks() > 0)
        && rest.digits(1, 2)
        && rest.one(b":")
        && rest.digits(2, 2)
        && rest.one(b":")
        && rest.digits(2, 2)
        && rest.fraction_and_zone()
}

/// What is left of a text that is matched from its front.
#[derive(Clone, Copy)]
struct Cursor<'text>(&'text [u8]);

impl Cursor<'_> {
    /// Takes from `least` to `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> bool {
        let count = self
            .0
            .iter()
            .take(most)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.0 = &self.0[count..];
        count >= least
    }

    /// Takes one of the given bytes.
    fn one(&mut self, allowed: &[u8]) -> bool {
        match self.0 {
            [first, rest @ ..] if allowed.contains(first) => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes all spaces and tabs; how many there were.
    fn blanks(&mut self) -> usize {
        let mut count = 0;
        while self.one(b" \t") {
            count += 1;
        }
        count
    }

    /// Takes the end of a time: a fraction of a second and a time zone, each of which may be absent.
    fn fraction_and_zone(mut self) -> bool {
        if self.one(b".") {
            self.digits(0, usize::MAX);
        }
        if self.0.is_empty() {
            return true;
        }
        self.blanks();
        if self.one(b"Z") {
            return self.0.is_empty();
        }
        if !(self.one(b"+-") && self.digits(1, 2)) {
            return false;
        }
        self.0.is_empty() || (self.one(b":") && self.digits(2, 2) && self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_known_so_that_they_can_be_quoted() {
        for text in [
            "2001-12-14",
            "2001-12-14t21:59:43.10-05:00",
            "2001-1-1 2:59:43 Z",
            "2001-12-15 2:59:43.",
            "2001-12-14T21:59:43+5",
        ] {
            assert!(is_timestamp(text), "{text}");
        }
        for text in [
            "2001-1-1",
            "2001-12-14T21:59",
            "20011-12-14",
            "2001-12-14 21:59:43 ",
            "2001-12-14T21:59:43+5:0",
        ] {
            assert!(!is_timestamp(text), "{text}");
        }
    }
}
