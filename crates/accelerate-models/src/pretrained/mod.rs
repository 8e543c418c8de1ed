//! What every model shares: a folder with `config.json` and weights, and the way from and to it.
//!
//! | file | room for |
//! | --- | --- |
//! | [`PretrainedConfig`] | a model's `config.json` |
//! | [`ConfigChecks`] | what configurations of many models have to keep to |
//! | [`PretrainedModel`] | a model: how it is built, read from a folder and written to one |
//! | [`Checkpoint`] | how public checkpoints name the parameters of a model |
//! | [`InitNode`] | first values, drawn as the original draws them |
//! | [`ModelType`] | the kinds of models there are, and which of them a folder holds |
//! | [`auto_model`](crate::auto_model) | one type for "a model of this task", whatever its kind |
//!
//! A model brings its structure and its names; everything else follows:
//!
//! ```
//! use accelerate::nn::Factory;
//! use accelerate_models::bert::{BertConfig, BertForMaskedLM, BertModel};
//! use accelerate_models::pretrained::PretrainedModel;
//!
//! let config: BertConfig = serde_json::from_str(
//!     r#"{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
//!         "intermediate_size": 16, "max_position_embeddings": 12}"#,
//! )?;
//! let folder = tempfile::tempdir()?;
//! BertForMaskedLM::new(&config, &Factory::default())?.save_pretrained(&folder)?;
//! // The head is left out where the bare model is asked for.
//! let bare = BertModel::from_folder(&folder, &Factory::default())?;
//! assert_eq!(bare.config(), &config);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod activation_name;
mod auto;
mod checkpoint;
mod checks;
mod config;
mod config_file;
mod first_values;
mod labels;
mod model;
mod model_type;
mod other_keys;
mod pipeline;
mod save;

pub use self::activation_name::ActivationName;
pub use self::auto::config_if;
pub use self::checkpoint::Checkpoint;
pub use self::checks::ConfigChecks;
pub use self::config::PretrainedConfig;
pub(crate) use self::config_file::parse_config;
pub use self::config_file::{CONFIG_FILE, ConfigFile};
pub use self::first_values::{InitNode, draw_first_values, usual_first_values};
pub use self::labels::Labels;
pub use self::model::PretrainedModel;
pub(crate) use self::model::hidden_sizes;
pub use self::model_type::ModelType;
pub use self::other_keys::OtherKeys;
pub use self::pipeline::pipeline_from_folder;
pub use self::save::WEIGHTS_FILE;
