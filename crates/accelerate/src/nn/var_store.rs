//! Models held in a plain `tch::nn::VarStore`.

use std::collections::BTreeMap;
use std::fmt;

use accelerate_torch::storage;
use tch::Tensor;
use tch::nn::{ModuleT, VarStore};

use super::flat::FlatMembers;
use super::{Buffer, Forward, Member, MemberMut, Module, ModuleState, Parameter};
use crate::{Error, Result};

/// A network of `tch` with its variable store, as one module without children.
///
/// Its parameters are the store's trainable variables in the order of their definition, its
/// buffers the other variables sorted by name, both under the store's own dotted names. It trains
/// data parallel with any optimizer and precision; what needs the inside of a model, such as
/// sharding by layer, needs a module tree.
///
/// A closure becomes a network through `tch::nn::func_t`.
///
/// ```
/// use accelerate::nn::{Forward, Module, VarStoreModel};
/// use accelerate::tch::nn::{self, VarStore};
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let store = VarStore::new(Device::Cpu);
/// let network = nn::linear(store.root() / "head", 4, 2, Default::default());
/// let model = VarStoreModel::new(store, network)?;
/// let names: Vec<_> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// // `tch` defines the bias of a linear layer first.
/// assert_eq!(names, ["head.bias", "head.weight"]);
/// let batch = Tensor::f_zeros([3, 4], (Kind::Float, Device::Cpu))?;
/// assert_eq!(model.call(&batch)?.size(), [3, 2]);
/// # Ok::<(), accelerate::Error>(())
/// ```
pub struct VarStoreModel<N> {
    network: N,
    // Owns the variables that the network shares.
    store: VarStore,
    members: FlatMembers,
    state: ModuleState,
}

impl<N: ModuleT> VarStoreModel<N> {
    /// Takes a network and the store its variables are in.
    ///
    /// Variables that the network adds to the store later are not seen.
    ///
    /// # Errors
    /// [`Error::Argument`] if a trainable variable of the store has no name, which is only
    /// possible where a store was put together by hand.
    pub fn new(store: VarStore, network: N) -> Result<Self> {
        let mut names = BTreeMap::new();
        let mut others: BTreeMap<String, Tensor> = store.variables().into_iter().collect();
        for (name, tensor) in &others {
            names.insert(storage::identity(tensor), name.clone());
        }
        let mut parameters = Vec::new();
        for tensor in store.trainable_variables() {
            let name = names
                .get(&storage::identity(&tensor))
                .ok_or_else(|| Error::Argument {
                    operation: "VarStoreModel::new",
                    expected: "a store that names every trainable variable".to_owned(),
                    found: format!("a variable of shape {:?} without a name", tensor.size()),
                })?;
            others.remove(name);
            parameters.push((name.clone(), Parameter::from_tensor(tensor)));
        }
        let buffers = others
            .into_iter()
            .map(|(name, tensor)| (name, Buffer::new(tensor)))
            .collect();
        Ok(Self {
            network,
            store,
            members: FlatMembers {
                parameters,
                buffers,
            },
            state: ModuleState::default(),
        })
    }

    /// The network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// The store of its variables.
    pub fn store(&self) -> &VarStore {
        &self.store
    }
}

impl<N: 'static> Module for VarStoreModel<N> {
    fn class_name(&self) -> &'static str {
        "VarStoreModel"
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.members.visit(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.members.visit_mut(visit);
    }
}

impl<N: ModuleT + 'static> Forward for VarStoreModel<N> {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        Ok(self.network.forward_t(&input, self.state.is_training()))
    }
}

impl<N> fmt::Debug for VarStoreModel<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("VarStoreModel");
        shown
            .field("parameters", &self.members.parameters)
            .field("buffers", &self.members.buffers)
            .finish_non_exhaustive()
    }
}
