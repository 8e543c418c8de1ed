//! Everything that is told about a model, as data. [`text`](super::text) shows it to a person.

use accelerate_plan::MixedPrecision;
use serde::Serialize;

use crate::dtype_sum::DtypeSum;

use super::{
    args::EstimateArgs,
    configured::{Configured, configured},
    dtypes::{Row, row},
    error::{EstimateError, Result},
    inference::{Inference, inference},
    largest::{Largest, Layer},
    lora::Lora,
    module::Name,
    skeleton::Skeleton,
    source::Model,
    stored::{Role, Stored, numbered_block},
    training::{Inventory, Layout, Optimizer, Sharding, Usage, Weight, usage},
};

/// What no number here holds.
pub(crate) const NOT_COUNTED: [&str; 4] = [
    "activations, which grow with the batch and the length of its samples",
    "the context of the device, some 0.5 GB for each process with CUDA",
    "buffers for communication and the work space of kernels",
    "what fragmentation of the memory wastes",
];

/// The answer to `accelerate estimate-memory`. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) model: String,
    pub(crate) path: Option<String>,
    /// The class that was counted; none where only files were.
    pub(crate) class: Option<String>,
    /// All elements of parameters, tied ones once; of all tensors where only files were counted.
    pub(crate) parameters: u64,
    /// What tied parameters would take in float32 if they were not tied.
    pub(crate) tied_bytes: u64,
    /// The rows of the first table.
    #[serde(rename = "dtypes")]
    pub(crate) rows: Vec<Row>,
    pub(crate) largest_layers: Vec<LayerName>,
    pub(crate) stored: Option<OnDisk>,
    pub(crate) training: Option<Training>,
    pub(crate) inference: Option<Inference>,
    pub(crate) configured: Option<Configured>,
    pub(crate) notes: Vec<String>,
    pub(crate) not_counted: [&'static str; 4],
}

/// A layer by its name and class.
#[derive(Debug, Serialize)]
pub(crate) struct LayerName {
    pub(crate) name: String,
    pub(crate) class: Option<String>,
}

/// The weights on disk.
#[derive(Debug, Serialize)]
pub(crate) struct OnDisk {
    pub(crate) files: usize,
    pub(crate) tensors: usize,
    pub(crate) total_bytes: u64,
    pub(crate) largest_layer_bytes: u64,
    pub(crate) largest_layers: Vec<LayerName>,
    pub(crate) quantized: bool,
    pub(crate) dtypes: Vec<DtypeSum>,
}

/// The memory for training.
#[derive(Debug, Serialize)]
pub(crate) struct Training {
    pub(crate) num_processes: u64,
    pub(crate) num_machines: u64,
    pub(crate) optimizer: Optimizer,
    pub(crate) trainable_parameters: u64,
    /// Buffers and quantised weights, whole on every process.
    pub(crate) fixed_bytes: u64,
    /// The adapters that are trained; none where all weights are.
    pub(crate) lora: Option<Lora>,
    pub(crate) plans: Vec<Usage>,
}

/// Works everything out that `args` ask about a model.
///
/// # Errors
/// [`EstimateError::UnevenMachines`].
pub(crate) fn answer(args: &EstimateArgs, model: Model) -> Result<Answer> {
    let (inventory, lora) = args.lora.apply(inventory(&model), model.config.as_ref())?;
    let training = training(args, &inventory, lora)?;
    let inference = inference(
        &args.inference,
        &args.generation,
        &args.dtypes,
        &model,
        &args.model_name,
    )?;
    let optimizer = args.optimizer.unwrap_or(Optimizer::Adamw);
    let configured = configured(args, &inventory, optimizer)?;
    let mut notes = notes(args, &model);
    notes.splice(0..0, model.notes.iter().cloned());
    let (rows, largest, parameters) = match (&model.skeleton, &model.stored) {
        (Some(skeleton), _) => {
            let largest = skeleton.largest_layer();
            let total = skeleton.root.bytes();
            let rows = args.dtypes.iter().map(|&d| row(d, total, largest.bytes));
            (rows.collect(), largest, skeleton.parameters(true))
        }
        (None, Some(stored)) => {
            let rows = stored.rows(&args.dtypes);
            (rows, stored.largest_layer(), stored.elements())
        }
        (None, None) => (Vec::new(), Largest::default(), 0),
    };
    let tied_bytes = model.skeleton.as_ref().map_or(0, |skeleton| {
        let tied = skeleton.parameters(false).saturating_sub(parameters);
        tied.saturating_mul(4)
    });
    Ok(Answer {
        model: args.model_name.clone(),
        path: model.path.map(|path| path.display().to_string()),
        class: model.skeleton.map(|s| s.root.class.into_owned()),
        parameters,
        tied_bytes,
        rows,
        largest_layers: names(largest),
        stored: model.stored.as_ref().map(on_disk),
        training,
        inference,
        configured,
        notes,
        not_counted: NOT_COUNTED,
    })
}

/// What the numbers alone do not tell.
fn notes(args: &EstimateArgs, model: &Model) -> Vec<String> {
    let mut notes = Vec::new();
    let counted = model.stored.as_ref().filter(|_| model.skeleton.is_none());
    if counted.is_some_and(Stored::is_quantized) {
        let kept = "quantised tensors and their scales keep their size in each row";
        notes.push(match args.wants_plans() {
            true => format!("{kept} and are not trained"),
            false => kept.to_owned(),
        });
    }
    if args.wants_plans() && args.num_processes.is_none_or(|n| n.get() == 1) {
        notes.push("one process shares nothing out: try `--num_processes 8`".to_owned());
    }
    notes
}

fn on_disk(stored: &Stored) -> OnDisk {
    let largest = stored.largest_layer();
    OnDisk {
        files: stored.files,
        tensors: stored.tensors.len(),
        total_bytes: stored.total_bytes(),
        largest_layer_bytes: largest.bytes,
        largest_layers: names(largest),
        quantized: stored.is_quantized(),
        dtypes: stored.by_dtype(),
    }
}

fn names(largest: Largest) -> Vec<LayerName> {
    let layers = largest.layers.into_iter();
    let name = |Layer { name, class }| LayerName {
        name,
        class: class.map(Name::into_owned),
    };
    layers.map(name).collect()
}

/// What is trained of a model.
pub(crate) fn inventory(model: &Model) -> Inventory {
    match (&model.skeleton, &model.stored) {
        (Some(skeleton), _) => of_skeleton(skeleton),
        (None, Some(stored)) => of_stored(stored),
        (None, None) => Inventory::default(),
    }
}

fn training(
    args: &EstimateArgs,
    inventory: &Inventory,
    lora: Option<Lora>,
) -> Result<Option<Training>> {
    if !args.wants_plans() {
        return Ok(None);
    }
    let layout = Layout {
        num_processes: args.num_processes.map_or(1, u64::from),
        num_machines: args.num_machines.map_or(1, u64::from),
    };
    let Layout {
        num_processes,
        num_machines,
    } = layout;
    if !num_processes.is_multiple_of(num_machines) {
        return Err(EstimateError::UnevenMachines {
            num_processes,
            num_machines,
        });
    }
    let optimizer = args.optimizer.unwrap_or(Optimizer::Adamw);
    let precisions = match args.mixed_precision {
        Some(precision) => vec![precision],
        None => vec![MixedPrecision::No, MixedPrecision::Bf16],
    };
    let cases = precisions
        .into_iter()
        .flat_map(|p| Sharding::ALL.map(|plan| (plan, p)));
    let plans = cases.map(|(plan, p)| usage(inventory, plan, layout, optimizer, p));
    Ok(Some(Training {
        num_processes,
        num_machines,
        optimizer,
        trainable_parameters: inventory.elements(),
        fixed_bytes: inventory.fixed_bytes,
        lora,
        plans: plans.collect(),
    }))
}

/// Blocks are the outermost modules that may not be split. Tied weights exist once.
fn of_skeleton(skeleton: &Skeleton) -> Inventory {
    fn collect(
        name: &str,
        module: &super::module::Module,
        skeleton: &Skeleton,
        block: Option<usize>,
        blocks: &mut usize,
        inventory: &mut Inventory,
    ) {
        let starts = block.is_none() && skeleton.no_split.contains(&module.class);
        let block = if starts { Some(*blocks) } else { block };
        *blocks += usize::from(starts);
        let owned = module.parameters.iter().filter(|p| !p.shared);
        let below = |part: &str| match name {
            "" => part.to_owned(),
            _ => format!("{name}.{part}"),
        };
        inventory.trainable.extend(owned.map(|parameter| Weight {
            name: below(parameter.name),
            shape: parameter.shape.clone(),
            block,
        }));
        let buffers = module.buffers.iter().map(|b| b.bytes());
        inventory.fixed_bytes = buffers.fold(inventory.fixed_bytes, u64::saturating_add);
        for (name, child) in &module.children {
            collect(&below(name), child, skeleton, block, blocks, inventory);
        }
    }
    let mut inventory = Inventory::default();
    collect("", &skeleton.root, skeleton, None, &mut 0, &mut inventory);
    inventory
}

fn of_stored(stored: &Stored) -> Inventory {
    let mut inventory = Inventory::default();
    let mut numbers = std::collections::HashMap::new();
    for tensor in &stored.tensors {
        if tensor.role != Role::Weight {
            inventory.fixed_bytes += tensor.bytes;
            continue;
        }
        let block = numbered_block(&tensor.name).map(|block| {
            let next = numbers.len();
            *numbers.entry(block).or_insert(next)
        });
        inventory.trainable.push(Weight {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            block,
        });
    }
    inventory
}
