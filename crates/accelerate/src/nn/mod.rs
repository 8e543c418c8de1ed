//! The module tree: layers and models with PyTorch's names, and hooks that fire on call.
//!
//! A model is a struct of parameters, buffers and child modules; [`derive(Module)`](macro@Module)
//! makes it a node of the tree, with the class and member names its public checkpoint uses. A
//! model author writes [`Forward::forward`]; whoever uses a module calls [`Forward::call`], which
//! runs the module's [hooks](Hook) around it.
//!
//! | file | room for |
//! | --- | --- |
//! | [`Module`], [`Member`], [`ModuleField`] | the tree: what a module is made of, and the walks over it |
//! | [`Forward`], [`IntoInput`] | calling a module |
//! | [`ModuleState`], [`Hook`], [`BackwardHook`] | mode and hooks of one module |
//! | [`checkpoint_module`] | activations that are computed again rather than kept |
//! | [`Layer`], [`Sequential`] | modules whose type is chosen at run time, one after another |
//! | [`init_empty_weights`], [`InitScope`] | models without memory, to be filled later |
//! | [`Parameter`], [`Buffer`] | tensors that belong to a module |
//! | [`Factory`], [`Init`] | where, in which type and with which values new tensors are made |
//! | [`RmsNorm`], [`RotaryEmbedding`], [`MixtureOfExperts`] | layers of newer language models |
//! | [`Linear`], [`Embedding`], [`LayerNorm`], [`Dropout`], [`Activation`], [`Identity`] | layers |
//! | [`Conv1d`], [`Conv2d`], [`BatchNorm`], [`MaxPool2d`], [`AvgPool2d`], [`AdaptiveAvgPool2d`], [`Flatten`] | layers for images and signals |
//! | [`convert_sync_batchnorm`] | batch norms over the batches of all ranks |
//! | [`SequentialOf`] | layers of one type in a row |
//! | [`scaled_dot_product_attention`], [`alibi_biases`] | attention |
//! | [`VarStoreModel`] | models held in a plain `tch::nn::VarStore` |
//!
//! ```
//! use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
//! use accelerate::tch::{Kind, Device, Tensor};
//!
//! #[derive(Module)]
//! struct Perceptron {
//!     hidden: Linear,
//!     output: Linear,
//!     state: ModuleState,
//! }
//!
//! impl Forward for Perceptron {
//!     type Input = Tensor;
//!     type Output = Tensor;
//!
//!     fn forward(&self, input: Tensor) -> accelerate::Result<Tensor> {
//!         self.output.call(self.hidden.call(input)?.f_relu()?)
//!     }
//! }
//!
//! let factory = Factory::default();
//! let model = Perceptron {
//!     hidden: Linear::new(4, 8, &factory)?,
//!     output: Linear::new(8, 2, &factory)?,
//!     state: ModuleState::default(),
//! };
//! let names: Vec<_> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]);
//!
//! let batch = Tensor::f_zeros([3, 4], (Kind::Float, Device::Cpu))?;
//! assert_eq!(model.call(&batch)?.size(), [3, 2]);
//! # Ok::<(), accelerate::Error>(())
//! ```

mod activation;
mod activation_checkpoint;
mod alibi;
mod attention;
mod backward_hook;
mod batch_norm;
mod buffer;
mod convolution;
mod display;
mod dropout;
mod embedding;
mod factory;
mod field;
mod find;
mod flat;
mod flatten;
mod forward;
mod hook;
mod identity;
pub mod init;
mod init_scope;
mod layer;
mod layer_norm;
mod linear;
mod list;
mod module;
mod moe;
mod moves;
mod parameter;
mod pooling;
mod rms_norm;
mod rotary;
mod sequential;
mod sequential_of;
mod shape_only;
mod surroundings;
mod ties;
mod var_store;
mod walk;

/// Implements [`Module`](trait@Module) for a struct of named fields, or for an enum of modules.
pub use accelerate_derive::Module;

pub use self::activation::{Activation, ActivationFunction, UnknownActivation};
pub use self::activation_checkpoint::{ActivationCheckpoint, KeptInputs, checkpoint_module};
pub use self::alibi::{alibi_biases, alibi_slopes};
pub use self::attention::{Attention, scaled_dot_product_attention};
pub use self::backward_hook::BackwardHook;
pub use self::batch_norm::{
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, BatchNormSync,
    convert_sync_batchnorm,
};
pub use self::buffer::Buffer;
pub use self::convolution::{
    Conv1d, Conv1dOptions, Conv2d, Conv2dOptions, ConvOptions, ConvPadding,
};
pub use self::display::ModuleText;
pub use self::dropout::Dropout;
pub use self::embedding::Embedding;
pub use self::factory::Factory;
pub use self::field::ModuleField;
pub use self::flatten::Flatten;
pub use self::forward::{Forward, IntoInput};
pub use self::hook::{Hook, HookId, ModuleState};
pub use self::identity::Identity;
pub use self::init::Init;
pub use self::init_scope::{InitScope, init_empty_weights, shapes_only};
pub use self::layer::Layer;
pub use self::layer_norm::LayerNorm;
pub use self::linear::Linear;
pub use self::module::{AsModule, Member, MemberMut, Module};
pub use self::moe::{MixtureOfExperts, Routes, load_balancing_loss};
pub use self::parameter::Parameter;
pub use self::pooling::{
    AdaptiveAvgPool2d, AvgPool2d, AvgPool2dOptions, MaxPool2d, MaxPool2dOptions,
};
pub use self::rms_norm::RmsNorm;
pub use self::rotary::{
    LongRopeScaling, RotaryEmbedding, RotaryScaling, RotarySettings, YarnScaling, rotate,
};
pub use self::sequential::Sequential;
pub use self::sequential_of::SequentialOf;
pub use self::var_store::VarStoreModel;

pub(crate) use self::activation_checkpoint::is_any_checkpointed;
pub(crate) use self::flat::FlatMembers;
pub(crate) use self::moves::{materialize_where, require_state, require_values};
pub(crate) use self::walk::{
    TensorMut, buffers as all_buffers, parameters as all_parameters, state as all_state,
    tensors_mut,
};

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod tests;
