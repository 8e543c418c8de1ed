//! Operations between ranks, as methods.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tch::Tensor;

use super::Accelerator;
use crate::collectives::{self, Reduction};
use crate::nn::IntoInput;
use crate::tree::{self, SendOptions, Tree};
use crate::{Result, state::PartialState};

impl Accelerator {
    /// Joins the tensors of all ranks along dimension 0, in the order of ranks.
    ///
    /// # Collective
    /// Every rank calls this with the same tree.
    ///
    /// # Errors
    /// As [`collectives::gather`].
    #[track_caller]
    pub fn gather<T: Tree>(&self, values: impl IntoInput<T>) -> Result<T> {
        collectives::gather(self.state(), values.into_input())
    }

    /// Joins the lists of all ranks, in the order of ranks.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`collectives::gather_object`].
    #[track_caller]
    pub fn gather_object<T: Serialize + DeserializeOwned>(&self, own: Vec<T>) -> Result<Vec<T>> {
        collectives::gather_object(self.state(), own)
    }

    /// Reduces the tensors of all ranks to one value that every rank gets.
    ///
    /// # Collective
    /// Every rank calls this with the same tree.
    ///
    /// # Errors
    /// As [`collectives::reduce`].
    #[track_caller]
    pub fn reduce<T: Tree>(&self, values: impl IntoInput<T>, reduction: Reduction) -> Result<T> {
        collectives::reduce(self.state(), values.into_input(), reduction)
    }

    /// Copies the tensors of one rank to all, in place.
    ///
    /// # Collective
    /// Every rank calls this with the same `from_process`.
    ///
    /// # Errors
    /// As [`collectives::broadcast`].
    #[track_caller]
    pub fn broadcast<T: Tree>(&self, values: impl IntoInput<T>, from_process: usize) -> Result<T> {
        collectives::broadcast(self.state(), values.into_input(), from_process)
    }

    /// Puts the list of one rank in place of that of every other.
    ///
    /// # Collective
    /// Every rank calls this with the same `from_process`.
    ///
    /// # Errors
    /// As [`collectives::broadcast_object_list`].
    #[track_caller]
    pub fn broadcast_object_list<T: Serialize + DeserializeOwned>(
        &self,
        list: &mut Vec<T>,
        from_process: usize,
    ) -> Result<()> {
        collectives::broadcast_object_list(self.state(), list, from_process)
    }

    /// Gives every rank the tensor that exactly one of them has.
    ///
    /// # Collective
    /// Every rank calls this, all but one with `None`.
    ///
    /// # Errors
    /// As [`collectives::copy_tensor_to_devices`].
    #[track_caller]
    pub fn copy_tensor_to_devices(&self, tensor: Option<&Tensor>) -> Result<Tensor> {
        collectives::copy_tensor_to_devices(self.state(), tensor)
    }

    /// Makes tensors as long in one dimension as the longest of any rank.
    ///
    /// # Collective
    /// Every rank calls this with the same tree.
    ///
    /// # Errors
    /// As [`collectives::pad_across_processes`].
    #[track_caller]
    pub fn pad_across_processes<T: Tree>(
        &self,
        values: impl IntoInput<T>,
        dim: i64,
        pad_index: f64,
        pad_first: bool,
    ) -> Result<T> {
        let state: &PartialState = self.state();
        collectives::pad_across_processes(state, values.into_input(), dim, pad_index, pad_first)
    }

    /// Moves every tensor to this process's device.
    ///
    /// # Errors
    /// As [`tree::send_to_device`].
    pub fn send_to_device<T: Tree>(
        &self,
        values: impl IntoInput<T>,
        options: &SendOptions,
    ) -> Result<T> {
        tree::send_to_device(values.into_input(), self.device(), options)
    }
}
