use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use tch::Tensor;

use crate::nn::Module;
use crate::parallel::{DataParallel, ShardedModel, Strategy};

/// Tells prepared models apart, also after one of them is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ModelId(u64);

impl ModelId {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The gradients of one prepared model: a shared handle.
#[derive(Debug, Clone)]
pub struct ModelGradients {
    id: ModelId,
    parameters: Rc<Vec<Tensor>>,
    strategy: Option<Strategy>,
}

impl ModelGradients {
    pub(crate) fn new(module: &dyn Module, strategy: Option<Strategy>) -> Self {
        let parameters = module
            .parameters()
            .into_iter()
            .map(|parameter| parameter.tensor().shallow_clone())
            .collect();
        Self {
            id: ModelId::new(),
            parameters: Rc::new(parameters),
            strategy,
        }
    }

    pub(crate) fn id(&self) -> ModelId {
        self.id
    }

    /// Every parameter once, trained or not.
    pub(crate) fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// What trains the model on several ranks; none for a process by itself.
    pub(crate) fn strategy(&self) -> Option<&Strategy> {
        self.strategy.as_ref()
    }

    /// What averages the gradients of whole models over ranks.
    pub(crate) fn data_parallel(&self) -> Option<&Rc<DataParallel>> {
        match &self.strategy {
            Some(Strategy::Data(model)) => Some(model),
            _ => None,
        }
    }

    /// The shards of the model, where it is cut into such.
    pub(crate) fn sharded(&self) -> Option<&Rc<ShardedModel>> {
        match &self.strategy {
            Some(Strategy::Sharded(model)) => Some(model),
            _ => None,
        }
    }
}

/// One or several prepared models: `&model`, `(&a, &b)`, a slice of references, or `()` for none.
///
/// ```
/// use accelerate::Accelerator;
/// use accelerate::accumulation::Models;
/// use accelerate::nn::{Factory, Linear};
///
/// let accelerator = Accelerator::new()?;
/// let generator = accelerator.prepare(Linear::new(2, 2, &Factory::default())?)?;
/// let critic = accelerator.prepare(Linear::new(2, 1, &Factory::default())?)?;
/// drop(accelerator.accumulate(&generator)?);
/// drop(accelerator.accumulate((&generator, &critic))?);
/// let any: [&dyn Models; 2] = [&generator, &critic];
/// drop(accelerator.accumulate(&any)?);
/// # Ok::<(), accelerate::Error>(())
/// ```
pub trait Models {
    /// Calls `visit` for the gradients of each model.
    fn each(&self, visit: &mut dyn FnMut(&ModelGradients));
}

/// Handles on the gradients of each model, in the order given.
pub(super) fn handles(models: &(impl Models + ?Sized)) -> Vec<ModelGradients> {
    let mut found: Vec<ModelGradients> = Vec::new();
    models.each(&mut |one| {
        if found.iter().all(|other| other.id != one.id) {
            found.push(one.clone());
        }
    });
    found
}

impl<T: Models + ?Sized> Models for &T {
    fn each(&self, visit: &mut dyn FnMut(&ModelGradients)) {
        (**self).each(visit);
    }
}

impl Models for () {
    fn each(&self, _visit: &mut dyn FnMut(&ModelGradients)) {}
}

macro_rules! models_by_items {
    ($([$($generics:tt)*] $type:ty),* $(,)?) => {$(
        impl<$($generics)*> Models for $type {
            fn each(&self, visit: &mut dyn FnMut(&ModelGradients)) {
                for one in self.iter() {
                    one.each(visit);
                }
            }
        }
    )*};
}

models_by_items!([T: Models] [T], [T: Models] Vec<T>, [T: Models, const N: usize] [T; N]);

macro_rules! models_for_tuple {
    ($($name:ident . $index:tt),+) => {
        impl<$($name: Models),+> Models for ($($name,)+) {
            fn each(&self, visit: &mut dyn FnMut(&ModelGradients)) {
                $(self.$index.each(visit);)+
            }
        }
    };
}

models_for_tuple!(A.0);
models_for_tuple!(A.0, B.1);
models_for_tuple!(A.0, B.1, C.2);
models_for_tuple!(A.0, B.1, C.2, D.3);
