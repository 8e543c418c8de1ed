//! The order in which gradients came first, by which the buckets of the reducer are arranged.
//!
//! c10d arranges its buckets anew behind the first pass, in the order in which gradients came in it.
//! From three ranks on the last bit of a sum over ranks depends on the place in a bucket, and what
//! PowerSGD remembers belongs to places in buckets. So a program that goes on from a checkpoint
//! arranges them, before its first pass, as they were.

use std::sync::{Arc, Mutex, PoisonError};

use accelerate_torch::autograd::{self, BackwardOptions, PostAccumulateHandle};
use tch::{Kind, Tensor};

use super::DataParallel;
use crate::Result;
use crate::parallel::comm_hook::CommHook;

/// What is known of the order.
#[derive(Debug, Default)]
pub(super) enum Order {
    /// No pass has exchanged gradients yet.
    #[default]
    Unknown,
    /// One is under way, or was, and is noted.
    Noting(Noted, Vec<PostAccumulateHandle>),
    /// The parameters by place, as their gradients came.
    Known(Vec<usize>),
}

type Noted = Arc<Mutex<Vec<usize>>>;

impl DataParallel {
    /// Whether buckets are arranged by an order that is known, and can be arranged without values:
    /// a function of the program's own would not expect to be called then.
    fn has_order(&self) -> bool {
        let kwargs = &self.kwargs;
        !kwargs.find_unused_parameters
            && !kwargs.static_graph
            && !matches!(kwargs.comm_hook, CommHook::Custom(_))
    }

    /// Whether buckets are, or will be behind the pass that is next, as those of a model whose
    /// [`gradient_order`](Self::gradient_order) was `order`.
    pub(super) fn is_arranged_by(&self, order: &[usize]) -> bool {
        let kwargs = &self.kwargs;
        // These buckets are never arranged anew.
        let stay = kwargs.find_unused_parameters && !kwargs.static_graph;
        stay || self.gradient_order().is_some_and(|own| own == order)
    }

    /// Before a pass that exchanges gradients: notes the order, if it is the first one.
    pub(super) fn note_order(&self) -> Result<()> {
        let mut order = self.order.borrow_mut();
        match &mut *order {
            Order::Known(_) => return Ok(()),
            Order::Noting(noted, _) => {
                let came =
                    std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner));
                // The pass before had no backward yet.
                if came.is_empty() {
                    return Ok(());
                }
                if let Order::Noting(_, hooks) = std::mem::take(&mut *order) {
                    hooks
                        .into_iter()
                        .try_for_each(PostAccumulateHandle::remove)?;
                }
                *order = Order::Known(came);
                return Ok(());
            }
            Order::Unknown if !self.has_order() => {
                *order = Order::Known(Vec::new());
                return Ok(());
            }
            Order::Unknown => {}
        }
        let noted = Noted::default();
        let count = self.trained.len();
        let hook = |(place, parameter): (usize, &Tensor)| {
            let noted = Arc::clone(&noted);
            let note = move |_: &Tensor| {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                // Passes that follow may keep their gradients local.
                if noted.len() < count {
                    noted.push(place);
                }
                Ok(())
            };
            autograd::on_gradient_accumulated(parameter, note)
        };
        let hooks = self.trained.iter().enumerate().map(hook);
        let hooks = hooks.collect::<Result<Vec<_>, _>>()?;
        *order = Order::Noting(noted, hooks);
        Ok(())
    }

    /// The parameters by place, in the order in which their gradients came first; none before that.
    pub(crate) fn gradient_order(&self) -> Option<Vec<usize>> {
        let order = match &*self.order.borrow() {
            Order::Unknown => return None,
            Order::Noting(noted, _) => noted.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Order::Known(order) => order.clone(),
        };
        self.is_whole(&order).then_some(order)
    }

    fn is_whole(&self, order: &[usize]) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..self.trained.len())
    }

    /// Whether buckets can be arranged by `order`, and no pass has arranged them yet.
    pub(crate) fn can_arrange(&self, order: &[usize]) -> bool {
        let is_new = matches!(&*self.order.borrow(), Order::Unknown);
        is_new && self.has_order() && self.is_whole(order)
    }

    /// Arranges the buckets as behind a pass in which gradients came in `order`.
    ///
    /// # Collective
    /// Every rank calls this with the same order, where [`can_arrange`](Self::can_arrange) says so
    /// on all of them.
    pub(crate) fn arrange_buckets(&self, order: &[usize]) -> Result<()> {
        self.pass("arrange buckets", |_| {
            self.without_gradients(|| self.report_in_order(order))?;
            self.reducer.rebuild_buckets()?;
            Ok(())
        })?;
        self.order.replace(Order::Known(order.to_vec()));
        Ok(())
    }

    /// A backward pass without values, in which parameters report one behind the other.
    fn report_in_order(&self, order: &[usize]) -> Result<()> {
        self.reducer.prepare_for_forward()?;
        let mut behind: Option<Tensor> = None;
        for parameter in order
            .iter()
            .rev()
            .filter_map(|&place| self.trained.get(place))
        {
            behind = Some(link(parameter, behind.as_ref())?);
        }
        let outputs: Vec<Tensor> = behind.into_iter().collect();
        self.reducer.prepare_for_backward(&outputs)?;
        Ok(autograd::backward(
            &outputs,
            None,
            BackwardOptions::default(),
        )?)
    }
}

/// A value whose backward pass reaches `parameter` first and then what is `behind` it. Nothing
/// comes between: what gathers the gradient of a parameter goes before everything else that waits.
fn link(parameter: &Tensor, behind: Option<&Tensor>) -> Result<Tensor> {
    let device = parameter.device();
    let inputs: Vec<&Tensor> = [parameter].into_iter().chain(behind).collect();
    let goes_on = behind.is_some();
    let none = move || Tensor::f_zeros([0i64; 0], (Kind::Float, device));
    let outputs = autograd::function(
        &inputs,
        move |_, _| Ok(vec![none()?]),
        move |_, _| {
            let mut gradients = vec![None];
            if goes_on {
                gradients.push(Some(none()?));
            }
            Ok(gradients)
        },
    )?;
    let made = outputs.into_iter().next();
    made.map_or_else(|| Ok(none()?), Ok)
}
