//! "A model of this task", whatever its kind.

use super::{ConfigFile, ModelType, PretrainedConfig};
use crate::Result;

/// The configuration of a file if it is of the kind `C`; for [`auto_model`](crate::auto_model).
///
/// # Errors
/// As for [`PretrainedConfig::from_file`].
pub fn config_if<C: PretrainedConfig>(file: &ConfigFile, kind: ModelType) -> Result<Option<C>> {
    (kind == C::MODEL_TYPE)
        .then(|| C::from_file(file))
        .transpose()
}

/// Makes an enum of models for one task, each variant a kind of model.
///
/// The enum is a module, reads a folder of any of its kinds (`from_folder`) and writes one
/// (`save_pretrained`). Where all kinds take and give the same, `forward(Input => Output)` behind
/// the name of the task makes the enum callable.
///
/// ```
/// use accelerate::nn::Factory;
/// use accelerate_models::auto_model;
/// use accelerate_models::bert::{
///     BertForSequenceClassification, BertInput, SequenceClassifierOutput,
/// };
///
/// auto_model! {
///     /// A model that classifies texts.
///     pub enum Classifier for "sequence classification",
///         forward(BertInput => SequenceClassifierOutput)
///     {
///         /// BERT.
///         Bert(BertForSequenceClassification),
///     }
/// }
/// let error = Classifier::from_folder("nowhere", &Factory::default()).unwrap_err();
/// assert!(error.to_string().contains("config.json"));
/// ```
#[macro_export]
macro_rules! auto_model {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident for $task:literal, forward($input:ty => $output:ty)
        {
            $($(#[$variant_meta:meta])* $variant:ident($model:ty)),+ $(,)?
        }
    ) => {
        $crate::auto_model! {
            $(#[$meta])*
            $visibility enum $name for $task {
                $($(#[$variant_meta])* $variant($model)),+
            }
        }

        impl ::accelerate::nn::Forward for $name {
            type Input = $input;
            type Output = $output;

            // The hooks are those of the model inside, and run around this.
            fn forward(&self, input: Self::Input) -> ::accelerate::Result<Self::Output> {
                match self {
                    $(Self::$variant(model) => ::accelerate::nn::Forward::forward(model, input)),+
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident for $task:literal
        {
            $($(#[$variant_meta:meta])* $variant:ident($model:ty)),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, ::accelerate::nn::Module)]
        #[non_exhaustive]
        $visibility enum $name {
            $($(#[$variant_meta])* $variant($model)),+
        }

        impl $name {
            /// The kinds of models that have this task.
            pub const MODEL_TYPES: &'static [$crate::pretrained::ModelType] = &[$(
                <<$model as $crate::pretrained::PretrainedModel>::Config
                    as $crate::pretrained::PretrainedConfig>::MODEL_TYPE
            ),+];

            /// The model of a folder, of whichever kind its configuration says, in evaluation mode.
            ///
            /// # Errors
            /// [`Error::UnknownModelType`]($crate::Error::UnknownModelType) for a kind that nobody
            /// knows, [`Error::Task`]($crate::Error::Task) for one that does not have this task,
            /// and those of
            /// [`PretrainedModel::from_folder`]($crate::pretrained::PretrainedModel::from_folder).
            pub fn from_folder(
                folder: impl AsRef<::std::path::Path>,
                factory: &::accelerate::nn::Factory,
            ) -> $crate::Result<Self> {
                use $crate::pretrained::PretrainedModel;
                let (file, kind) = Self::kind_in(folder.as_ref())?;
                $(if let Some(config) = $crate::pretrained::config_if(&file, kind)? {
                    return <$model>::with_weights_of(folder, &config, factory).map(Self::$variant);
                })+
                Err(Self::not_of_this_task(&file, kind))
            }

            /// The model of a folder, spread over places of which none need hold all of it, in
            /// evaluation mode.
            ///
            /// # Errors
            /// As for [`from_folder`](Self::from_folder), and those of
            /// [`PretrainedModel::dispatched`]($crate::pretrained::PretrainedModel::dispatched).
            pub fn dispatched_from_folder(
                folder: impl AsRef<::std::path::Path>,
                factory: &::accelerate::nn::Factory,
                options: &::accelerate::big_model::LoadAndDispatchOptions<'_>,
            ) -> $crate::Result<(Self, ::accelerate::big_model::LoadedAndDispatched)> {
                use $crate::pretrained::PretrainedModel;
                let (file, kind) = Self::kind_in(folder.as_ref())?;
                $(if let Some(config) = $crate::pretrained::config_if(&file, kind)? {
                    let (model, loaded) = <$model>::dispatched(folder, &config, factory, options)?;
                    return Ok((Self::$variant(model), loaded));
                })+
                Err(Self::not_of_this_task(&file, kind))
            }

            /// A model with new weights and the configuration of a folder, in training mode.
            ///
            /// # Errors
            /// As for [`from_folder`](Self::from_folder), except for those of the weights.
            pub fn new_like(
                folder: impl AsRef<::std::path::Path>,
                factory: &::accelerate::nn::Factory,
            ) -> $crate::Result<Self> {
                use $crate::pretrained::PretrainedModel;
                let (file, kind) = Self::kind_in(folder.as_ref())?;
                $(if let Some(config) = $crate::pretrained::config_if(&file, kind)? {
                    return <$model>::new(&config, factory).map(Self::$variant);
                })+
                Err(Self::not_of_this_task(&file, kind))
            }

            /// Writes the model as
            /// [`PretrainedModel::save_pretrained`]($crate::pretrained::PretrainedModel::save_pretrained)
            /// does.
            ///
            /// # Errors
            /// As there.
            pub fn save_pretrained(
                &self,
                folder: impl AsRef<::std::path::Path>,
            ) -> $crate::Result<()> {
                match self {
                    $(Self::$variant(model) => {
                        $crate::pretrained::PretrainedModel::save_pretrained(model, folder)
                    })+
                }
            }

            fn kind_in(
                folder: &::std::path::Path,
            ) -> $crate::Result<($crate::pretrained::ConfigFile, $crate::pretrained::ModelType)> {
                let file = $crate::pretrained::ConfigFile::read(folder)?;
                let kind = file.kind()?;
                Ok((file, kind))
            }

            fn not_of_this_task(
                file: &$crate::pretrained::ConfigFile,
                found: $crate::pretrained::ModelType,
            ) -> $crate::Error {
                $crate::Error::Task {
                    path: file.path().to_owned(),
                    task: $task,
                    found,
                    known: Self::MODEL_TYPES.to_vec(),
                }
            }
        }
    };
}
