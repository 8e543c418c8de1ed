//! A small language model with everything that is awkward: tied weights, buffers of both kinds, a
//! parameter of a block itself, and a block that uses a weight without calling its layer.

use std::path::Path;

use accelerate::big_model::{DeviceMap, Placement};
use accelerate::checkpoint::{SaveModelOptions, save_model};
use accelerate::nn::{
    BatchNorm1d, Buffer, Dropout, Embedding, Factory, Forward, LayerNorm, Linear, Module,
    ModuleState, Parameter, init_empty_weights,
};
use accelerate::{Error, Result};
use tch::{Kind, Tensor};
use tempfile::TempDir;

pub(crate) const WIDTH: i64 = 16;
const TOKENS: i64 = 32;

#[derive(Debug, Module)]
pub(crate) struct Block {
    norm: LayerNorm,
    pub(crate) up: Linear,
    scale: Parameter,
    bound: Bound,
    dropout: Dropout,
    state: ModuleState,
}

/// Uses the weight of its layer without calling the layer.
#[derive(Debug, Module)]
pub(crate) struct Bound {
    inner: Linear,
    state: ModuleState,
}

#[derive(Debug, Module)]
pub(crate) struct Net {
    pub(crate) wte: Embedding,
    positions: Buffer,
    pub(crate) h: Vec<Block>,
    statistics: BatchNorm1d,
    pub(crate) head: Linear,
    state: ModuleState,
}

impl Forward for Bound {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        Ok(hidden.f_matmul(&self.inner.weight.dense()?)?)
    }
}

impl Forward for Block {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let inner = self.up.call(self.norm.call(&hidden)?)?.f_gelu("tanh")?;
        let inner = self.bound.call(inner.f_mul(&self.scale.dense()?)?)?;
        Ok(hidden.f_add(&self.dropout.call(inner)?)?)
    }
}

impl Forward for Net {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, ids: Tensor) -> Result<Tensor> {
        let mut hidden = self.wte.call(ids)?.f_add(self.positions.tensor())?;
        for block in &self.h {
            hidden = block.call(hidden)?;
        }
        let hidden = self.statistics.call(hidden.f_flatten(0, 1)?)?;
        self.head.call(hidden)
    }
}

impl Net {
    pub(crate) fn new(kind: Kind) -> Result<Self> {
        let factory = Factory::new(tch::Device::Cpu, kind);
        let wte = Embedding::new(TOKENS, WIDTH, &factory)?;
        let mut head = Linear::without_bias(WIDTH, TOKENS, &factory)?;
        head.weight = wte.weight.clone();
        let block = || -> Result<Block> {
            Ok(Block {
                norm: LayerNorm::new(WIDTH, 1e-5, &factory)?,
                up: Linear::new(WIDTH, 2 * WIDTH, &factory)?,
                scale: Parameter::new(factory.empty(&[2 * WIDTH])?)?,
                bound: Bound {
                    inner: Linear::without_bias(WIDTH, 2 * WIDTH, &factory)?,
                    state: ModuleState::default(),
                },
                dropout: Dropout::new(0.1)?,
                state: ModuleState::default(),
            })
        };
        let net = Self {
            wte,
            positions: Buffer::non_persistent(table(&[5, WIDTH], 0.3)?.f_to_kind(kind)?),
            h: vec![block()?, block()?, block()?],
            statistics: BatchNorm1d::new(WIDTH, &factory)?,
            head,
            state: ModuleState::default(),
        };
        net.train(false);
        Ok(net)
    }

    /// With values that differ everywhere, statistics too.
    pub(crate) fn with_values(kind: Kind) -> Result<Self> {
        let net = Self::new(kind)?;
        for (place, (_, tensor)) in net.state_dict()?.into_iter().enumerate() {
            if tensor.kind() == kind {
                let values = table(&tensor.size(), 0.1 + place as f64)?;
                tensor.shallow_clone().f_copy_(&values)?;
            }
        }
        Ok(net)
    }

    pub(crate) fn empty(kind: Kind) -> Result<Self> {
        init_empty_weights(|| Self::new(kind))
    }

    pub(crate) fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        tch::no_grad(|| self.call(ids))
    }
}

/// Numbers between 0.1 and 0.9 that follow no pattern which could hide a mistake.
fn table(shape: &[i64], seed: f64) -> Result<Tensor> {
    let count = shape.iter().product::<i64>();
    let steps = Tensor::f_arange(count, (Kind::Double, tch::Device::Cpu))?;
    let waves = ((steps * 12.9898 + seed) * 78.233).f_sin()?;
    Ok((waves * 0.4 + 0.5).f_reshape(shape)?)
}

pub(crate) fn ids() -> Tensor {
    Tensor::from_slice(&[3i64, 1, 4, 1, 5, 9, 2, 6, 5, 31]).view([2, 5])
}

/// A folder with the weights of a model, in several files.
pub(crate) fn saved(model: &dyn Module) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    save_as(model, folder.path(), "3KB", true);
    folder
}

pub(crate) fn save_as(model: &dyn Module, folder: &Path, shard: &str, safe: bool) {
    let options = SaveModelOptions::default()
        .max_shard_size(shard.parse().unwrap())
        .safe_serialization(safe);
    save_model(model, folder, &options).unwrap();
}

pub(crate) fn map(places: &[(&str, Placement)]) -> DeviceMap {
    let places = places.iter();
    places.map(|(name, place)| (*name, *place)).collect()
}

pub(crate) fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
