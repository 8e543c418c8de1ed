//! What ranks brought to one collective, side by side.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::call::CallRecord;
use super::codec;
use crate::Result;
use crate::tree::TensorSpec;

const OPERATION: &str = "debug mode";

/// What one rank was about to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankSide {
    /// Operation, number and call site.
    pub call: CallRecord,
    /// The arguments that have to be equal on all ranks, such as `from_process 0`.
    pub arguments: String,
    /// The tensors it brought.
    pub tensors: Vec<TensorSpec>,
    /// The kind of the device of the first tensor.
    pub device: Option<String>,
    /// Its last calls, oldest first, this one included.
    pub recent: Vec<CallRecord>,
}

impl RankSide {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        codec::encode(OPERATION, self)
    }

    /// All that has to be equal, as text.
    pub(super) fn compared(&self, dims_only: bool) -> String {
        let tensors: Vec<_> = self
            .tensors
            .iter()
            .map(|spec| {
                let shape = match dims_only {
                    true => vec![super::wire::count(spec.shape.len())],
                    false => spec.shape.clone(),
                };
                (&spec.path, shape, spec.kind)
            })
            .collect();
        let Self {
            call, arguments, ..
        } = self;
        format!(
            "{} {arguments} {:?} {tensors:?}",
            call.operation, self.device
        )
    }

    fn shapes(&self) -> String {
        match self.tensors.as_slice() {
            [] => "no tensors".to_owned(),
            [one] => one.to_string(),
            many => {
                let all: Vec<_> = many.iter().map(ToString::to_string).collect();
                format!("{{{}}}", all.join(", "))
            }
        }
    }

    fn device(&self) -> String {
        self.device
            .as_ref()
            .map_or_else(String::new, |device| format!(" on {device}"))
    }
}

/// What every rank was about to do, where they do not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MismatchReport {
    /// This process.
    pub rank: usize,
    /// Every rank's side, by rank.
    pub sides: Vec<RankSide>,
}

impl MismatchReport {
    pub(super) fn decode(rank: usize, sides: &[Vec<u8>]) -> Result<Self> {
        let sides = sides
            .iter()
            .map(|bytes| codec::decode(OPERATION, bytes))
            .collect::<Result<_>>()?;
        Ok(Self { rank, sides })
    }

    /// The one operation of all ranks, if it is one.
    fn operation(&self) -> Option<&str> {
        let first = &self.sides.first()?.call.operation;
        let same = self.sides.iter().all(|side| side.call.operation == *first);
        same.then_some(first)
    }

    /// The rank that does something else than all others, who do the same.
    fn alone(&self) -> Option<(usize, &RankSide)> {
        if self.sides.len() < 3 {
            return None;
        }
        let count = |operation: &str| {
            let same = |side: &&RankSide| side.call.operation == operation;
            self.sides.iter().filter(same).count()
        };
        let mut sides = self.sides.iter().enumerate();
        let all_but_one = self.sides.len() - 1;
        let others_agree = self
            .sides
            .iter()
            .any(|side| count(&side.call.operation) == all_but_one);
        sides.find(|(_, side)| others_agree && count(&side.call.operation) == 1)
    }

    fn write_different_operations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks came to different collectives")?;
        if let Some((rank, side)) = self.alone() {
            write!(f, ": rank {rank} alone to `{}`", side.call.operation)?;
        }
        f.write_str(
            "; every rank has to make the same calls in the same order: if one of them stands \
             where not all ranks come, such as under `is_main_process` or in `on_main_process`, \
             move it out\n\nOperations:",
        )?;
        for (rank, side) in self.sides.iter().enumerate() {
            write!(
                f,
                "\n  - Process {rank}: `{}` at {}",
                side.call.operation, side.call.site
            )?;
        }
        Ok(())
    }

    fn write_different_inputs(&self, f: &mut fmt::Formatter<'_>, operation: &str) -> fmt::Result {
        let arguments = self
            .sides
            .windows(2)
            .any(|pair| pair[0].arguments != pair[1].arguments);
        let (what, advice) = match (arguments, operation) {
            (true, _) => ("arguments", "give the same on every rank"),
            (false, "pad_across_processes") => (
                "kinds or numbers of dimensions of the tensors",
                "only sizes may differ",
            ),
            (false, "gather") => (
                "shapes or kinds of the tensors",
                "make them equal with `pad_across_processes`, or send them with `gather_object`",
            ),
            (false, _) => (
                "shapes or kinds of the tensors",
                "bring the same on every rank",
            ),
        };
        write!(
            f,
            "cannot apply `{operation}`: the {what} differ over ranks; {advice}\n\n\
             Operation: `{operation}`\nInput shapes:"
        )?;
        for (rank, side) in self.sides.iter().enumerate() {
            write!(
                f,
                "\n  - Process {rank}: {}{}",
                side.shapes(),
                side.device()
            )?;
            if arguments {
                write!(f, ", {}", side.arguments)?;
            }
            write!(f, ", at {}", side.call.site)?;
        }
        Ok(())
    }
}

impl fmt::Display for MismatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation() {
            Some(operation) => self.write_different_inputs(f, operation)?,
            None => self.write_different_operations(f)?,
        }
        f.write_str("\nLast calls:")?;
        for (rank, side) in self.sides.iter().enumerate() {
            let calls: Vec<_> = side.recent.iter().map(ToString::to_string).collect();
            write!(f, "\n  - Process {rank}: {}", calls.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn side(operation: &str, shape: &[i64]) -> RankSide {
        let call = CallRecord {
            number: 3,
            operation: operation.to_owned(),
            site: format!("src/{operation}.rs:1:2"),
            under_way: true,
        };
        RankSide {
            recent: vec![call.clone()],
            call,
            arguments: String::new(),
            tensors: vec![TensorSpec {
                path: String::new(),
                shape: shape.to_vec(),
                kind: Kind::Float,
            }],
            device: Some("cpu".to_owned()),
        }
    }

    fn text(sides: Vec<RankSide>) -> String {
        MismatchReport { rank: 0, sides }.to_string()
    }

    #[test]
    fn shapes_are_shown_for_every_rank() {
        let text = text(vec![side("gather", &[1, 5]), side("gather", &[1, 2, 5])]);
        for line in [
            "cannot apply `gather`: the shapes or kinds",
            "\n\nOperation: `gather`\nInput shapes:\n  - Process 0: [1, 5] Float on cpu, at src/gather.rs:1:2\n",
            "\n  - Process 1: [1, 2, 5] Float on cpu, at ",
            "\nLast calls:\n  - Process 0: call 3, `gather` at src/gather.rs:1:2\n  - Process 1: ",
        ] {
            assert!(text.contains(line), "`{line}` not in {text}");
        }
    }

    #[test]
    fn a_rank_that_is_alone_is_named() {
        let others = || side("wait_for_everyone", &[]);
        let three = text(vec![side("gather", &[2]), others(), others()]);
        assert!(three.contains("rank 0 alone to `gather`"), "{three}");
        assert!(three.contains("on_main_process"), "{three}");
        let two = text(vec![side("gather", &[2]), others()]);
        assert!(!two.contains("alone"), "{two}");
        assert!(
            two.contains("  - Process 1: `wait_for_everyone` at src/wait_for_everyone.rs:1:2"),
            "{two}"
        );
    }

    #[test]
    fn sizes_count_only_where_they_have_to_be_equal() {
        let (short, long) = (side("gather", &[2, 3]), side("gather", &[2, 4]));
        assert_ne!(short.compared(false), long.compared(false));
        assert_eq!(short.compared(true), long.compared(true));
        assert_ne!(short.compared(true), side("gather", &[2]).compared(true));
        assert_ne!(short.compared(true), side("reduce", &[2, 3]).compared(true));
    }
}
