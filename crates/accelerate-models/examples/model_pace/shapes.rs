//! The sizes of models and batches, which the Python side reads too.

use std::collections::BTreeMap;
use std::error::Error;

use accelerate::nn::Factory;
use accelerate_models::{PretrainedConfig, PretrainedModel};
use serde::Deserialize;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

/// Where the sizes are, from the workspace's root.
const SIZES: &str = "tests/parity/bench_models.json";

/// One model and its batch.
#[derive(Debug, Deserialize)]
pub(crate) struct Shape {
    rows: i64,
    #[serde(default)]
    tokens: i64,
    #[serde(default)]
    pixels: i64,
    config: Value,
}

/// The shapes of each model by the name of the size.
pub(crate) type Sizes = BTreeMap<String, Shape>;

/// All models.
pub(crate) fn read() -> Result<BTreeMap<String, Sizes>, Box<dyn Error>> {
    let text = std::fs::read_to_string(SIZES).map_err(|error| format!("`{SIZES}`: {error}"))?;
    Ok(serde_json::from_str(&text)?)
}

impl Shape {
    /// A new model, with the weights that seed 0 gives.
    pub(crate) fn model<M: PretrainedModel>(&self) -> Result<M, Box<dyn Error>> {
        let mut config: M::Config = serde_json::from_value(self.config.clone())?;
        config.settle();
        tch::manual_seed(0);
        Ok(M::new(&config, &Factory::default())?)
    }

    /// Samples in a batch.
    pub(crate) fn rows(&self) -> i64 {
        self.rows
    }

    /// Token ids that differ from row to row.
    pub(crate) fn token_ids(&self, tokens: Option<i64>) -> Result<Tensor, Box<dyn Error>> {
        self.ids_from(0, tokens.unwrap_or(self.tokens))
    }

    /// Token ids that differ from rank to rank too.
    pub(crate) fn token_ids_of(&self, rank: usize) -> Result<Tensor, Box<dyn Error>> {
        self.ids_from(self.rows * self.tokens * i64::try_from(rank)?, self.tokens)
    }

    fn ids_from(&self, first: i64, tokens: i64) -> Result<Tensor, Box<dyn Error>> {
        let vocabulary = self.config["vocab_size"].as_i64();
        let vocabulary = vocabulary.ok_or("a model without `vocab_size` has no token ids")?;
        let ids: Vec<i64> = (first..first + self.rows * tokens)
            .map(|index| index * 7 % (vocabulary - 3) + 2)
            .collect();
        Ok(Tensor::f_from_slice(&ids)?.f_view([self.rows, tokens])?)
    }

    /// Images whose pixels lie between -1 and 1.
    pub(crate) fn images(&self) -> Result<Tensor, Box<dyn Error>> {
        let shape = [self.rows, 3, self.pixels, self.pixels];
        let count = shape.iter().product::<i64>();
        let pixels = Tensor::f_arange(count, (Kind::Float, Device::Cpu))?
            .f_remainder(251.0)?
            .f_div_scalar(125.0)?
            .f_sub_scalar(1.0)?;
        Ok(pixels.f_view(shape)?)
    }

    /// One of `classes` for each row.
    pub(crate) fn classes(&self, classes: i64) -> Result<Tensor, Box<dyn Error>> {
        let rows: Vec<i64> = (0..self.rows).map(|row| row % classes).collect();
        Ok(Tensor::f_from_slice(&rows)?)
    }
}
