//! What a model is that can be read from a folder and written to one.

use std::path::Path;

use accelerate::big_model::{LoadAndDispatchOptions, LoadedAndDispatched};
use accelerate::checkpoint::{LoadReport, Weights};
use accelerate::nn::{Factory, Init, Module, init_empty_weights};

use super::first_values::{InitNode, draw_first_values, usual_first_values, visit_named};
use super::{Checkpoint, PretrainedConfig, save};
use crate::Result;

/// A model with the names of its public checkpoints.
///
/// An author writes [`build`](Self::build) and says what is special: [`CHECKPOINT`](Self::CHECKPOINT)
/// for the names, [`init_module`](Self::init_module) for first values,
/// [`tie_weights`](Self::tie_weights) for weights that are one. Reading, writing and drawing first
/// values follow.
///
/// # Source
/// `PreTrainedModel` of `transformers`.
pub trait PretrainedModel: Module + Sized {
    /// The type of the configuration.
    type Config: PretrainedConfig;

    /// How public checkpoints name the parameters.
    const CHECKPOINT: Checkpoint;

    /// Members that are models of their own, made in [`build`](Self::build) by their
    /// [`new_part`](Self::new_part): they have their first values before the rest is made.
    const PARTS: &'static [&'static str] = &[];

    /// Classes of blocks that have connections around them, so that a device map keeps each in one
    /// place.
    ///
    /// # Source
    /// `_no_split_modules`.
    const NO_SPLIT: &'static [&'static str] = &[];

    /// Whether the model writes sequences: then `generation_config.json` stands beside it.
    const GENERATES: bool = false;

    /// The model with the values that the factory gives, before weights are tied.
    ///
    /// Members are made in the order in which the original makes them.
    ///
    /// # Errors
    /// If a size is negative or memory is short.
    fn build(config: &Self::Config, factory: &Factory) -> accelerate::Result<Self>;

    /// The configuration that the model was built with.
    fn config(&self) -> &Self::Config;

    /// Makes one of weights that are the same; called once the model has its first values, and
    /// before weights are read.
    fn tie_weights(&mut self) {}

    /// Gives first values to one module; by default the [usual](usual_first_values) ones.
    ///
    /// # Errors
    /// What drawing reports.
    fn init_module(config: &Self::Config, node: &InitNode<'_>) -> accelerate::Result<()> {
        usual_first_values(node, config.initializer_range())
    }

    /// What a file of weights tells about a configuration that leaves it open, such as whether
    /// a head has weights of its own.
    ///
    /// # Errors
    /// If the weights cannot be read.
    fn fit_config(config: &Self::Config, _weights: &Weights) -> accelerate::Result<Self::Config> {
        Ok(config.clone())
    }

    /// A model with new weights, in training mode.
    ///
    /// Draws the same numbers as the original for the same seed. A factory with other first
    /// values than [`Init::Layer`] is followed to the letter.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the configuration is refused, else if memory is
    /// short.
    fn new(config: &Self::Config, factory: &Factory) -> Result<Self> {
        config.check()?;
        Ok(Self::new_part(config, factory)?)
    }

    /// As [`new`](Self::new) with a configuration that was checked: for models that are part of
    /// another.
    ///
    /// # Errors
    /// If memory is short.
    fn new_part(config: &Self::Config, factory: &Factory) -> accelerate::Result<Self> {
        Self::build(config, factory)?.with_first_values(factory)
    }

    /// A model that was just built, with the first values of its kind and its weights tied.
    ///
    /// # Errors
    /// What drawing reports.
    fn with_first_values(mut self, factory: &Factory) -> accelerate::Result<Self> {
        draw_first_values(self.as_module(), factory, Self::PARTS, |node| {
            Self::init_module(self.config(), node)
        })?;
        self.tie_weights();
        Ok(self)
    }

    /// A model with the configuration and the weights of a folder, in evaluation mode.
    ///
    /// Heads that the weights lack are new, and a warning names their parameters; nothing else may
    /// be missing.
    ///
    /// # Errors
    /// Those of [`PretrainedConfig::from_folder`] and [`with_weights_of`](Self::with_weights_of).
    ///
    /// # Source
    /// `PreTrainedModel.from_pretrained`. Differs: names that are missing outside the heads, or that
    /// the model neither has nor ignores, are an error, not a warning.
    fn from_folder(folder: impl AsRef<Path>, factory: &Factory) -> Result<Self> {
        let config = Self::Config::from_folder(&folder)?;
        Self::with_weights_of(folder, &config, factory)
    }

    /// As [`from_folder`](Self::from_folder), with a configuration of the caller, such as one with
    /// other labels or without dropout.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the configuration,
    /// [`accelerate::Error::Formats`] for missing or damaged weights, and
    /// [`accelerate::Error::WeightsDoNotFit`] naming everything that does not fit.
    fn with_weights_of(
        folder: impl AsRef<Path>,
        config: &Self::Config,
        factory: &Factory,
    ) -> Result<Self> {
        config.check()?;
        let weights = Weights::open(folder).map_err(accelerate::Error::from)?;
        let config = Self::fit_config(config, &weights)?;
        let mut model = Self::build(&config, &factory.with_init(Init::Skip))?;
        model.tie_weights();
        model.read_weights(&weights)?;
        model.train(false);
        Ok(model)
    }

    /// A model with the configuration and the weights of a folder, spread over places of which none
    /// need hold all of it, in evaluation mode. Weights come from the mapped files when they are
    /// needed: see [`load_checkpoint_and_dispatch`](accelerate::big_model::load_checkpoint_and_dispatch).
    ///
    /// Blocks of the model's [classes](Self::NO_SPLIT) stay whole, unless the options name others.
    ///
    /// # Errors
    /// As [`with_weights_of`](Self::with_weights_of), but no head may be missing, and those of
    /// [`load_checkpoint_and_dispatch`](accelerate::big_model::load_checkpoint_and_dispatch).
    ///
    /// # Source
    /// `PreTrainedModel.from_pretrained` with `device_map`.
    fn dispatched(
        folder: impl AsRef<Path>,
        config: &Self::Config,
        factory: &Factory,
        options: &LoadAndDispatchOptions<'_>,
    ) -> Result<(Self, LoadedAndDispatched)> {
        config.check()?;
        let weights = Weights::open(&folder).map_err(accelerate::Error::from)?;
        let config = Self::fit_config(config, &weights)?;
        drop(weights);
        let factory = factory.with_init(Init::Skip);
        let mut model = init_empty_weights(|| Self::build(&config, &factory))?;
        model.tie_weights();
        model.train(false);
        let mut options = options.clone();
        if options.no_split_module_classes.is_empty() {
            let classes = Self::NO_SPLIT.iter().map(|&class| class.to_owned());
            options.no_split_module_classes = classes.collect();
        }
        let loaded =
            Self::CHECKPOINT.load_and_dispatch(model.as_module(), folder.as_ref(), &options)?;
        Ok((model, loaded))
    }

    /// Copies weights into the model; heads that they lack get first values.
    ///
    /// # Errors
    /// [`accelerate::Error::WeightsDoNotFit`] naming everything that does not fit.
    fn read_weights(&self, weights: &Weights) -> Result<LoadReport> {
        let report = Self::CHECKPOINT.load(self.as_module(), weights)?;
        visit_named(self.as_module(), &report.newly_initialized, |node| {
            Self::init_module(self.config(), node)
        })?;
        Ok(report)
    }

    /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is absent.
    ///
    /// `transformers` reads the folder. Tied weights are written once. Each file is whole or
    /// absent; what else is in the folder stays. A model that writes sequences gets a
    /// `generation_config.json` with the special tokens of its configuration, unless there is one:
    /// [`GenerationConfig::save_pretrained`](crate::generation::GenerationConfig::save_pretrained)
    /// puts other settings there, before or after.
    ///
    /// # Errors
    /// [`Error::SaveFolder`](crate::Error::SaveFolder) if the folder cannot be made, and
    /// [`accelerate::Error::Formats`] if a file cannot be written.
    ///
    /// # Source
    /// `PreTrainedModel.save_pretrained`. Differs: a model carries no settings for generation, so
    /// those of the folder it was read from are for the caller to read and to write.
    fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<()> {
        let config = self.config().to_json(self.class_name())?;
        let folder = folder.as_ref();
        let generation = Self::GENERATES.then(|| config.clone());
        save::folder(self.as_module(), config, folder)?;
        match generation {
            Some(config) => save::generation_settings(&config, folder),
            None => Ok(()),
        }
    }
}

/// The widths of a model's hidden states, as its configuration says.
pub(crate) fn hidden_sizes<M: PretrainedModel>(model: &M) -> Vec<u64> {
    let sizes = model.config().hidden_sizes().into_iter();
    sizes.filter_map(|size| u64::try_from(size).ok()).collect()
}
