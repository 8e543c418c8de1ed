//! State of an optimizer in a file, and updates of one part of it after the other.
//!
//! While a part is updated the next one is read, and the one before is written and dropped. In memory
//! are, of each kind of state, the part that is computed with, the next one, and no more than three
//! that are not written yet; of parameters and gradients that lie on disk, the same.

use std::ops::Range;
use std::sync::Arc;

use accelerate_torch::autograd;
use accelerate_torch::scratch::ScratchFile;
use tch::{Device, Kind, Tensor};

use super::cohort::check_lengths;
use super::group::ParamGroups;
use crate::offload::DiskFolder;
use crate::{Error, Result};

/// Where in a file vectors begin.
const PAGE: usize = 4096;

/// A file with the state of every parameter of an optimizer.
pub(super) struct StateFile {
    optimizer: &'static str,
    folder: DiskFolder,
    file: Arc<ScratchFile>,
    /// How many tensors each parameter has.
    kinds: usize,
    classes: Vec<Class>,
}

/// Parameters of one group that are of one type: their state lies in one vector for each kind of it,
/// one parameter behind the other.
struct Class {
    group: usize,
    kind: Kind,
    members: Vec<Member>,
    /// Where the vector of each kind of state begins in the file, in bytes.
    starts: Vec<usize>,
    vectors: Vec<Tensor>,
    parts: Vec<Vec<Piece>>,
}

struct Member {
    /// The parameter's place in its group.
    index: usize,
    /// Where it begins in the vectors.
    start: usize,
    length: usize,
}

/// Elements of one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    index: usize,
    in_parameter: usize,
    in_vector: usize,
    length: usize,
}

/// Pieces that one kernel call updates: their state is one behind the other in the vectors.
pub(super) struct Run {
    /// The place of each piece's parameter in its group.
    pub(super) members: Vec<usize>,
    /// A vector for each piece.
    pub(super) parameters: Vec<Tensor>,
    pub(super) gradients: Vec<Tensor>,
    /// For each kind of state a vector for each piece.
    pub(super) tensors: Vec<Vec<Tensor>>,
    /// For each kind of state all pieces as one vector.
    pub(super) flats: Vec<Tensor>,
}

impl StateFile {
    /// A file with `kinds` tensors of each parameter's type and size. What they hold first is for the
    /// optimizer to say.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters that are not on the CPU, or not laid out row by row; a
    /// folder that cannot be written to, or has no room.
    pub(super) fn new(
        optimizer: &'static str,
        folder: &DiskFolder,
        groups: &ParamGroups,
        kinds: usize,
    ) -> Result<Self> {
        let (mut classes, mut bytes) = (Vec::new(), 0);
        for (number, group) in groups.groups().iter().enumerate() {
            for (kind, members) in classified(optimizer, &group.parameters)? {
                let length = members.last().map_or(0, |last| last.start + last.length);
                let mut starts = Vec::with_capacity(kinds);
                for _ in 0..kinds {
                    starts.push(bytes);
                    bytes += (length * kind.elt_size_in_bytes()).next_multiple_of(PAGE);
                }
                classes.push(Class {
                    group: number,
                    kind,
                    parts: parts(&members, folder.at_once()),
                    members,
                    starts,
                    vectors: Vec::new(),
                });
            }
        }
        let file = folder.file(&format!("the state of `{optimizer}`"), bytes)?;
        let mut made = Self {
            optimizer,
            folder: folder.clone(),
            file,
            kinds,
            classes,
        };
        made.lay_out()?;
        Ok(made)
    }

    /// Another file beside this one, with zeros: what is loaded goes there, so that this one stays as
    /// it is if loading fails.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn another(&self, groups: &ParamGroups, kinds: usize) -> Result<Self> {
        Self::new(self.optimizer, &self.folder, groups, kinds)
    }

    fn lay_out(&mut self) -> Result<()> {
        for class in &mut self.classes {
            let last = class.members.last();
            let length = last.map_or(0, |last| last.start + last.length) as i64;
            for &start in &class.starts {
                let vector = self.file.tensor(start, class.kind, &[length])?;
                class.vectors.push(vector);
            }
        }
        Ok(())
    }

    /// How many tensors each parameter has.
    pub(super) fn kinds(&self) -> usize {
        self.kinds
    }

    /// The tensors of one parameter, in its shape.
    pub(super) fn tensors(
        &self,
        group: usize,
        index: usize,
        parameter: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let classes = self.classes.iter().filter(|class| class.group == group);
        let found = classes
            .flat_map(|class| class.members.iter().map(move |member| (class, member)))
            .find(|(_, member)| member.index == index);
        let Some((class, member)) = found else {
            return Ok(Vec::new());
        };
        check_size(self.optimizer, member, parameter)?;
        let vectors = class.vectors.iter().map(|vector| {
            let own = narrow(vector, member.start, member.length)?;
            Ok(own.f_view(parameter.size().as_slice())?)
        });
        vectors.collect()
    }

    /// Puts values in the place of a parameter's tensors, which are answered.
    pub(super) fn keep(
        &self,
        group: usize,
        index: usize,
        parameter: &Tensor,
        values: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let tensors = self.tensors(group, index, parameter)?;
        tch::no_grad(|| -> Result<()> {
            for (tensor, value) in tensors.iter().zip(values) {
                tensor.shallow_clone().f_copy_(value)?;
            }
            Ok(())
        })?;
        self.folder.write_back(&tensors)?;
        Ok(tensors)
    }

    /// Calls `update` with everything of a group that has a gradient, a part at a time. Parameters
    /// with different `apart` are never in one call.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters that are not as they were when the file was made; what went
    /// wrong while earlier parts were written.
    pub(super) fn update(
        &self,
        group: usize,
        parameters: &[Tensor],
        apart: impl Fn(usize) -> u64,
        mut update: impl FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        let gradients = parameters
            .iter()
            .map(autograd::grad)
            .collect::<Result<Vec<_>, _>>()?;
        check_lengths(parameters, &gradients)?;
        let sources = Sources {
            parameters: flat(parameters.iter().map(Some))?,
            gradients: flat(gradients.iter().map(Option::as_ref))?,
        };
        for class in self.classes.iter().filter(|class| class.group == group) {
            for member in &class.members {
                if let Some(parameter) = parameters.get(member.index) {
                    check_size(self.optimizer, member, parameter)?;
                }
            }
            let with_gradients = class.parts.iter().map(|part| runs(part, &sources, &apart));
            let mut wanted = with_gradients.filter(|runs| !runs.is_empty()).peekable();
            while let Some(runs) = wanted.next() {
                if let Some(next) = wanted.peek() {
                    self.folder.read_ahead(&touched(class, next, &sources)?)?;
                }
                for run in &runs {
                    update(class.run(run, &sources)?)?;
                }
                self.folder.write_back(&touched(class, &runs, &sources)?)?;
            }
        }
        Ok(())
    }
}

/// Parameters and their gradients as vectors; none where there is no gradient.
struct Sources {
    parameters: Vec<Option<Tensor>>,
    gradients: Vec<Option<Tensor>>,
}

impl Sources {
    fn of(sources: &[Option<Tensor>], piece: &Piece) -> Result<Option<Tensor>> {
        let source = sources.get(piece.index).and_then(Option::as_ref);
        source
            .map(|source| narrow(source, piece.in_parameter, piece.length))
            .transpose()
    }

    fn has_gradient(&self, piece: &Piece) -> bool {
        self.gradients.get(piece.index).is_some_and(Option::is_some)
    }
}

fn flat<'t>(tensors: impl Iterator<Item = Option<&'t Tensor>>) -> Result<Vec<Option<Tensor>>> {
    let vectors = tensors.map(|tensor| match tensor {
        Some(tensor) => Ok(Some(tensor.f_detach()?.f_reshape([-1])?)),
        None => Ok(None),
    });
    vectors.collect()
}

impl Class {
    fn run(&self, pieces: &[Piece], sources: &Sources) -> Result<Run> {
        let mut run = Run {
            members: pieces.iter().map(|piece| piece.index).collect(),
            parameters: Vec::with_capacity(pieces.len()),
            gradients: Vec::with_capacity(pieces.len()),
            tensors: Vec::with_capacity(self.vectors.len()),
            flats: Vec::with_capacity(self.vectors.len()),
        };
        for piece in pieces {
            run.parameters
                .extend(Sources::of(&sources.parameters, piece)?);
            run.gradients
                .extend(Sources::of(&sources.gradients, piece)?);
        }
        for vector in &self.vectors {
            let own = pieces
                .iter()
                .map(|piece| narrow(vector, piece.in_vector, piece.length));
            run.tensors.push(own.collect::<Result<_>>()?);
            let all = place_of(pieces);
            run.flats.push(narrow(vector, all.start, all.len())?);
        }
        Ok(run)
    }
}

/// Where pieces that are one behind the other lie in the vectors.
fn place_of(pieces: &[Piece]) -> Range<usize> {
    let start = pieces.first().map_or(0, |first| first.in_vector);
    let end = pieces
        .last()
        .map_or(start, |last| last.in_vector + last.length);
    start..end
}

/// The pieces of a part that have gradients, as runs without anything between.
fn runs(part: &[Piece], sources: &Sources, apart: impl Fn(usize) -> u64) -> Vec<Vec<Piece>> {
    let mut runs: Vec<Vec<Piece>> = Vec::new();
    let mut goes_on = false;
    for piece in part {
        if !sources.has_gradient(piece) {
            goes_on = false;
            continue;
        }
        match runs.last_mut() {
            Some(run)
                if goes_on
                    && run
                        .last()
                        .is_some_and(|last| apart(last.index) == apart(piece.index)) =>
            {
                run.push(piece.clone());
            }
            _ => runs.push(vec![piece.clone()]),
        }
        goes_on = true;
    }
    runs
}

/// Everything that an update of these runs reads and writes.
fn touched(class: &Class, runs: &[Vec<Piece>], sources: &Sources) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    for run in runs {
        let place = place_of(run);
        for vector in &class.vectors {
            found.push(narrow(vector, place.start, place.len())?);
        }
        for piece in run {
            found.extend(Sources::of(&sources.parameters, piece)?);
            found.extend(Sources::of(&sources.gradients, piece)?);
        }
    }
    Ok(found)
}

/// Parameters by type, with their places in the vectors of that type.
fn classified(optimizer: &'static str, parameters: &[Tensor]) -> Result<Vec<(Kind, Vec<Member>)>> {
    let mut classes: Vec<(Kind, Vec<Member>)> = Vec::new();
    for (index, parameter) in parameters.iter().enumerate() {
        if parameter.device() != Device::Cpu || !parameter.is_contiguous() {
            return Err(Error::Argument {
                operation: "optimizer state on disk",
                expected: "parameters in CPU memory, laid out row by row".to_owned(),
                found: format!(
                    "one of `{optimizer}` on {:?} with strides {:?}",
                    parameter.device(),
                    parameter.stride()
                ),
            });
        }
        let (kind, length) = (parameter.f_kind()?, parameter.numel());
        let member = |start| Member {
            index,
            start,
            length,
        };
        match classes.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, members)) => {
                let start = members.last().map_or(0, |last| last.start + last.length);
                members.push(member(start));
            }
            None => classes.push((kind, vec![member(0)])),
        }
    }
    Ok(classes)
}

/// Cuts parameters into parts of at most so many elements. Only what is larger than a part by itself
/// is cut, at multiples of `at_once`.
fn parts(members: &[Member], at_once: usize) -> Vec<Vec<Piece>> {
    let mut parts: Vec<Vec<Piece>> = Vec::new();
    let mut room = 0;
    for member in members {
        let mut done = 0;
        while done < member.length {
            let left = member.length - done;
            let length = left.min(at_once);
            if length > room {
                parts.push(Vec::new());
                room = at_once;
            }
            room -= length;
            if let Some(part) = parts.last_mut() {
                part.push(Piece {
                    index: member.index,
                    in_parameter: done,
                    in_vector: member.start + done,
                    length,
                });
            }
            done += length;
        }
    }
    parts
}

fn check_size(optimizer: &'static str, member: &Member, parameter: &Tensor) -> Result<()> {
    if parameter.numel() == member.length {
        return Ok(());
    }
    Err(Error::Argument {
        operation: "optimizer state on disk",
        expected: format!("a parameter of {} elements", member.length),
        found: format!(
            "{} elements; prepare the model before `{optimizer}`, or together with it",
            parameter.numel()
        ),
    })
}

fn narrow(vector: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Ok(vector.f_narrow(0, number(start), number(count))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(lengths: &[usize]) -> Vec<Member> {
        let mut start = 0;
        let members = lengths.iter().enumerate().map(|(index, &length)| {
            let member = Member {
                index,
                start,
                length,
            };
            start += length;
            member
        });
        members.collect()
    }

    #[test]
    fn parts_are_no_larger_than_they_may_be_and_lose_nothing() {
        let lengths = [100, 0, 28, 1, 300, 64, 63];
        let parts = parts(&members(&lengths), 128);
        let mut next = vec![0; lengths.len()];
        let mut place = 0;
        for part in &parts {
            assert!(part.iter().map(|piece| piece.length).sum::<usize>() <= 128);
            for piece in part {
                assert_eq!(piece.in_parameter, next[piece.index]);
                assert_eq!(piece.in_parameter % 64, 0);
                assert_eq!(piece.in_vector, place);
                next[piece.index] += piece.length;
                place += piece.length;
            }
        }
        assert_eq!(next, lengths);
        // 100 + 28, 1, 128, 128, 44 + 64, 63.
        assert_eq!(parts.len(), 6);
    }

    #[test]
    fn runs_end_where_a_gradient_is_missing_and_where_parameters_are_kept_apart() {
        let pieces: Vec<Piece> = parts(&members(&[1, 1, 1, 1]), 64).remove(0);
        let some = |has: bool| has.then(|| Tensor::from_slice(&[1f32]));
        let sources = |has: [bool; 4]| Sources {
            parameters: vec![some(true), some(true), some(true), some(true)],
            gradients: has.map(some).into(),
        };
        let lengths = |has, apart: fn(usize) -> u64| -> Vec<usize> {
            let runs = runs(&pieces, &sources(has), apart);
            runs.iter().map(Vec::len).collect()
        };
        assert_eq!(lengths([true; 4], |_| 0), [4]);
        assert_eq!(lengths([true, false, true, true], |_| 0), [1, 2]);
        assert_eq!(lengths([true; 4], |index| (index == 3).into()), [3, 1]);
        assert_eq!(lengths([false; 4], |_| 0), [0usize; 0]);
    }
}
