//! The module tree as a whole: names, walks, hooks, mode.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::*;
use crate::tree::{Tree, leaves};
use crate::{Error, Result};

#[derive(Debug, Clone, Module)]
#[module(class = "GPT2Block")]
#[expect(non_snake_case, reason = "a name of a public checkpoint")]
struct Block {
    #[module(name = "self")]
    self_: Linear,
    LayerNorm: LayerNorm,
    #[module(skip)]
    _heads: i64,
    state: ModuleState,
}

#[derive(Debug, Module)]
struct Model {
    embedding: Embedding,
    layer: Vec<Block>,
    extra: Option<Linear>,
    counts: Buffer,
    scale: Parameter,
    head: Linear,
    state: ModuleState,
}

fn block(factory: &Factory) -> Result<Block> {
    Ok(Block {
        self_: Linear::without_bias(2, 2, factory)?,
        LayerNorm: LayerNorm::new(2, 1e-5, factory)?,
        _heads: 1,
        state: ModuleState::default(),
    })
}

fn model() -> Result<Model> {
    let factory = Factory::default();
    let embedding = Embedding::new(5, 2, &factory)?;
    let mut head = Linear::without_bias(2, 5, &factory)?;
    head.weight = embedding.weight.clone();
    Ok(Model {
        embedding,
        layer: vec![block(&factory)?, block(&factory)?],
        extra: None,
        counts: Buffer::new(Tensor::from(0i64)),
        scale: Parameter::new(Tensor::from(1.0f32))?,
        head,
        state: ModuleState::default(),
    })
}

fn names<T>(items: Vec<(String, T)>) -> Vec<String> {
    items.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn names_and_order_are_those_of_pytorch() -> Result<()> {
    let model = model()?;
    // The module's own tensors come first, then its children; `head.weight` is tied.
    let expected = [
        "scale",
        "embedding.weight",
        "layer.0.self.weight",
        "layer.0.LayerNorm.weight",
        "layer.0.LayerNorm.bias",
        "layer.1.self.weight",
        "layer.1.LayerNorm.weight",
        "layer.1.LayerNorm.bias",
    ];
    assert_eq!(names(model.named_parameters()), expected);
    assert_eq!(names(model.named_buffers()), ["counts"]);
    assert_eq!(model.num_parameters(), 1 + 10 + 2 * (4 + 2 + 2));
    let modules: Vec<String> = model
        .named_modules()
        .iter()
        .map(|(name, module)| format!("{name}:{}", module.class_name()))
        .collect();
    let expected = [
        ":Model",
        "embedding:Embedding",
        "layer:ModuleList",
        "layer.0:GPT2Block",
        "layer.0.self:Linear",
        "layer.0.LayerNorm:LayerNorm",
        "layer.1:GPT2Block",
        "layer.1.self:Linear",
        "layer.1.LayerNorm:LayerNorm",
        "head:Linear",
    ];
    assert_eq!(modules, expected);
    Ok(())
}

#[test]
fn mode_and_freezing_reach_every_module() -> Result<()> {
    let model = model()?;
    assert!(model.is_training());
    model.train(false);
    assert!(!model.layer[1].self_.is_training());
    model.set_requires_grad(false)?;
    assert!(
        model
            .parameters()
            .iter()
            .all(|parameter| !parameter.requires_grad())
    );
    Ok(())
}

#[test]
fn members_can_be_replaced() -> Result<()> {
    let mut model = model()?;
    let new = Parameter::new(Tensor::from(9.0f32))?;
    model.members_mut(&mut |name, member| {
        if let (MemberMut::Parameter(parameter), "scale") = (member, name) {
            *parameter = new.clone();
        }
    });
    assert_eq!(model.scale.identity(), new.identity());
    Ok(())
}

/// An enum stands for the module it holds; a generic struct for any.
#[derive(Debug, Module)]
enum Norm {
    Layer(LayerNorm),
    Linear { inner: Linear },
}

#[derive(Module)]
struct Wrapper<M> {
    inner: M,
    named: BTreeMap<String, Box<dyn Module>>,
    weights: Vec<Parameter>,
    state: ModuleState,
}

#[test]
fn enums_maps_and_generic_modules_are_walked() -> Result<()> {
    let factory = Factory::default();
    let norms = [
        Norm::Layer(LayerNorm::new(2, 1e-5, &factory)?),
        Norm::Linear {
            inner: Linear::without_bias(1, 1, &factory)?,
        },
    ];
    assert_eq!(
        norms.each_ref().map(Norm::class_name),
        ["LayerNorm", "Linear"]
    );
    let [norm, linear] = norms;
    let wrapper = Wrapper {
        inner: norm,
        named: BTreeMap::from([("a".to_owned(), Box::new(linear) as Box<dyn Module>)]),
        weights: vec![Parameter::new(Tensor::from(1.0f32))?],
        state: ModuleState::default(),
    };
    assert_eq!(
        names(wrapper.named_parameters()),
        ["weights.0", "inner.weight", "inner.bias", "named.a.weight"]
    );
    assert_eq!(wrapper.named_modules()[2].1.class_name(), "ModuleDict");
    Ok(())
}

/// Writes down when it runs, and adds to the first tensor.
struct Probe {
    name: &'static str,
    log: Rc<RefCell<Vec<String>>>,
    add: f64,
}

impl Probe {
    fn note(&self, when: &str, module: &dyn Module, tree: &mut dyn Tree) -> Result<()> {
        self.log
            .borrow_mut()
            .push(format!("{} {when} {}", self.name, module.class_name()));
        tree.visit_mut(&mut |leaf| {
            *leaf = leaf.f_add_scalar(self.add)?;
            Ok(())
        })
    }
}

impl Hook for Probe {
    fn before_forward(&self, module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        self.note("before", module, input)
    }

    fn after_forward(&self, module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        self.note("after", module, output)
    }
}

#[test]
fn hooks_run_in_the_order_added_and_may_replace_tensors() -> Result<()> {
    let layer = Activation::new(ActivationFunction::Relu);
    let log = Rc::new(RefCell::new(Vec::new()));
    let probe = |name, add| {
        Rc::new(Probe {
            name,
            log: Rc::clone(&log),
            add,
        })
    };
    let first = layer.add_hook(probe("first", 1.0))?;
    layer.add_hook(probe("second", 10.0))?;
    let input = Tensor::from(-12.0f32);
    // -12 + 1 + 10 = -1, the rectifier makes 0, and the hooks add 11 again.
    assert_eq!(layer.call(&input)?.double_value(&[]), 11.0);
    assert_eq!(input.double_value(&[]), -12.0);
    assert_eq!(
        *log.borrow(),
        [
            "first before ReLU",
            "second before ReLU",
            "first after ReLU",
            "second after ReLU"
        ]
    );

    let state = layer.state().unwrap();
    assert!(state.remove_hook(first));
    assert!(!state.remove_hook(first));
    // -12 + 10 = -2, the rectifier makes 0, and the one hook left adds 10.
    assert_eq!(layer.call(&input)?.double_value(&[]), 10.0);
    Ok(())
}

/// Removes itself while it runs.
struct Once(RefCell<Option<HookId>>);

impl Hook for Once {
    fn before_forward(&self, module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        assert_eq!(leaves(input)?.len(), 1);
        let removed = module
            .state()
            .zip(self.0.take())
            .is_some_and(|(state, id)| state.remove_hook(id));
        assert!(removed, "a hook that removed itself ran again");
        Ok(())
    }
}

#[test]
fn a_hook_may_remove_itself() -> Result<()> {
    let layer = Dropout::new(0.5)?;
    let once = Rc::new(Once(RefCell::default()));
    let id = layer.add_hook(Rc::clone(&once) as Rc<dyn Hook>)?;
    once.0.replace(Some(id));
    let input = Tensor::from(1.0f32);
    assert_eq!(layer.call(&input)?.size(), layer.call(&input)?.size());
    Ok(())
}

#[test]
fn a_list_takes_no_hook() -> Result<()> {
    let model = model()?;
    let log = Rc::default();
    let error = model
        .layer
        .add_hook(Rc::new(Probe {
            name: "x",
            log,
            add: 0.0,
        }))
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::HookOnContainer {
                class: "ModuleList"
            }
        ),
        "{error}"
    );
    Ok(())
}

#[derive(Debug, Tree)]
struct Pair {
    left: Tensor,
    right: Option<Tensor>,
}

#[derive(Debug, Tree)]
enum Either {
    Left(Tensor),
    Right {
        _name: &'static str,
        value: Vec<Tensor>,
    },
    Nothing,
}

#[test]
fn derived_trees_are_walked_and_are_their_own_arguments() -> Result<()> {
    let pair = Pair {
        left: Tensor::from(1i64),
        right: Some(Tensor::from(2i64)),
    };
    let pair: Pair = pair.into_input();
    assert_eq!(leaves(&pair)?.len(), 2);
    assert!(
        pair.right.is_some_and(|right| right.int64_value(&[]) == 2)
            && pair.left.int64_value(&[]) == 1
    );
    let mut right = Either::Right {
        _name: "r",
        value: vec![Tensor::from(1i64), Tensor::from(2i64)],
    };
    right.visit_mut(&mut |leaf| {
        *leaf = leaf.f_neg()?;
        Ok(())
    })?;
    let Either::Right { value, .. } = &right else {
        panic!("the variant changed")
    };
    assert_eq!(value[1].int64_value(&[]), -2);
    assert_eq!(leaves(&Either::Left(Tensor::from(1i64)))?.len(), 1);
    assert_eq!(leaves(&Either::Nothing)?.len(), 0);
    Ok(())
}

#[test]
fn a_network_of_tch_is_a_module() -> Result<()> {
    let store = tch::nn::VarStore::new(Device::Cpu);
    let path = store.root();
    let first = tch::nn::linear(&path / "z", 3, 2, Default::default());
    let norm = tch::nn::batch_norm1d(&path / "norm", 2, Default::default());
    let last = tch::nn::linear(&path / "a", 2, 1, Default::default());
    let network =
        tch::nn::func_t(move |input, train| input.apply(&first).apply_t(&norm, train).apply(&last));
    let model = VarStoreModel::new(store, network)?;
    // In the order of definition, not of names; `tch` defines the bias of a linear layer first.
    let expected = [
        "z.bias",
        "z.weight",
        "norm.weight",
        "norm.bias",
        "a.bias",
        "a.weight",
    ];
    assert_eq!(names(model.named_parameters()), expected);
    assert_eq!(
        names(model.named_buffers()),
        ["norm.running_mean", "norm.running_var"]
    );
    let input = Tensor::f_ones([4, 3], (Kind::Float, Device::Cpu))?;
    assert_eq!(model.call(&input)?.size(), [4, 1]);
    // Handles are shared: a change to a parameter is seen by the network.
    let bias = &model.named_parameters()[4].1.tensor().shallow_clone();
    let before = model.call(&input)?.double_value(&[0, 0]);
    let _same = tch::no_grad(|| bias.shallow_clone().f_add_scalar_(1.0))?;
    let after = model.call(&input)?.double_value(&[0, 0]);
    assert!((after - before - 1.0).abs() < 1e-5, "{before} {after}");
    Ok(())
}
