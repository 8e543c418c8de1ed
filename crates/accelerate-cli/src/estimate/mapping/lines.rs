//! A device map as a few lines.

use std::fmt;

use accelerate_plan::device_map::Placement;

use super::Mapped;

impl Mapped {
    /// The map as a few lines: a place and the names there, neighbours of a list as a range.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(Placement, Vec<Run>)> = Vec::new();
        for (name, place) in self.device_map.iter() {
            let runs = match lines.iter().position(|(found, _)| *found == place) {
                Some(index) => lines.get_mut(index),
                None => {
                    lines.push((place, Vec::new()));
                    lines.last_mut()
                }
            };
            if let Some((_, runs)) = runs {
                let joined = runs.last_mut().is_some_and(|run| run.take(name));
                if !joined {
                    runs.push(Run::new(name));
                }
            }
        }
        let shown = lines.into_iter().map(|(place, runs)| {
            let runs: Vec<_> = runs.iter().map(Run::to_string).collect();
            format!("{place}: {}", runs.join(", "))
        });
        shown.collect()
    }
}

/// Names that follow one another: `h.0` to `h.7`.
struct Run {
    parent: String,
    first: Option<u64>,
    last: Option<u64>,
    name: String,
}

impl Run {
    fn new(name: &str) -> Self {
        let (parent, last) = name.rsplit_once('.').unwrap_or(("", name));
        let number = last.parse().ok();
        Self {
            parent: parent.to_owned(),
            first: number,
            last: number,
            name: name.to_owned(),
        }
    }

    /// Takes the next name in, if it is the next.
    fn take(&mut self, name: &str) -> bool {
        let next = Self::new(name);
        let follows = self
            .last
            .is_some_and(|last| next.first == last.checked_add(1));
        let joined = follows && next.parent == self.parent;
        if joined {
            self.last = next.last;
        }
        joined
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.last) {
            ("", _) => f.write_str("everything"),
            (name, Some(last)) if self.first != self.last => write!(f, "{name} to {last}"),
            (name, _) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_shown_as_a_range() {
        let map =
            r#"{"wte":0,"h.0":0,"h.1":0,"h.2.attn":0,"h.2.mlp":"cpu","h.3":"cpu","h.4":"cpu"}"#;
        let mapped = Mapped {
            device_map: serde_json::from_str(map).unwrap(),
            main_device: Placement::Accelerator(0),
            places: Vec::new(),
            largest_offloaded: None,
            problem: None,
            warning: None,
            reasons: Vec::new(),
        };
        let lines = mapped.lines();
        assert_eq!(
            lines,
            ["0: wte, h.0 to 1, h.2.attn", "cpu: h.2.mlp, h.3 to 4"]
        );
    }
}
