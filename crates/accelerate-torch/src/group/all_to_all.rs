//! Every rank sends a part to every other.

use tch::{Device, Tensor};

use super::collective::GROUP_TIMEOUT;
use super::{ProcessGroup, Work};
use crate::status::{raw, raw_list};
use crate::{Error, Result, ffi};

impl ProcessGroup {
    /// Sends `inputs[i]` to rank `i`, whose `outputs` get it at the sender's number.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn all_to_all(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<()> {
        self.all_to_all_async(outputs, inputs)?.wait()
    }

    /// Starts [`all_to_all`](Self::all_to_all).
    ///
    /// # Errors
    /// As [`all_gather_async`](Self::all_gather_async).
    pub fn all_to_all_async(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<Work> {
        self.one_for_each("all-to-all", outputs)?;
        self.one_for_each("all-to-all", inputs)?;
        if inputs.iter().all(|tensor| tensor.device() == Device::Cpu) {
            return self.all_to_all_packed(outputs, inputs);
        }
        let (to, from) = (raw_list(outputs), raw_list(inputs));
        let tensors: Vec<&Tensor> = outputs.iter().chain(inputs).collect();
        self.start("all-to-all", &tensors, |out| {
            // SAFETY: group and tensors are alive; both lists are valid for the call.
            unsafe {
                ffi::acc_all_to_all(
                    self.raw(),
                    to.as_ptr(),
                    from.as_ptr(),
                    to.len(),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })
    }

    /// Gloo's own form takes tensors of one size only: all go in one buffer instead.
    fn all_to_all_packed(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<Work> {
        let kind = inputs[0].kind();
        if let Some(other) = outputs
            .iter()
            .chain(inputs)
            .find(|tensor| tensor.kind() != kind)
        {
            return Err(Error::Argument {
                operation: "all-to-all",
                expected: format!("tensors of one kind, {kind:?}"),
                found: format!("{:?}", other.kind()),
            });
        }
        let flat = inputs.iter().map(|tensor| tensor.f_flatten(0, -1));
        let input = Tensor::f_cat(&flat.collect::<Result<Vec<_>, _>>()?, 0)?;
        let (to, from) = (lengths(inputs), lengths(outputs));
        let output = Tensor::f_empty([from.iter().sum::<i64>()], (kind, input.device()))?;
        let work = self.all_to_all_single_async(&output, &input, &from, &to)?;
        let outputs: Vec<_> = outputs.iter().map(Tensor::shallow_clone).collect();
        Ok(work.then(move || {
            let parts = output.f_split_with_sizes(from, 0)?;
            tch::no_grad(|| {
                for (mut place, part) in outputs.into_iter().zip(parts) {
                    place.f_copy_(&part.f_view(place.size().as_slice())?)?;
                }
                Ok(())
            })
        }))
    }

    /// Sends a part of `input` to every rank, and puts what comes into `output`.
    ///
    /// # Shapes
    /// - input: `[sum of input_splits, ...]`; empty splits stand for equal parts
    /// - output: `[sum of output_splits, ...]`
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_to_all_single(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: &[i64],
        input_splits: &[i64],
    ) -> Result<()> {
        self.all_to_all_single_async(output, input, output_splits, input_splits)?
            .wait()
    }

    /// Starts [`all_to_all_single`](Self::all_to_all_single).
    ///
    /// # Errors
    /// [`Error::Argument`] for a wrong number of splits.
    pub fn all_to_all_single_async(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: &[i64],
        input_splits: &[i64],
    ) -> Result<Work> {
        let operation = "all-to-all of one tensor";
        let fits = |splits: &[i64]| splits.is_empty() || splits.len() == self.size();
        if !fits(output_splits) || !fits(input_splits) || output_splits.len() != input_splits.len()
        {
            return Err(Error::Argument {
                operation,
                expected: format!("no splits, or {} on both sides", self.size()),
                found: format!("{} and {}", output_splits.len(), input_splits.len()),
            });
        }
        self.start(operation, &[output, input], |out| {
            // SAFETY: group and tensors are alive; the splits are valid for the call.
            unsafe {
                ffi::acc_all_to_all_single(
                    self.raw(),
                    raw(output),
                    raw(input),
                    output_splits.as_ptr(),
                    input_splits.as_ptr(),
                    output_splits.len(),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })
    }
}

fn lengths(tensors: &[Tensor]) -> Vec<i64> {
    tensors
        .iter()
        .map(|tensor| i64::try_from(tensor.numel()).unwrap_or(i64::MAX))
        .collect()
}
