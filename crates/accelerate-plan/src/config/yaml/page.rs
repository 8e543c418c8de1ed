//! The page that a writer fills: where the pen is, and where lines begin.

/// Text so far, and what the next mark depends on.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    /// Characters in the current line.
    column: usize,
    /// Whether the next mark needs no space in front.
    spaced: bool,
    /// Whether the current line holds nothing but indentation and the marks `-`, `?` and `:` that
    /// open a level.
    opening: bool,
    /// Whether the text ends in a scalar that nothing closes.
    open_ended: bool,
}

impl Page {
    pub(super) const fn new() -> Self {
        Self {
            text: String::new(),
            column: 0,
            spaced: true,
            opening: true,
            open_ended: false,
        }
    }

    /// Whether what comes next stands on the same line as the mark that opened its level.
    pub(super) const fn is_opening(&self) -> bool {
        self.opening
    }

    /// How many characters the current line has.
    pub(super) const fn column(&self) -> usize {
        self.column
    }

    /// Writes a mark of the grammar, with a space in front if there is none.
    pub(super) fn mark(&mut self, mark: &str) {
        if !self.spaced {
            self.put(" ");
        }
        self.closing_mark(mark);
    }

    /// Writes a mark that opens a level, so that the level may begin on this line.
    pub(super) fn opening_mark(&mut self, mark: &str) {
        let opening = self.opening;
        self.mark(mark);
        self.opening = opening;
    }

    /// Writes a mark of the grammar right behind what is there.
    pub(super) fn closing_mark(&mut self, mark: &str) {
        self.put(mark);
        self.spaced = false;
        self.opening = false;
        self.open_ended = false;
    }

    /// Gets ready for a scalar without quotes. `root` says that it is the whole document.
    pub(super) fn begin_plain(&mut self, root: bool) {
        self.open_ended |= root;
        if !self.spaced {
            self.put(" ");
        }
        self.resume();
    }

    /// Makes sure that the pen stands at `indent` with nothing but indentation before it.
    pub(super) fn begin_line(&mut self, indent: usize) {
        let passed = self.column > indent || (self.column == indent && !self.spaced);
        if !self.opening || passed {
            self.break_line();
        }
        if self.column < indent {
            self.spaced = true;
            let missing = indent - self.column;
            self.text.extend(std::iter::repeat_n(' ', missing));
            self.column = indent;
        }
    }

    /// Says that the line goes on with text, not with a mark.
    pub(super) const fn resume(&mut self) {
        self.spaced = false;
        self.opening = false;
    }

    /// Begins a new line.
    pub(super) fn break_line(&mut self) {
        self.text.push('\n');
        self.column = 0;
        self.spaced = true;
        self.opening = true;
    }

    /// Writes characters that hold no line break.
    pub(super) fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += text.chars().count();
    }

    /// Ends the document. One that nothing closes is closed by dots.
    pub(super) fn end(mut self) -> String {
        self.begin_line(0);
        if self.open_ended {
            self.mark("...");
            self.begin_line(0);
        }
        self.text
    }
}
