//! Gradients averaged over ranks during the backward pass.

use std::error::Error as _;

use accelerate_torch::{
    Error, ProcessGroup, Reducer, ReducerOptions, Result, autograd, verify_parameters,
};
use tch::{Kind, Tensor};

use crate::network::{Network, assert_equal, averaged, backward, expected, gradients, input, leaf};
use crate::support::{Outcome, float, numbers, on_ranks, real};

#[test]
fn gradients_are_reduced() {
    on_ranks!(
        gradients_are_averages_over_ranks,
        gradients_may_be_views_of_the_buckets,
        buckets_are_rebuilt_once,
        gradients_stay_local_without_a_call,
        a_branch_of_one_rank_is_found,
        a_static_graph_may_leave_a_parameter_out,
        a_parameter_without_gradient_is_named,
        a_reducer_needs_parameters,
        parameters_are_compared_over_ranks,
        parameters_of_two_kinds_have_buckets_of_their_own,
    );
}

const SIZES: [i64; 3] = [8, 16, 4];

/// Buckets so small that every layer has its own.
fn small_buckets() -> ReducerOptions {
    ReducerOptions {
        bucket_bytes: 64,
        first_bucket_bytes: 64,
        ..ReducerOptions::default()
    }
}

fn rows(group: &ProcessGroup, step: usize) -> Result<Tensor> {
    input(group.rank(), step, 4, SIZES[0])
}

/// Three steps under these options; every one has to give the averages.
fn steps_average(group: &ProcessGroup, options: &ReducerOptions) -> Result<()> {
    let network = Network::new(&SIZES)?;
    let reducer = Reducer::new(group, &network.parameters(), options)?;
    for step in 0..3 {
        network.reduced_step(&reducer, &rows(group, step)?)?;
        let found = gradients(&network.tensors())?;
        assert_equal(
            group,
            &found,
            &expected(group, &SIZES, &rows(group, step)?)?,
        )?;
        network.clear_gradients()?;
    }
    Ok(())
}

fn gradients_are_averages_over_ranks(group: &ProcessGroup) -> Outcome {
    steps_average(group, &ReducerOptions::default())?;
    steps_average(group, &small_buckets())?;
    Ok(())
}

fn gradients_may_be_views_of_the_buckets(group: &ProcessGroup) -> Outcome {
    for gradient_as_bucket_view in [false, true] {
        let options = ReducerOptions {
            gradient_as_bucket_view,
            ..ReducerOptions::default()
        };
        let network = Network::new(&SIZES)?;
        let reducer = Reducer::new(group, &network.parameters(), &options)?;
        network.reduced_step(&reducer, &rows(group, 0)?)?;
        network.clear_gradients()?;
        network.reduced_step(&reducer, &rows(group, 1)?)?;
        let found = gradients(&network.tensors())?;
        assert_equal(group, &found, &expected(group, &SIZES, &rows(group, 1)?)?)?;
        let places = network
            .tensors()
            .iter()
            .map(storage_size)
            .collect::<Result<Vec<_>>>()?;
        // All 212 values lie in one bucket, or every gradient has its own memory.
        assert_eq!(
            places.iter().all(|&place| place == 4 * 212),
            gradient_as_bucket_view
        );
    }
    Ok(())
}

/// The bytes of the storage that a parameter's gradient lies in.
fn storage_size(parameter: &Tensor) -> Result<usize> {
    let gradient = autograd::grad(parameter)?.map_or_else(|| float(&[]), Ok)?;
    accelerate_torch::storage::storage_bytes(&gradient)
}

fn buckets_are_rebuilt_once(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    let reducer = Reducer::new(group, &network.parameters(), &small_buckets())?;
    let mut rebuilt = Vec::new();
    for step in 0..4 {
        reducer.prepare_for_forward()?;
        rebuilt.push(reducer.rebuild_buckets()?);
        let loss = network.loss(&rows(group, step)?)?;
        reducer.prepare_for_backward(&[])?;
        backward(&loss)?;
    }
    assert_eq!(rebuilt, [false, true, false, false]);
    Ok(())
}

fn gradients_stay_local_without_a_call(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    let reducer = Reducer::new(group, &network.parameters(), &ReducerOptions::default())?;
    // Two passes accumulate here, the third is reduced with all of them.
    backward(&network.loss(&rows(group, 0)?)?)?;
    let local = gradients(&network.tensors())?;
    let alone = Network::new(&SIZES)?;
    backward(&alone.loss(&rows(group, 0)?)?)?;
    for (found, expected) in local.iter().zip(gradients(&alone.tensors())?) {
        assert!(found.f_equal(&expected)?);
    }
    backward(&network.loss(&rows(group, 1)?)?)?;
    network.reduced_step(&reducer, &rows(group, 2)?)?;
    for step in 1..3 {
        backward(&alone.loss(&rows(group, step)?)?)?;
    }
    let expected = averaged(group, &gradients(&alone.tensors())?)?;
    assert_equal(group, &gradients(&network.tensors())?, &expected)?;
    Ok(())
}

/// A network with a second output that not every step uses.
struct Branched {
    trunk: Network,
    branch: Tensor,
    idle: Tensor,
}

impl Branched {
    fn new() -> Result<Self> {
        let (branch, idle) = (leaf(&[1, SIZES[2]], 0.3)?, leaf(&[5], 0.9)?);
        Ok(Self {
            trunk: Network::new(&SIZES)?,
            branch,
            idle,
        })
    }

    fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = self.trunk.parameters();
        all.push(("branch.weight".to_owned(), self.branch.shallow_clone()));
        all.push(("idle.weight".to_owned(), self.idle.shallow_clone()));
        all
    }

    fn loss(&self, input: &Tensor, with_branch: bool) -> Result<Tensor> {
        let trunk = self.trunk.forward(input)?;
        let loss = trunk.f_square()?.f_mean(None)?;
        if !with_branch {
            return Ok(loss);
        }
        Ok(loss.f_add(&trunk.f_linear(&self.branch, None::<Tensor>)?.f_mean(None)?)?)
    }

    fn step(&self, reducer: &Reducer, input: &Tensor, with_branch: bool) -> Result<()> {
        reducer.prepare_for_forward()?;
        reducer.rebuild_buckets()?;
        let loss = self.loss(input, with_branch)?;
        reducer.prepare_for_backward(&[loss.shallow_clone()])?;
        backward(&loss)
    }

    /// The averages that a step has to give; the branch counts on ranks that use it.
    fn expected(group: &ProcessGroup, input: &Tensor, with_branch: bool) -> Result<Vec<Tensor>> {
        let alone = Self::new()?;
        backward(&alone.loss(input, with_branch)?)?;
        let mut local = gradients(&alone.trunk.tensors())?;
        local.push(match autograd::grad(&alone.branch)? {
            Some(gradient) => gradient,
            None => alone.branch.f_detach()?.f_zeros_like()?,
        });
        averaged(group, &local)
    }

    fn assert_averages(&self, group: &ProcessGroup, expected: &[Tensor]) -> Result<()> {
        let mut tensors = self.trunk.tensors();
        tensors.push(self.branch.shallow_clone());
        assert_equal(group, &gradients(&tensors)?, expected)?;
        assert!(autograd::grad(&self.idle)?.is_none(), "nobody used it");
        Ok(())
    }
}

fn a_branch_of_one_rank_is_found(group: &ProcessGroup) -> Outcome {
    let options = ReducerOptions {
        find_unused_parameters: true,
        ..small_buckets()
    };
    let network = Branched::new()?;
    let reducer = Reducer::new(group, &network.parameters(), &options)?;
    for step in 0..3 {
        let with_branch = group.rank() == step % 2;
        network.step(&reducer, &rows(group, step)?, with_branch)?;
        let expected = Branched::expected(group, &rows(group, step)?, with_branch)?;
        network.assert_averages(group, &expected)?;
        network.trunk.clear_gradients()?;
        autograd::set_grad(&network.branch, None)?;
    }
    Ok(())
}

fn a_static_graph_may_leave_a_parameter_out(group: &ProcessGroup) -> Outcome {
    for find_unused_parameters in [false, true] {
        let options = ReducerOptions {
            static_graph: true,
            find_unused_parameters,
            ..small_buckets()
        };
        let network = Branched::new()?;
        let reducer = Reducer::new(group, &network.parameters(), &options)?;
        for step in 0..3 {
            network.step(&reducer, &rows(group, step)?, true)?;
            let expected = Branched::expected(group, &rows(group, step)?, true)?;
            network.assert_averages(group, &expected)?;
            network.trunk.clear_gradients()?;
            autograd::set_grad(&network.branch, None)?;
        }
    }
    Ok(())
}

fn a_parameter_without_gradient_is_named(group: &ProcessGroup) -> Outcome {
    let network = Branched::new()?;
    let reducer = Reducer::new(group, &network.parameters(), &ReducerOptions::default())?;
    network.step(&reducer, &rows(group, 0)?, false)?;
    let error = network.step(&reducer, &rows(group, 1)?, false).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("`branch.weight`") && text.contains("`idle.weight`"),
        "{text}"
    );
    assert!(!text.contains("0.weight"), "{text}");
    assert!(text.contains(&format!("rank {}", group.rank())), "{text}");
    assert!(text.contains("find_unused_parameters"), "{text}");
    assert!(
        matches!(&error, Error::UnusedParameters { .. }),
        "{error:?}"
    );
    Ok(())
}

fn a_reducer_needs_parameters(group: &ProcessGroup) -> Outcome {
    let error = Reducer::new(group, &[], &ReducerOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("at least one parameter"),
        "{error}"
    );
    assert!(error.source().is_none());
    // A tensor that takes no gradient is no parameter.
    let plain = [("plain".to_owned(), float(&[1.0])?)];
    let error = Reducer::new(group, &plain, &ReducerOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("found `plain`, which is not one"),
        "{error}"
    );
    Ok(())
}

fn parameters_are_compared_over_ranks(group: &ProcessGroup) -> Outcome {
    let network = Network::new(&SIZES)?;
    verify_parameters(group, &network.tensors())?;
    let rows = 3 + i64::from(group.rank() == 1);
    let different = [leaf(&[2], 1.0)?, leaf(&[rows, 2], 1.0)?];
    let verified = verify_parameters(group, &different);
    if group.rank() == 1 {
        let text = verified.unwrap_err().to_string();
        assert!(text.contains("params[1]"), "{text}");
    }
    Ok(())
}

fn parameters_of_two_kinds_have_buckets_of_their_own(group: &ProcessGroup) -> Outcome {
    let single = leaf(&[3], 0.5)?;
    let double = single
        .f_detach()?
        .f_to_kind(Kind::Double)?
        .f_set_requires_grad(true)?;
    let parameters = [
        ("single".to_owned(), single.shallow_clone()),
        ("double".to_owned(), double.shallow_clone()),
    ];
    let reducer = Reducer::new(group, &parameters, &ReducerOptions::default())?;
    let factor = real(group.rank() + 1);
    for _ in 0..2 {
        reducer.prepare_for_forward()?;
        reducer.rebuild_buckets()?;
        let sum = single.f_sum(None::<Kind>)?.f_to_kind(Kind::Double)?;
        let loss = sum
            .f_add(&double.f_sum(None::<Kind>)?)?
            .f_mul_scalar(factor)?;
        reducer.prepare_for_backward(&[])?;
        backward(&loss)?;
    }
    // Two steps with an average factor of (n + 1) / 2 each.
    let total = real(group.size() + 1);
    for tensor in [&single, &double] {
        let gradient = autograd::grad(tensor)?.ok_or("a gradient")?;
        for value in numbers(&gradient)? {
            assert!((value - total).abs() < 1e-6, "{value}, not {total}");
        }
    }
    Ok(())
}
