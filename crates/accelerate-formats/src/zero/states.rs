//! What the files of a checkpoint hold, to be written.

use super::files::{MODEL_ENDING, OPTIMIZER_ENDING};
use crate::value::{Dict, Value};

/// Where stages 1 and 2 have the weights, and what the optimizer keeps besides.
pub(super) const WEIGHTS_BY_GROUP: &str = "single_partition_of_fp32_groups";
pub(super) const STATES_BY_GROUP: &str = "base_optimizer_state";
/// Where stage 3 has them.
pub(super) const WEIGHTS_BY_PARAMETER: &str = "fp32_flat_groups";
pub(super) const STATES_BY_PARAMETER: &str = "optimizer_state_dict";
/// The release line whose layout this is.
const VERSION: &str = "0.19.0";

/// The file with the states of the model: one in stages 1 and 2, one for each rank in stage 3.
///
/// The module of stages 1 and 2 has its tensors whole; stage 3 has empty ones in the place of
/// parameters. Everything but buffers and, in stage 1, what is not trained is read from the other
/// files.
#[derive(Debug)]
pub struct ModelStates {
    /// The stage: 1, 2 or 3.
    pub stage: u8,
    /// How many ranks hold the model together.
    pub ranks: usize,
    /// Parameters and buffers by name.
    pub module: Dict,
    /// The names of the buffers.
    pub buffers: Vec<String>,
    /// The parameters of each group of the optimizer with their shapes, in its order.
    pub groups: Vec<Vec<(String, Vec<usize>)>>,
    /// The parameters that are in no group.
    pub frozen: Vec<FrozenPart>,
    /// Second names of tied parameters, each with the first.
    pub aliases: Vec<(String, String)>,
    /// How many steps the optimizer has made.
    pub steps: u64,
}

/// A parameter that is not trained.
#[derive(Debug)]
pub struct FrozenPart {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The tensor: whole before stage 3, a rank's part in stage 3.
    pub values: Value,
}

impl ModelStates {
    /// The name of the file.
    pub fn file(stage: u8, rank: usize) -> String {
        match stage {
            3 => format!("zero_pp_rank_{rank}_mp_rank_00{MODEL_ENDING}"),
            _ => format!("mp_rank_00{MODEL_ENDING}"),
        }
    }

    /// What the file holds. Tensors are in the order of the module, then of the frozen parameters.
    pub fn into_value(self) -> Value {
        let ranks = self.ranks as i128;
        let groups = self.groups.into_iter().map(|group| {
            let group = group.into_iter();
            let group = group.map(|(name, shape)| (Value::from(name), Value::Size(shape)));
            Value::from(group.collect::<Dict>())
        });
        let buffers: Vec<Value> = self.buffers.into_iter().map(Value::from).collect();
        let shapes = |part: &FrozenPart| {
            let shape = Value::Size(part.shape.clone());
            (Value::from(part.name.as_str()), shape)
        };
        // As in the original, stage 1 has them in the module only.
        let lists_frozen = self.stage > 1;
        let shapes: Option<Dict> = lists_frozen.then(|| self.frozen.iter().map(shapes).collect());
        let frozen = self.frozen.into_iter();
        let frozen = frozen.map(|part| (Value::from(part.name), part.values));
        let fragments: Option<Dict> = lists_frozen.then(|| frozen.collect());
        let aliases = self.aliases.into_iter();
        let aliases = aliases.map(|(alias, owner)| (Value::from(alias), Value::from(owner)));
        Dict::new()
            .with("module", self.module)
            .with("buffer_names", buffers)
            .with("optimizer", Value::None)
            .with("param_shapes", groups.collect::<Vec<_>>())
            .with("frozen_param_shapes", shapes)
            .with("shared_params", aliases.collect::<Dict>())
            .with("frozen_param_fragments", fragments)
            .with("lr_scheduler", Value::None)
            .with("data_sampler", Value::None)
            .with("random_ltd", Value::None)
            .with("sparse_tensor_module_names", Value::Set(Vec::new()))
            .with("skipped_steps", 0)
            .with("global_steps", self.steps)
            .with("global_samples", 0)
            .with("dp_world_size", ranks)
            .with("mp_world_size", 1)
            .with("ds_config", config(self.stage))
            .with("ds_version", VERSION)
            .into()
    }
}

/// The file of one rank with its part of the weights in float32 and of what the optimizer keeps.
#[derive(Debug)]
pub struct OptimizerStates {
    /// The stage: 1, 2 or 3.
    pub stage: u8,
    /// How many ranks hold the model together.
    pub ranks: usize,
    /// The state in PyTorch's form, with one flat tensor in the place of each group's parameters.
    pub state: Value,
    /// The weights of each group: float32, a vector.
    pub weights: Vec<Value>,
    /// How much padding this rank's vector of each group ends in.
    pub padding: Vec<usize>,
    /// The largest norm of gradients; 0 where they are not clipped.
    pub clipping: f64,
}

impl OptimizerStates {
    /// The name of the file.
    pub fn file(rank: usize, is_bf16: bool) -> String {
        let prefix = if is_bf16 { "bf16_" } else { "" };
        format!("{prefix}zero_pp_rank_{rank}_mp_rank_00{OPTIMIZER_ENDING}")
    }

    /// What the file holds. Tensors are in the order of the state, then of the weights.
    ///
    /// # Source
    /// Differs: how the loss is scaled is not in here; a reader keeps what it has.
    pub fn into_value(self) -> Value {
        let stage = i64::from(self.stage);
        let counts = |count: usize| Value::Int(count as i128);
        let head = Dict::new()
            .with("zero_stage", stage)
            .with("dynamic_loss_scale", false)
            .with("overflow", false);
        let whole = match self.stage {
            3 => head
                .with("partition_count", counts(self.ranks))
                .with(STATES_BY_PARAMETER, self.state)
                .with(WEIGHTS_BY_PARAMETER, self.weights),
            _ => {
                let ranks = self.weights.iter().map(|_| counts(self.ranks));
                let ranks: Vec<Value> = ranks.collect();
                let padding: Vec<Value> = self.padding.into_iter().map(counts).collect();
                head.with("clip_grad", self.clipping)
                    .with(STATES_BY_GROUP, self.state)
                    .with(WEIGHTS_BY_GROUP, self.weights)
                    .with("group_paddings", padding)
                    .with("partition_count", ranks)
                    .with("ds_version", VERSION)
            }
        };
        Dict::new()
            .with("optimizer_state_dict", whole)
            .with("ds_config", config(self.stage))
            .with("ds_version", VERSION)
            .into()
    }
}

/// What readers look up of the config.
fn config(stage: u8) -> Dict {
    Dict::new().with(
        "zero_optimization",
        Dict::new().with("stage", i64::from(stage)),
    )
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::dtype::Dtype;
    use crate::tensor::{Storage, StoredTensor};
    use crate::torch::write_torch_file;
    use crate::zero::{ZeroCheckpoint, ZeroCut, ZeroState, zero_share};

    const RANKS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);
    /// Two parameters of one group, and one that is not trained.
    const A: [f32; 5] = [0.0, 1.0, 2.0, 3.0, 4.0];
    const B: [f32; 4] = [10.0, 11.0, 12.0, 13.0];
    const C: [f32; 3] = [20.0, 21.0, 22.0];

    fn tensor(values: &[f32], shape: &[usize]) -> Value {
        let bytes: Vec<u8> = values.iter().flat_map(|one| one.to_le_bytes()).collect();
        let storage = Arc::new(Storage::new(bytes));
        let stored = StoredTensor::contiguous(Dtype::F32, shape.to_vec(), storage);
        stored.unwrap().into()
    }

    fn vector(values: &[f32]) -> Value {
        tensor(values, &[values.len()])
    }

    /// The model's file of one rank.
    fn model(stage: u8, rank: usize) -> ModelStates {
        let of = |values: &[f32], shape: &[usize]| match stage {
            3 => vector(&[]),
            _ => tensor(values, shape),
        };
        let share = zero_share(C.len(), RANKS);
        let mut part = C.to_vec();
        part.resize(share * RANKS.get(), 0.0);
        let frozen = match stage {
            3 => vector(&part[rank * share..(rank + 1) * share]),
            _ => vector(&C),
        };
        ModelStates {
            stage,
            ranks: RANKS.get(),
            module: Dict::new()
                .with("a", of(&A, &[5]))
                .with("b", of(&B, &[2, 2]))
                .with("tied", of(&B, &[2, 2]))
                .with("c", of(&C, &[3]))
                .with("count", vector(&[3.0])),
            buffers: vec!["count".to_owned()],
            groups: vec![vec![
                ("a".to_owned(), vec![5]),
                ("b".to_owned(), vec![2, 2]),
            ]],
            frozen: vec![FrozenPart {
                name: "c".to_owned(),
                shape: vec![3],
                values: frozen,
            }],
            aliases: vec![("tied".to_owned(), "b".to_owned())],
            steps: 7,
        }
    }

    /// The optimizer's file of one rank: its average is twice the weight.
    fn optimizer(stage: u8, rank: usize) -> OptimizerStates {
        let cut = match stage {
            3 => ZeroCut::Parameter,
            _ => ZeroCut::Group,
        };
        let partition = cut.partition(&[A.len(), B.len()], RANKS, rank);
        let mut weights = vec![0.0; partition.length];
        for run in &partition.runs {
            let own = [&A[..], &B[..]][run.parameter];
            let part = &own[run.range.clone()];
            weights[run.begin..run.begin + part.len()].copy_from_slice(part);
        }
        let average: Vec<f32> = weights.iter().map(|one| 2.0 * one).collect();
        let state = Dict::new()
            .with("step", 7.0)
            .with("exp_avg", vector(&average));
        let state: Dict = [(Value::Int(0), state.into())].into_iter().collect();
        let group = Dict::new()
            .with("lr", 0.5)
            .with("params", vec![Value::Int(0)]);
        OptimizerStates {
            stage,
            ranks: RANKS.get(),
            state: Dict::new()
                .with("state", state)
                .with("param_groups", vec![Value::from(group)])
                .into(),
            weights: vec![vector(&weights[..partition.saved])],
            padding: vec![partition.length - partition.saved],
            clipping: 1.0,
        }
    }

    fn write(folder: &Path, stage: u8) {
        for rank in 0..RANKS.get() {
            if stage == 3 || rank == 0 {
                let path = folder.join(ModelStates::file(stage, rank));
                write_torch_file(path, &model(stage, rank).into_value()).unwrap();
            }
            let path = folder.join(OptimizerStates::file(rank, stage == 3));
            write_torch_file(path, &optimizer(stage, rank).into_value()).unwrap();
        }
    }

    fn numbers(pieces: crate::tensor::Pieces<'_>) -> Vec<f32> {
        let bytes: Vec<u8> = pieces.flat_map(|piece| piece.unwrap().to_vec()).collect();
        let (numbers, _) = bytes.as_chunks::<4>();
        numbers.iter().map(|&one| f32::from_le_bytes(one)).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        for stage in 1..=3 {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), stage);
            let zero = ZeroCheckpoint::open(folder.path(), None).unwrap();
            assert_eq!((zero.stage(), zero.world_size()), (stage, 2));
            for (name, expected) in [
                ("a", &A[..]),
                ("b", &B[..]),
                ("tied", &B[..]),
                ("c", &C[..]),
            ] {
                let found = numbers(zero.pieces(name).unwrap());
                assert_eq!(found, expected, "{name} of stage {stage}");
            }
            assert_eq!(numbers(zero.pieces("count").unwrap()), [3.0]);
            assert!(zero.buffer("count").is_some() && zero.buffer("a").is_none());
            assert_eq!(zero.tensors().len(), 4);
            assert_eq!(zero.groups(), [["a", "b"]]);
            let groups = zero.optimizer().and_then(|own| own.get("param_groups"));
            let group = groups.and_then(Value::as_slice).and_then(<[Value]>::first);
            assert_eq!(group.and_then(|group| group.get("lr")?.as_f64()), Some(0.5));
            for (name, expected) in [("a", &A[..]), ("b", &B[..])] {
                let state = zero.state_of(name).unwrap();
                assert!(
                    matches!(
                        state[..],
                        [
                            ("step", ZeroState::Single(Value::Float(7.0))),
                            ("exp_avg", ZeroState::Numbers(Dtype::F32)),
                        ]
                    ),
                    "{state:?}"
                );
                let twice: Vec<f32> = expected.iter().map(|one| 2.0 * one).collect();
                assert_eq!(numbers(zero.state_pieces(name, "exp_avg").unwrap()), twice);
                assert!(
                    zero.state_pieces(name, "exp_avg_sq")
                        .unwrap()
                        .any(|one| one.is_err())
                );
            }
            assert!(zero.state_of("c").unwrap().is_empty());
            assert!(zero.state_pieces("c", "exp_avg").is_err());
        }
    }
}
