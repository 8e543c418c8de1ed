//! Where each parameter lies in the flat tensors of the ranks.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::files::{File, MODEL_ENDING, OPTIMIZER_ENDING};
use super::states::{STATES_BY_GROUP, STATES_BY_PARAMETER, WEIGHTS_BY_GROUP, WEIGHTS_BY_PARAMETER};
use super::{Fallible, Piece, Source, ZeroCheckpoint, ZeroTensor};
use crate::cast::to_f32;
use crate::dtype::Dtype;
use crate::error::ZeroFault;
use crate::safetensors::TensorHeader;
use crate::tensor::StoredTensor;
use crate::value::{Dict, Value};

/// How many missing ranks an error keeps.
const MISSING_KEPT: usize = 64;

/// The parameters of a group with their shapes, in the order of the flat vector.
type Group = Vec<(String, Vec<usize>)>;

/// Finds every tensor of a checkpoint.
pub(super) fn build(
    folder: &Path,
    models: &[File],
    optimizers: &[File],
) -> Fallible<ZeroCheckpoint> {
    Builder::new(folder, models, optimizers)?.build()
}

/// A whole number, or an enum that was made from one.
fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Opaque(opaque) => opaque.arguments.first()?.as_int(),
        other => other.as_int(),
    }
}

fn stage_of(file: &File) -> Fallible<i128> {
    let stage = file.optimizer()?.get("zero_stage").and_then(number);
    stage.ok_or_else(|| ZeroFault::NotZero {
        file: file.name.clone(),
    })
}

fn world_size_of(file: &File) -> Fallible<usize> {
    let what = "partition_count";
    let counts = match file.optimizer()?.get(what) {
        Some(Value::List(counts)) => counts.iter().filter_map(Value::as_usize).max(),
        Some(count) => count.as_usize(),
        None => None,
    };
    let world_size = counts.filter(|&count| count > 0);
    world_size.ok_or_else(|| file.lacks(what))
}

fn agree(first: &File, file: &File, what: &str, expected: i128, found: i128) -> Fallible<()> {
    if expected == found {
        return Ok(());
    }
    Err(ZeroFault::Contradiction {
        file: file.name.clone(),
        found: format!("{found} ({what})"),
        first: first.name.clone(),
        expected: expected.to_string(),
    })
}

/// Checks that every rank's file is there once, in the order of the ranks, and no other.
fn all_ranks(files: &[File], world_size: usize, ending: &'static str) -> Fallible<()> {
    if files.iter().map(File::rank).eq((0..world_size).map(Some)) {
        return Ok(());
    }
    let ranks: HashSet<usize> = files.iter().filter_map(File::rank).collect();
    Err(ZeroFault::Ranks {
        expected: world_size,
        found: files.len(),
        ending,
        // A file may claim any number of ranks.
        missing: (0..world_size)
            .filter(|rank| !ranks.contains(rank))
            .take(MISSING_KEPT)
            .collect(),
    })
}

struct Builder<'f> {
    folder: &'f Path,
    models: &'f [File],
    model: &'f File,
    optimizers: &'f [File],
    stage: u8,
    world_size: usize,
    flat: Vec<Vec<StoredTensor>>,
    tensors: Vec<ZeroTensor>,
}

impl<'f> Builder<'f> {
    fn new(folder: &'f Path, models: &'f [File], optimizers: &'f [File]) -> Fallible<Self> {
        let (Some(first), Some(model)) = (optimizers.first(), models.first()) else {
            return Err(ZeroFault::NoLatest);
        };
        let stage = stage_of(first)?;
        let stage = u8::try_from(stage)
            .ok()
            .filter(|stage| (1..=3).contains(stage))
            .ok_or(ZeroFault::Stage { found: stage })?;
        let world_size = world_size_of(first)?;
        for file in optimizers {
            agree(first, file, "stage", i128::from(stage), stage_of(file)?)?;
            let found = world_size_of(file)? as i128;
            agree(first, file, "ranks", world_size as i128, found)?;
        }
        all_ranks(optimizers, world_size, OPTIMIZER_ENDING)?;
        if stage == 3 {
            // Every rank has its pieces of frozen parameters.
            all_ranks(models, world_size, MODEL_ENDING)?;
        }
        let key = if stage == 3 {
            WEIGHTS_BY_PARAMETER
        } else {
            WEIGHTS_BY_GROUP
        };
        let flat: Fallible<Vec<_>> = optimizers
            .iter()
            .map(|file| flat_tensors(file, key))
            .collect();
        Ok(Self {
            folder,
            models,
            model,
            optimizers,
            stage,
            world_size,
            flat: flat?,
            tensors: Vec::new(),
        })
    }

    fn build(mut self) -> Fallible<ZeroCheckpoint> {
        self.buffers()?;
        self.frozen()?;
        if self.stage == 3 {
            self.parameters_by_parameter()?;
        } else {
            self.parameters_by_group()?;
            self.parameters_of_module()?;
        }
        let mut by_name = HashMap::with_capacity(self.tensors.len());
        for (place, tensor) in self.tensors.iter().enumerate() {
            if by_name.insert(tensor.header.name.clone(), place).is_some() {
                return Err(ZeroFault::Twice {
                    name: tensor.header.name.clone(),
                });
            }
        }
        let aliases = self.aliases(&by_name)?;
        let groups = self.groups()?.into_iter();
        let groups = groups.map(|group| group.into_iter().map(|(name, _)| name).collect());
        let groups = groups.collect();
        let states = self.states()?;
        let files = self.models.iter().chain(self.optimizers);
        let files = files.map(|file| self.folder.join(&file.name)).collect();
        Ok(ZeroCheckpoint {
            folder: self.folder.to_owned(),
            files,
            stage: self.stage,
            world_size: self.world_size,
            flat: self.flat,
            states,
            groups,
            tensors: self.tensors,
            by_name,
            aliases,
        })
    }

    /// What the optimizer of each rank says besides the weights.
    fn states(&self) -> Fallible<Vec<Value>> {
        let key = match self.stage {
            3 => STATES_BY_PARAMETER,
            _ => STATES_BY_GROUP,
        };
        let states = self.optimizers.iter().map(|file| {
            let state = file.optimizer()?.get(key);
            Ok(state.cloned().unwrap_or(Value::None))
        });
        states.collect()
    }

    fn add(&mut self, name: &str, dtype: Dtype, shape: Vec<usize>, source: Source) {
        let name = name.to_owned();
        self.tensors.push(ZeroTensor {
            header: TensorHeader { name, dtype, shape },
            source,
        });
    }

    fn buffers(&mut self) -> Fallible<()> {
        let what = "buffer_names";
        let names = self.model.value.get(what).and_then(Value::as_slice);
        let names = names.ok_or_else(|| self.model.lacks(what))?;
        let names: HashSet<&str> = names.iter().filter_map(Value::as_str).collect();
        let module = self.module()?;
        for (name, value) in module.iter() {
            let (Some(name), Value::Tensor(tensor)) = (name.as_str(), value) else {
                continue;
            };
            if !names.contains(name) {
                continue;
            }
            if to_f32(tensor.dtype(), &[], &mut Vec::new()).is_none() {
                return Err(self.model.lacks("module"));
            }
            let tensor = (**tensor).clone();
            self.add(
                name,
                Dtype::F32,
                tensor.shape().to_vec(),
                Source::Cast(tensor),
            );
        }
        Ok(())
    }

    fn module(&self) -> Fallible<&'f Dict> {
        let (model, what) = (self.model, "module");
        model.dict(what)?.ok_or_else(|| model.lacks(what))
    }

    fn frozen(&mut self) -> Fallible<()> {
        let Some(shapes) = self.model.dict("frozen_param_shapes")? else {
            return Ok(());
        };
        for (name, shape) in shapes.iter() {
            let (name, shape) = self.name_and_shape(name, shape)?;
            // Stage 3 cuts frozen parameters too; before it the first file has them whole.
            let files = if self.stage == 3 {
                self.models
            } else {
                &self.models[..1]
            };
            let parts = files.iter().map(|file| {
                let what = "frozen_param_fragments";
                let part = file.dict(what)?.and_then(|parts| parts.get(name));
                part.and_then(Value::as_tensor)
                    .cloned()
                    .ok_or_else(|| file.lacks(what))
            });
            let parts: Vec<StoredTensor> = parts.collect::<Fallible<_>>()?;
            let dtype = parts.first().map_or(Dtype::F32, StoredTensor::dtype);
            let found: usize = parts.iter().map(StoredTensor::elements).sum();
            let same = parts.iter().all(|part| part.dtype() == dtype);
            if !same || elements(&shape).is_none_or(|needed| needed > found) {
                return Err(ZeroFault::Ends {
                    parameter: name.to_owned(),
                });
            }
            self.add(name, dtype, shape, Source::Joined(parts));
        }
        Ok(())
    }

    fn name_and_shape<'v>(
        &self,
        name: &'v Value,
        shape: &Value,
    ) -> Fallible<(&'v str, Vec<usize>)> {
        let lacks = || self.model.lacks("param_shapes");
        let shape = match shape {
            Value::Size(shape) => Some(shape.clone()),
            other => other
                .as_slice()
                .and_then(|sizes| sizes.iter().map(Value::as_usize).collect()),
        };
        let shape = shape.filter(|shape| Dtype::F32.bits_of(shape).is_some());
        Ok((name.as_str().ok_or_else(lacks)?, shape.ok_or_else(lacks)?))
    }

    /// The parameters of each group, in the order of the flat vector.
    fn groups(&self) -> Fallible<Vec<Group>> {
        let what = "param_shapes";
        let groups = self.model.value.get(what).and_then(Value::as_slice);
        let groups = groups.ok_or_else(|| self.model.lacks(what))?;
        let groups = groups.iter().map(|group| {
            let group = group.as_dict().ok_or_else(|| self.model.lacks(what))?;
            let parameters = group.iter().map(|(name, shape)| {
                let (name, shape) = self.name_and_shape(name, shape)?;
                Ok((name.to_owned(), shape))
            });
            parameters.collect()
        });
        groups.collect()
    }

    /// Stages 1 and 2: the flat vector of each group is cut into as many parts as there are ranks.
    fn parameters_by_group(&mut self) -> Fallible<()> {
        for (group, parameters) in self.groups()?.into_iter().enumerate() {
            let runs: Vec<Piece> = (0..self.world_size)
                .map(|rank| self.run(rank, group))
                .collect::<Fallible<_>>()?;
            let available: usize = runs.iter().map(|run| run.length).sum();
            let mut taken = 0usize;
            for (name, shape) in parameters {
                let needed = elements(&shape).unwrap_or(usize::MAX);
                let pieces = cut(&runs, taken, needed);
                let pieces = pieces.ok_or_else(|| ZeroFault::Ends {
                    parameter: name.clone(),
                })?;
                self.add(&name, Dtype::F32, shape, Source::Pieces(pieces));
                taken += needed;
            }
            // Padding makes every part equally long, and is not always saved.
            let step = 2 * self.world_size;
            let (expected, found) = (
                taken.next_multiple_of(step),
                available.next_multiple_of(step),
            );
            if expected != found {
                return Err(ZeroFault::Numbers {
                    group,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Stage 1 does not list what is frozen: it is what nothing but the module has, there whole.
    fn parameters_of_module(&mut self) -> Fallible<()> {
        if self.model.dict("frozen_param_shapes")?.is_some() {
            return Ok(());
        }
        let aliases = self.shared()?.into_iter().map(|(alias, _)| alias);
        let found = self.tensors.iter();
        let found = found.map(|tensor| tensor.header.name.as_str());
        let found: HashSet<&str> = found.chain(aliases).collect();
        let module = self.module()?.iter();
        let module = module.filter_map(|(name, value)| Some((name.as_str()?, value.as_tensor()?)));
        let (found, others): (Vec<_>, Vec<_>) = module.partition(|(name, _)| found.contains(name));
        let frozen: Vec<(String, StoredTensor)> = others
            .into_iter()
            // Not every version says what is tied.
            .filter(|(_, tensor)| {
                let mut found = found.iter();
                !found.any(|(_, trained)| trained.shares_storage_with(tensor))
            })
            .map(|(name, tensor)| (name.to_owned(), tensor.clone()))
            .collect();
        for (name, tensor) in frozen {
            let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
            self.add(&name, dtype, shape, Source::Joined(vec![tensor]));
        }
        Ok(())
    }

    fn run(&self, rank: usize, tensor: usize) -> Fallible<Piece> {
        let flat = self.flat.get(rank).and_then(|rank| rank.get(tensor));
        let flat = flat.ok_or_else(|| match self.optimizers.get(rank) {
            Some(file) => file.lacks(WEIGHTS_BY_GROUP),
            None => self.model.lacks("param_shapes"),
        })?;
        Ok(Piece {
            rank,
            tensor,
            begin: 0,
            length: flat.elements(),
        })
    }

    /// Stage 3: every parameter is cut into as many parts as there are ranks.
    fn parameters_by_parameter(&mut self) -> Fallible<()> {
        let runs: Vec<Vec<Piece>> = self
            .flat
            .iter()
            .enumerate()
            .map(|(rank, tensors)| {
                let runs = tensors.iter().enumerate().map(|(tensor, flat)| Piece {
                    rank,
                    tensor,
                    begin: 0,
                    length: flat.elements(),
                });
                runs.collect()
            })
            .collect();
        let mut offset = 0usize;
        for (name, shape) in self.groups()?.into_iter().flatten() {
            let mut missing = elements(&shape).unwrap_or(usize::MAX);
            let share = missing.div_ceil(self.world_size);
            let mut pieces = Vec::new();
            for run in &runs {
                let found = cut(run, offset, share).ok_or_else(|| ZeroFault::Ends {
                    parameter: name.clone(),
                })?;
                for mut piece in found {
                    // The last ranks' parts end in padding.
                    piece.length = piece.length.min(missing);
                    missing -= piece.length;
                    pieces.push(piece);
                }
            }
            self.add(&name, Dtype::F32, shape, Source::Pieces(pieces));
            offset += share;
        }
        let found: usize = runs.iter().flatten().map(|run| run.length).sum();
        let expected = offset.saturating_mul(self.world_size);
        if expected != found {
            return Err(ZeroFault::Numbers {
                group: 0,
                expected,
                found,
            });
        }
        Ok(())
    }

    /// Second names and the names that tensors have first, as the file gives them.
    fn shared(&self) -> Fallible<Vec<(&'f str, &'f str)>> {
        let (model, what) = (self.model, "shared_params");
        let shared = match model.value.get(what) {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Dict(shared)) => shared.iter().collect(),
            // Older versions have pairs.
            Some(Value::List(pairs)) => {
                let pairs = pairs.iter().filter_map(Value::as_slice);
                pairs
                    .filter_map(|pair| Some((pair.first()?, pair.get(1)?)))
                    .collect::<Vec<_>>()
            }
            Some(_) => return Err(model.lacks(what)),
        };
        let names = shared
            .into_iter()
            .filter_map(|(alias, owner)| Some((alias.as_str()?, owner.as_str()?)));
        Ok(names.collect())
    }

    fn aliases(&self, by_name: &HashMap<String, usize>) -> Fallible<Vec<(String, String)>> {
        // As in the original, what refers to nothing is left out.
        let known = self
            .shared()?
            .into_iter()
            .filter(|(alias, owner)| by_name.contains_key(*owner) && !by_name.contains_key(*alias));
        Ok(known
            .map(|(alias, owner)| (alias.to_owned(), owner.to_owned()))
            .collect())
    }
}

fn elements(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1usize, |all, &length| all.checked_mul(length))
}

fn flat_tensors(file: &File, key: &'static str) -> Fallible<Vec<StoredTensor>> {
    let tensors = file.optimizer()?.get(key).and_then(Value::as_slice);
    let tensors = tensors.ok_or_else(|| file.lacks(key))?;
    let tensors = tensors.iter().map(|value| {
        let flat = value.as_tensor().filter(|flat| flat.dtype() == Dtype::F32);
        flat.cloned().ok_or_else(|| file.lacks(key))
    });
    tensors.collect()
}

/// The pieces that hold `length` numbers from `begin` of some runs one after another.
fn cut(runs: &[Piece], mut begin: usize, mut length: usize) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    for run in runs {
        if length == 0 {
            break;
        }
        if begin >= run.length {
            begin -= run.length;
            continue;
        }
        let taken = length.min(run.length - begin);
        pieces.push(Piece {
            begin: run.begin + begin,
            length: taken,
            ..*run
        });
        length -= taken;
        begin = 0;
    }
    (length == 0).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_ranks_may_be_those_of_one_rank() {
        let files = |names: &[&str]| -> Vec<File> {
            let names = names.iter().map(|name| File {
                name: format!("{name}_mp_rank_00{OPTIMIZER_ENDING}"),
                value: Value::None,
            });
            names.collect()
        };
        let check = |names: &[&str]| all_ranks(&files(names), 2, OPTIMIZER_ENDING);
        assert!(check(&["zero_pp_rank_0", "zero_pp_rank_1"]).is_ok());
        let twice = check(&["bf16_zero_pp_rank_0", "zero_pp_rank_0"]).unwrap_err();
        assert!(
            matches!(&twice, ZeroFault::Ranks { found: 2, missing, .. } if *missing == [1]),
            "{twice}"
        );
        let mixed = check(&["bf16_zero_pp_rank_1", "zero_pp_rank_0"]).unwrap_err();
        assert!(mixed.to_string().contains("another checkpoint"), "{mixed}");
        assert!(check(&["zero_pp_rank_0", "unknown"]).is_err());
    }

    #[test]
    fn pieces_cross_from_run_to_run() {
        let run = |tensor, length| Piece {
            rank: 0,
            tensor,
            begin: 0,
            length,
        };
        let runs = [run(0, 3), run(1, 0), run(2, 4)];
        let cut = |begin, length| {
            let pieces = cut(&runs, begin, length)?;
            Some(
                pieces
                    .into_iter()
                    .map(|p| (p.tensor, p.begin, p.length))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(cut(1, 4), Some(vec![(0, 1, 2), (2, 0, 2)]));
        assert_eq!(cut(3, 4), Some(vec![(2, 0, 4)]));
        assert_eq!(cut(7, 0), Some(vec![]));
        assert_eq!(cut(4, 4), None);
    }
}
