//! What can be done to a whole module: ties, moves, names, replacing, state dicts, no memory.

use std::time::{Duration, Instant};

use accelerate::checkpoint::{LoadOptions, Metadata, save_weights};
use accelerate::indexmap::IndexMap;
use accelerate::nn::{
    Activation, ActivationFunction, Buffer, Dropout, Embedding, Factory, Forward, Init, InitScope,
    Layer, LayerNorm, Linear, Member, Module, ModuleState, Parameter, Sequential,
    init_empty_weights, shapes_only,
};
use accelerate::tch::{Device, Kind, Tensor};
use accelerate::{Error, Result};

#[derive(Debug, Module)]
struct Norm {
    count: Buffer,
    running: Buffer,
    scratch: Buffer,
    weight: Parameter,
    state: ModuleState,
}

#[derive(Debug, Module)]
struct Model {
    embedding: Embedding,
    norm: Norm,
    layers: Vec<Linear>,
    head: Linear,
    state: ModuleState,
}

fn model(factory: &Factory) -> Result<Model> {
    let embedding = Embedding::new(5, 2, factory)?;
    let mut head = Linear::without_bias(2, 5, factory)?;
    head.weight = embedding.weight.clone();
    let layer = Linear::new(2, 2, factory)?;
    Ok(Model {
        embedding,
        norm: Norm {
            count: Buffer::new(Tensor::from(3i64)),
            running: Buffer::new(Tensor::from_slice(&[1f32, 2.0])),
            scratch: Buffer::non_persistent(Tensor::from(0.5f32)),
            weight: Parameter::new(factory.empty(&[2])?)?,
            state: ModuleState::default(),
        },
        layers: vec![layer.clone(), layer],
        head,
        state: ModuleState::default(),
    })
}

fn ties() -> Vec<Vec<String>> {
    let group = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    vec![
        group(["embedding.weight", "head.weight"]),
        group(["layers.0.weight", "layers.1.weight"]),
        group(["layers.0.bias", "layers.1.bias"]),
    ]
}

#[test]
fn ties_are_found_and_survive_moves() -> Result<()> {
    let model = model(&Factory::default())?;
    assert_eq!(model.tied_parameters(), ties());
    model.bfloat16()?;
    model.to_device(Device::Cpu)?;
    assert_eq!(model.tied_parameters(), ties());
    let weight = model.head.weight.tensor();
    assert_eq!(weight.kind(), Kind::BFloat16);
    assert_eq!(model.norm.running.tensor().kind(), Kind::BFloat16);
    assert_eq!(model.norm.count.tensor().kind(), Kind::Int64);
    let error = model.to_kind(Kind::Int64).unwrap_err().to_string();
    assert!(
        error.contains("a floating-point type, found `Int64`"),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_change_of_type_takes_the_gradient_along_and_every_handle_sees_it() -> Result<()> {
    let layer = Linear::new(2, 1, &Factory::default())?;
    let handle = layer.weight.tensor().shallow_clone();
    let input = Tensor::from_slice(&[1f32, 2.0]);
    layer.call(&input)?.f_sum(Kind::Float)?.f_backward()?;
    layer.to_kind(Kind::Double)?;
    assert_eq!(
        (handle.kind(), handle.grad().kind()),
        (Kind::Double, Kind::Double)
    );
    assert_eq!(Vec::<f64>::try_from(handle.grad().view([2]))?, [1.0, 2.0]);
    assert!(handle.requires_grad() && handle.is_leaf());
    // Gradients of the new type are added to the old ones.
    let input = input.f_to_kind(Kind::Double)?;
    layer.call(&input)?.f_sum(Kind::Double)?.f_backward()?;
    assert_eq!(Vec::<f64>::try_from(handle.grad().view([2]))?, [2.0, 4.0]);
    layer.zero_grad()?;
    assert!(!handle.grad().defined());
    layer.float()?;
    assert_eq!(handle.kind(), Kind::Float);
    Ok(())
}

#[test]
fn clones_are_one_module_and_have_all_names() -> Result<()> {
    let model = model(&Factory::default())?;
    let names: Vec<String> = model
        .named_modules()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        ["", "embedding", "norm", "layers", "layers.0", "head"]
    );
    assert_eq!(model.get_submodule("layers.1")?.class_name(), "Linear");
    assert_eq!(model.get_submodule("")?.class_name(), "Model");
    let children: Vec<String> = model
        .named_children()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(children, ["embedding", "norm", "layers", "head"]);
    let tied = model.get_parameter("head.weight")?;
    assert_eq!(tied.identity(), model.embedding.weight.identity());
    assert!(!model.get_buffer("norm.scratch")?.is_persistent());
    Ok(())
}

#[test]
fn a_name_that_is_not_there_is_told_with_those_that_are() -> Result<()> {
    let model = model(&Factory::default())?;
    let error = model
        .get_submodule("layer.1")
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`Model` has no module `layer.1` (did you mean `layers.1`?); it has `embedding`, `norm`, \
         `layers`, `layers.0`, `layers.1`, `head`"
    );
    let error = model.get_parameter("norm.count").unwrap_err();
    assert!(
        matches!(&error, Error::NoSuchMember { what: "parameter", known, .. } if known.len() == 7),
        "{error}"
    );
    assert!(model.get_buffer("x").is_err());
    Ok(())
}

#[derive(Module)]
struct Slots {
    typed: Linear,
    optional: Option<Linear>,
    layer: Layer,
    any: Box<dyn Module>,
    boxed: Box<Linear>,
    map: IndexMap<String, Layer>,
    pair: [Linear; 2],
    state: ModuleState,
}

fn linear(width: i64) -> Result<Linear> {
    Linear::without_bias(width, width, &Factory::default())
}

fn slots() -> Result<Slots> {
    let map = [("z.1", 1), ("a", 2)]
        .into_iter()
        .map(|(name, width)| Ok((name.to_owned(), Layer::new(linear(width)?))));
    Ok(Slots {
        typed: linear(1)?,
        optional: None,
        layer: Layer::new(linear(1)?),
        any: Box::new(linear(1)?),
        boxed: Box::new(linear(1)?),
        map: map.collect::<Result<_>>()?,
        pair: [linear(1)?, linear(1)?],
        state: ModuleState::default(),
    })
}

#[test]
fn containers_keep_their_order_and_names() -> Result<()> {
    let slots = slots()?;
    let names: Vec<String> = slots
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "typed.weight",
            "layer.weight",
            "any.weight",
            "boxed.weight",
            "map.z.1.weight",
            "map.a.weight",
            "pair.0.weight",
            "pair.1.weight"
        ]
    );
    assert_eq!(slots.get_submodule("map")?.class_name(), "ModuleDict");
    assert_eq!(slots.get_submodule("pair")?.class_name(), "ModuleList");
    Ok(())
}

#[test]
fn a_submodule_is_replaced_where_its_type_fits() -> Result<()> {
    let mut slots = slots()?;
    for name in ["typed", "any", "boxed", "pair.1"] {
        slots.replace_submodule(name, Box::new(linear(7)?))?;
        let found = slots.get_submodule(name)?.downcast_ref::<Linear>().unwrap();
        assert_eq!(found.weight.shape(), [7, 7], "{name}");
    }
    let dropout = || Dropout::new(0.5);
    slots.replace_submodule("any", Box::new(dropout()?))?;
    assert_eq!(slots.any.class_name(), "Dropout");
    for name in ["layer", "map.z.1"] {
        slots.replace_submodule(name, Box::new(Layer::new(dropout()?)))?;
        assert_eq!(slots.get_submodule(name)?.class_name(), "Dropout", "{name}");
    }
    let error = slots
        .replace_submodule("typed", Box::new(dropout()?))
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "`typed` of `Slots` holds a `",
        "linear::Linear`",
        "found a `",
        "dropout::Dropout`",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(matches!(error, Error::MemberType { .. }));
    let error = slots
        .replace_submodule("optional", Box::new(linear(1)?))
        .unwrap_err();
    assert!(matches!(error, Error::NoSuchMember { .. }), "{error}");
    assert!(slots.replace_submodule("", Box::new(linear(1)?)).is_err());
    Ok(())
}

#[test]
fn a_layer_in_a_box_has_its_hooks_once() -> Result<()> {
    struct Add;
    impl accelerate::nn::Hook for Add {
        fn after_forward(
            &self,
            _module: &dyn Module,
            output: &mut dyn accelerate::tree::Tree,
        ) -> Result<()> {
            output.visit_mut(&mut |leaf| {
                *leaf = leaf.f_add_scalar(1.0)?;
                Ok(())
            })
        }
    }
    let model = Sequential::new()
        .with(Activation::new(ActivationFunction::Relu))
        .with_named("last", Activation::new(ActivationFunction::Relu))?;
    assert!(model.is_training());
    model
        .get_submodule("last")?
        .add_hook(std::rc::Rc::new(Add))?;
    let output = model.call(Tensor::from_slice(&[-1f32, 2.0]))?;
    assert_eq!(Vec::<f32>::try_from(output)?, [1.0, 3.0]);
    model.train(false);
    assert!(!model.get(1).unwrap().is_training());
    let model = model.with_named("last", Dropout::new(0.1)?);
    assert!(model.is_err());
    Ok(())
}

#[test]
fn text_is_pytorchs() -> Result<()> {
    #[derive(Module)]
    #[module(class = "M")]
    struct Shown {
        emb: Embedding,
        layers: Vec<Layer>,
        d: IndexMap<String, Box<dyn Module>>,
        w: Parameter,
        e: Vec<Linear>,
        state: ModuleState,
    }
    let factory = Factory::default();
    let block = || -> Result<Layer> {
        let block = Sequential::new().with(Linear::new(2, 2, &factory)?);
        Ok(Layer::new(
            block.with(Activation::new(ActivationFunction::Relu)),
        ))
    };
    let last = Layer::new(Linear::new(2, 2, &factory)?);
    let shown = Shown {
        emb: Embedding::with_padding(5, 2, 1, &factory)?,
        layers: vec![block()?, block()?, block()?, last],
        d: IndexMap::from([
            (
                "b".to_owned(),
                Box::new(Dropout::new(0.1)?) as Box<dyn Module>,
            ),
            ("a".to_owned(), Box::new(LayerNorm::new(2, 1e-5, &factory)?)),
        ]),
        w: Parameter::new(Tensor::from(1.0f32))?,
        e: Vec::new(),
        state: ModuleState::default(),
    };
    // As PyTorch 2.13 prints the same module.
    let expected = "\
M(
  (emb): Embedding(5, 2, padding_idx=1)
  (layers): ModuleList(
    (0-2): 3 x Sequential(
      (0): Linear(in_features=2, out_features=2, bias=True)
      (1): ReLU()
    )
    (3): Linear(in_features=2, out_features=2, bias=True)
  )
  (d): ModuleDict(
    (b): Dropout(p=0.1, inplace=False)
    (a): LayerNorm((2,), eps=1e-05, elementwise_affine=True, bias=True)
  )
  (e): ModuleList()
)";
    assert_eq!(shown.display().to_string(), expected);
    Ok(())
}

#[test]
fn a_state_dict_has_pytorchs_order_and_every_name_of_a_tie() -> Result<()> {
    let model = model(&Factory::default())?;
    let state = model.state_dict()?;
    let names: Vec<&str> = state.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "embedding.weight",
            "norm.weight",
            "norm.count",
            "norm.running",
            "layers.0.weight",
            "layers.0.bias",
            "layers.1.weight",
            "layers.1.bias",
            "head.weight"
        ]
    );
    assert!(state.values().all(|tensor| !tensor.requires_grad()));
    let other = self::model(&Factory::default())?;
    let report = other.load_state_dict(&state, &LoadOptions::strict())?;
    assert_eq!((report.loaded, report.fits()), (9, true));
    assert_eq!(other.tied_parameters(), ties());
    assert_eq!(other.head.weight.tensor(), model.head.weight.tensor());
    Ok(())
}

#[test]
fn everything_that_does_not_fit_a_state_dict_is_told_at_once() -> Result<()> {
    let model = model(&Factory::default())?;
    let mut state = model.state_dict()?;
    state.shift_remove("norm.weight");
    state.insert("norm.bias".to_owned(), Tensor::from(1.0f32));
    state.insert("norm.running".to_owned(), Tensor::from_slice(&[1i64, 2]));
    state.insert("layers.1.bias".to_owned(), Tensor::from_slice(&[1f32; 3]));
    let error = model
        .load_state_dict(&state, &LoadOptions::strict())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state dict does not fit `Model`: 1 missing: `norm.weight`; 1 unexpected: `norm.bias`; \
         2 mismatched: `norm.running` (expected F32, found I64), `layers.1.bias` (expected [2], \
         found [3])"
    );
    let error = model
        .load_state_dict(&state, &LoadOptions::lenient())
        .unwrap_err();
    assert!(matches!(error, Error::StateDoesNotFit { .. }), "{error}");
    state.shift_remove("norm.running");
    state.shift_remove("layers.1.bias");
    let report = model.load_state_dict(&state, &LoadOptions::lenient())?;
    assert_eq!(report.missing, ["norm.weight", "norm.running"]);
    assert_eq!(report.unexpected, ["norm.bias"]);
    Ok(())
}

/// The names of a state dict, changed.
fn renamed(
    module: &dyn Module,
    rename: impl Fn(&str) -> String,
) -> Result<IndexMap<String, Tensor>> {
    let state = module.state_dict()?;
    Ok(state
        .into_iter()
        .map(|(name, tensor)| (rename(&name), tensor))
        .collect())
}

#[derive(Debug, Module)]
struct Wrapped {
    module: Linear,
    weight: Parameter,
    state: ModuleState,
}

#[test]
fn what_wrappers_add_to_names_is_taken_out() -> Result<()> {
    let strict = LoadOptions::strict();
    let model = model(&Factory::default())?;
    let state = renamed(&model, |name| format!("module.{name}"))?;
    let report = model.load_state_dict(&state, &strict)?;
    assert_eq!(
        (report.loaded, report.removed_wrappers),
        (9, vec!["module.".to_owned()])
    );
    let compiled = |name: &str| name.replace("layers.", "layers._orig_mod.");
    let report = model.load_state_dict(&renamed(&model, compiled)?, &strict)?;
    assert_eq!(report.removed_wrappers, ["_orig_mod."]);
    let both = |name: &str| format!("_orig_mod.module.{name}");
    let report = model.load_state_dict(&renamed(&model, both)?, &strict)?;
    assert_eq!(report.removed_wrappers, ["_orig_mod.", "module."]);
    let exact = LoadOptions::strict().with_exact_names();
    assert!(model.load_state_dict(&state, &exact).is_err());
    let unwrapped = model.load_state_dict(&model.state_dict()?, &strict)?;
    assert!(unwrapped.removed_wrappers.is_empty());
    Ok(())
}

#[test]
fn a_real_member_called_module_is_none_of_a_wrapper() -> Result<()> {
    let model = Wrapped {
        module: linear(2)?,
        weight: Parameter::new(Tensor::f_ones([2, 2], (Kind::Float, Device::Cpu))?)?,
        state: ModuleState::default(),
    };
    let strict = LoadOptions::strict();
    let report = model.load_state_dict(&model.state_dict()?, &strict)?;
    assert!(report.removed_wrappers.is_empty());
    let state = renamed(&model, |name| format!("module.{name}"))?;
    let before = model.module.weight.tensor().copy();
    let report = model.load_state_dict(&state, &strict)?;
    assert_eq!((report.loaded, report.removed_wrappers.len()), (2, 1));
    assert_eq!(*model.module.weight.tensor(), before);
    // One tensor `module.weight` may be either.
    let mut state = state;
    state.shift_remove("module.module.weight");
    let error = model
        .load_state_dict(&state, &strict)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`module.weight` would be `module.weight` or `weight`"),
        "{error}"
    );
    let exact = LoadOptions::lenient().with_exact_names();
    assert_eq!(model.load_state_dict(&state, &exact)?.missing, ["weight"]);
    // Two tensors must not become one.
    let mut state = linear(2)?.state_dict()?;
    state.insert("_orig_mod.weight".to_owned(), Tensor::from(1.0f32));
    let error = linear(2)?.load_state_dict(&state, &strict).unwrap_err();
    assert!(
        matches!(&error, Error::StateDoesNotFit { report, .. } if report.unexpected == ["_orig_mod.weight"])
    );
    Ok(())
}

/// Linear layers with the shapes of a Llama of 70 thousand million parameters.
fn seventy_billion(factory: &Factory) -> Result<Sequential> {
    let (width, inner, keys) = (8192, 28672, 1024);
    let mut layers = Vec::new();
    for _ in 0..80 {
        for (input, output) in [
            (width, width),
            (width, keys),
            (width, keys),
            (width, width),
            (width, inner),
            (width, inner),
            (inner, width),
        ] {
            layers.push(Layer::new(Linear::without_bias(input, output, factory)?));
        }
    }
    layers.push(Layer::new(Linear::without_bias(width, 128_256, factory)?));
    Ok(layers.into_iter().collect())
}

/// Resident memory of this process in bytes; other tests of this file are small.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

#[test]
fn a_model_of_any_size_is_built_without_memory() -> Result<()> {
    let before = resident();
    let start = Instant::now();
    let model = init_empty_weights(|| seventy_billion(&Factory::default()))?;
    let elapsed = start.elapsed();
    assert_eq!(model.num_parameters(), 69_501_714_432);
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 50 << 20, "{grown} bytes");
    }
    let limit = if cfg!(debug_assertions) { 1000 } else { 50 };
    assert!(elapsed < Duration::from_millis(limit), "{elapsed:?}");
    let error = model.to_device(Device::Cpu).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("`to_device` needs values")
            && text.contains("`9.weight` and 551 more have none"),
        "{text}"
    );
    let state = IndexMap::new();
    let lenient = LoadOptions::lenient();
    assert!(matches!(
        model.load_state_dict(&state, &lenient),
        Err(Error::OnMeta { .. })
    ));
    Ok(())
}

#[test]
fn scopes_place_parameters_and_if_wanted_buffers() -> Result<()> {
    let build = || model(&Factory::default());
    let empty = init_empty_weights(build)?;
    assert!(
        empty
            .parameters()
            .into_iter()
            .all(|parameter| parameter.is_meta().unwrap())
    );
    assert!(empty.parameters().into_iter().all(Parameter::requires_grad));
    assert_eq!(empty.norm.count.tensor().int64_value(&[]), 3);
    assert_eq!(empty.tied_parameters(), ties());
    let scope = InitScope::meta().include_buffers(true);
    assert!(scope.build(build)?.norm.count.is_meta()?);
    // The inner scope counts, and the outer one comes back.
    let (real, meta) = InitScope::meta().build(|| -> Result<_> {
        let real = InitScope::device(Device::Cpu).build(|| linear(2))?;
        Ok((real, linear(2)?))
    })?;
    assert!(!real.weight.is_meta()? && meta.weight.is_meta()?);
    let panicked =
        std::panic::catch_unwind(|| init_empty_weights(|| -> Result<()> { panic!("x") }));
    assert!(panicked.is_err() && !linear(2)?.weight.is_meta()?);
    // A tensor that was made elsewhere moves when it becomes a parameter.
    let made = init_empty_weights(|| Parameter::new(Tensor::from_slice(&[1f32, 2.0])))?;
    assert!(made.is_meta()? && made.requires_grad() && made.shape() == [2]);
    Ok(())
}

#[test]
fn a_model_without_memory_gets_it_and_is_then_loaded() -> Result<()> {
    let full = model(&Factory::default())?;
    let mut model = model(&Factory::default().on_meta())?;
    model.head.weight.set_requires_grad(false)?;
    model.materialize(Device::Cpu)?;
    assert_eq!(model.tied_parameters(), ties());
    assert!(!model.embedding.weight.requires_grad() && model.norm.weight.requires_grad());
    let report = model.load_state_dict(&full.state_dict()?, &LoadOptions::strict())?;
    assert!(report.fits());
    let ids = Tensor::from_slice(&[0i64, 4]);
    assert_eq!(model.embedding.call(&ids)?, full.embedding.call(&ids)?);
    Ok(())
}

#[test]
fn only_what_a_checkpoint_holds_needs_memory() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let empty = model(&Factory::default().on_meta())?;
    let error = save_weights(&empty, &path, &Metadata::new()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::OnMeta {
                operation: "save_weights",
                ..
            }
        ),
        "{error}"
    );
    assert!(!path.exists());
    let full = model(&Factory::default())?;
    let error = full
        .load_state_dict(&empty.state_dict()?, &LoadOptions::strict())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::OnMeta {
                operation: "load_state_dict",
                ..
            }
        ),
        "{error}"
    );
    // A buffer that no checkpoint holds does not matter.
    let scratch = || -> Result<Buffer> { Ok(Buffer::non_persistent(Tensor::from(1.0f32))) };
    let mut full = full;
    full.norm.scratch = InitScope::meta().include_buffers(true).build(scratch)?;
    assert!(full.norm.scratch.is_meta()?);
    full.load_state_dict(&full.state_dict()?, &LoadOptions::strict())?;
    full.materialize(Device::Cpu)?;
    assert!(!full.norm.scratch.is_meta()? && !full.norm.scratch.is_persistent());
    Ok(())
}

#[test]
fn types_that_no_file_holds_are_loaded_from_memory() -> Result<()> {
    let complex = || Parameter::new(Tensor::f_ones([2], (Kind::ComplexDouble, Device::Cpu))?);
    let layer = |weight| Norm {
        count: Buffer::new(Tensor::from(0i64)),
        running: Buffer::new(Tensor::from(0i64)),
        scratch: Buffer::non_persistent(Tensor::from(0i64)),
        weight,
        state: ModuleState::default(),
    };
    let state = layer(complex()?).state_dict()?;
    let report = layer(complex()?).load_state_dict(&state, &LoadOptions::strict())?;
    assert_eq!(report.loaded, 3);
    Ok(())
}

#[test]
fn retying_prefers_values() -> Result<()> {
    let mut model = model(&Factory::default().on_meta().with_init(Init::Skip))?;
    model.head = linear_of(5, 2)?;
    assert_eq!(model.tied_parameters(), &ties()[1..]);
    model.retie(&ties())?;
    assert_eq!(model.tied_parameters(), ties());
    assert!(!model.embedding.weight.is_meta()? && model.layers[0].weight.is_meta()?);
    let wrong = vec![vec![
        "embedding.weight".to_owned(),
        "norm.weight".to_owned(),
    ]];
    let error = model.retie(&wrong).unwrap_err().to_string();
    assert!(
        error.contains("`retie` needs parameters of the shape [5, 2]"),
        "{error}"
    );
    assert!(model.retie(&[vec!["x".to_owned()]]).is_err());
    Ok(())
}

fn linear_of(outputs: i64, inputs: i64) -> Result<Linear> {
    Linear::without_bias(inputs, outputs, &Factory::default())
}

#[test]
fn computing_without_values_is_refused_and_shapes_are_not() -> Result<()> {
    let factory = Factory::default().on_meta();
    let layer = Linear::without_bias(3, 2, &factory)?;
    let norm = LayerNorm::new(3, 1e-5, &factory)?;
    let embedding = Embedding::new(4, 3, &factory)?;
    let input = Tensor::f_ones([1, 3], (Kind::Float, Device::Cpu))?;
    let ids = Tensor::from_slice(&[1i64]);
    for result in [layer.call(&input), norm.call(&input), embedding.call(&ids)] {
        assert!(matches!(result, Err(Error::OnMeta { .. })), "{result:?}");
    }
    let input = factory.empty(&[1, 3])?;
    assert_eq!(layer.call(&input)?.size(), [1, 2]);
    let product = || -> Result<Tensor> { Ok(input.f_mul(&norm.weight.dense()?)?) };
    assert!(product().is_err());
    assert_eq!(shapes_only(product)?.size(), [1, 3]);
    Ok(())
}

#[test]
fn layers_of_one_type_are_found_in_boxes_too() -> Result<()> {
    let slots = slots()?;
    let found = slots
        .named_modules()
        .into_iter()
        .filter(|(_, module)| module.downcast_ref::<Linear>().is_some())
        .count();
    assert_eq!(found, 8);
    let mut members = 0;
    slots.members(&mut |_, member| members += usize::from(matches!(member, Member::Module(_))));
    assert_eq!(members, 6);
    Ok(())
}
