//! Mixtures of experts.

use tch::{Device, Kind, Tensor};

use super::shape_only::{is_shape_only, shape_only};
use super::{Factory, Forward, Linear, Member, MemberMut, Module, ModuleState};
use crate::{Error, Result};

/// A layer of many experts, of which each token goes through the `top_k` that its router prefers.
///
/// The router is a linear layer named `gate`; the softmax over all experts gives the weights,
/// which are scaled to sum to 1 over the chosen ones. Tokens are sorted by expert, each expert
/// runs once over its own, and the results are added in place: nothing is computed for experts
/// that no token chose. Finding out how many tokens each expert has stops the stream of a GPU
/// once for each call.
///
/// # Shapes
/// - input: `[.., width]`
/// - output: the mixed results, as the input, and the router's logits, `[tokens, experts]`
///
/// # Source
/// `MixtralSparseMoeBlock` of `transformers`. Differs: each expert is a module of its own, as in
/// public checkpoints.
#[derive(Debug, Clone)]
pub struct MixtureOfExperts<E> {
    gate: Linear,
    experts: Vec<E>,
    top_k: i64,
    jitter: f64,
    class: &'static str,
    state: ModuleState,
}

impl<E: Forward<Input = Tensor, Output = Tensor>> MixtureOfExperts<E> {
    /// Routes tokens of this width to `experts`.
    ///
    /// # Errors
    /// [`Error::Argument`] if `top_k` is not within 1 and the number of experts, else if memory
    /// is short.
    pub fn new(width: i64, experts: Vec<E>, top_k: i64, factory: &Factory) -> Result<Self> {
        let count = experts.len() as i64;
        if !(1..=count).contains(&top_k) {
            return Err(Error::Argument {
                operation: "MixtureOfExperts::new",
                expected: format!("`top_k` within 1..={count}, the number of experts"),
                found: top_k.to_string(),
            });
        }
        Ok(Self {
            gate: Linear::without_bias(width, count, factory)?,
            experts,
            top_k,
            jitter: 0.0,
            class: "SparseMoeBlock",
            state: ModuleState::default(),
        })
    }

    /// Multiplies inputs with numbers within `1 ± jitter` while training, so that routing varies.
    #[must_use]
    pub fn with_jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The same layer under the class name that a model has for it, such as
    /// `MixtralSparseMoeBlock`.
    #[must_use]
    pub fn with_class_name(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    /// The experts, by number.
    pub fn experts(&self) -> &[E] {
        &self.experts
    }

    fn jittered(&self, tokens: Tensor) -> Result<Tensor> {
        if self.jitter <= 0.0 || !self.state.is_training() {
            return Ok(tokens);
        }
        let noise = tokens
            .f_empty_like()?
            .f_uniform_(1.0 - self.jitter, 1.0 + self.jitter)?;
        Ok(tokens.f_mul(&noise)?)
    }

    /// Runs each expert over its tokens and adds the weighted results.
    fn dispatch(&self, tokens: &Tensor, routes: &Routes) -> Result<Tensor> {
        let mixed = tokens.f_zeros_like()?;
        let plan = routes.by_expert(self.experts.len() as i64)?;
        let mut start = 0;
        for (expert, &count) in self.experts.iter().zip(&plan.counts) {
            if count == 0 {
                continue;
            }
            let rows = plan.tokens.f_narrow(0, start, count)?;
            let places = plan.places.f_narrow(0, start, count)?;
            start += count;
            let output = expert.call(tokens.f_index_select(0, &rows)?)?;
            let weights = routes.weights.f_view([-1, 1])?.f_index_select(0, &places)?;
            let weighted = output.f_mul(&weights)?.f_to_kind(mixed.f_kind()?)?;
            let _same = mixed.shallow_clone().f_index_add_(0, &rows, &weighted)?;
        }
        Ok(mixed)
    }
}

/// Which experts each token goes to, and with which weights.
#[derive(Debug)]
pub struct Routes {
    /// The chosen experts, `[tokens, top_k]` of int64, the best first.
    pub experts: Tensor,
    /// Their weights, `[tokens, top_k]` of float32, which sum to 1 for each token.
    pub weights: Tensor,
}

/// The pairs of token and expert, sorted by expert.
struct Plan {
    /// The token of each pair.
    tokens: Tensor,
    /// Where in the list of weights the pair is.
    places: Tensor,
    /// How many pairs each expert has.
    counts: Vec<i64>,
}

impl Routes {
    /// Chooses from the router's logits.
    ///
    /// # Shapes
    /// `logits`: `[tokens, experts]`.
    ///
    /// # Errors
    /// If there are fewer than `top_k` experts.
    pub fn new(logits: &Tensor, top_k: i64) -> Result<Self> {
        let likely = logits.f_softmax(-1, Kind::Float)?;
        let (best, experts) = likely.f_topk(top_k, -1, true, true)?;
        let sum = best.f_sum_dim_intlist(Some([-1i64].as_slice()), true, None)?;
        Ok(Self {
            experts,
            weights: best.f_div(&sum)?,
        })
    }

    fn by_expert(&self, num_experts: i64) -> Result<Plan> {
        let top_k = self.experts.size2()?.1;
        let flat = self.experts.f_reshape([-1])?;
        let places = flat.f_argsort_stable(true, 0, false)?;
        let counts = flat.f_bincount(None::<Tensor>, num_experts)?;
        Ok(Plan {
            tokens: places.f_floor_divide_scalar(top_k)?,
            places,
            counts: Vec::try_from(counts.f_to_device(Device::Cpu)?)?,
        })
    }
}

impl<E: Module> Module for MixtureOfExperts<E> {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("gate", Member::Module(&self.gate));
        visit("experts", Member::Module(&self.experts));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("gate", MemberMut::Module(&mut self.gate));
        visit("experts", MemberMut::Module(&mut self.experts));
    }
}

impl<E: Forward<Input = Tensor, Output = Tensor>> Forward for MixtureOfExperts<E> {
    type Input = Tensor;
    type Output = (Tensor, Tensor);

    fn forward(&self, input: Tensor) -> Result<(Tensor, Tensor)> {
        let shape = input.size();
        let width = shape.last().copied().unwrap_or(0);
        let tokens = self.jittered(input)?.f_reshape([-1, width])?;
        let logits = self.gate.call(&tokens)?;
        if is_shape_only(&tokens)? {
            // Without values nobody knows which experts run; each gives what it takes.
            return Ok((shape_only(&shape, &tokens)?, logits));
        }
        let routes = Routes::new(&logits, self.top_k)?;
        let mixed = self.dispatch(&tokens, &routes)?;
        Ok((mixed.f_reshape(shape.as_slice())?, logits))
    }
}

/// What is least where every expert gets as many tokens as the others: the router's auxiliary
/// loss, over all layers together.
///
/// # Shapes
/// - `router_logits`: one `[tokens, experts]` for each layer
/// - `attention_mask`: `[rows, tokens of a row]`, not 0 where there is a token; padding does not
///   count
///
/// # Errors
/// [`Error::Argument`] without layers, else if shapes do not fit.
///
/// # Source
/// `load_balancing_loss_func` of `transformers`.
pub fn load_balancing_loss(
    router_logits: &[Tensor],
    top_k: i64,
    attention_mask: Option<&Tensor>,
) -> Result<Tensor> {
    let Some(first) = router_logits.first() else {
        return Err(Error::Argument {
            operation: "load_balancing_loss",
            expected: "the logits of at least one router".to_owned(),
            found: "none".to_owned(),
        });
    };
    let (tokens, num_experts) = first.size2()?;
    let device = first.device();
    // What each token counts, and each of its choices.
    let counted = match attention_mask {
        Some(mask) => mask
            .f_reshape([-1])?
            .f_to_device(device)?
            .f_to_kind(Kind::Float)?,
        None => Tensor::f_ones([tokens], (Kind::Float, device))?,
    };
    let choices = counted.f_repeat_interleave_self_int(top_k, Some(0), None::<i64>)?;
    let mut chosen = Tensor::f_zeros([num_experts], (Kind::Float, device))?;
    let mut likely = chosen.f_zeros_like()?;
    for logits in router_logits {
        let weights = logits.f_to_device(device)?.f_softmax(-1, None)?;
        let (_, experts) = weights.f_topk(top_k, -1, true, true)?;
        chosen = chosen.f_scatter_add(0, &experts.f_reshape([-1])?, &choices)?;
        let weights = weights.f_to_kind(Kind::Float)?;
        likely = likely.f_add(
            &weights
                .f_mul(&counted.f_unsqueeze(-1)?)?
                .f_sum_dim_intlist(Some([0i64].as_slice()), false, None)?,
        )?;
    }
    let rows = counted
        .f_sum(None)?
        .f_mul_scalar(router_logits.len() as i64)?;
    let product = chosen.f_div(&rows)?.f_mul(&likely.f_div(&rows)?)?;
    Ok(product.f_sum(None)?.f_mul_scalar(num_experts)?)
}
