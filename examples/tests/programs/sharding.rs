//! `nlp`, and `clm` once, on two processes under the files of the documentation's sections on FSDP and
//! DeepSpeed. What is another than there: `--cpu`, two processes everywhere, and CPU memory instead
//! of a disk.

mod files;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use accelerate_formats::Weights;

use crate::clm::{CLM, arguments};
use crate::process::Done;
use crate::workplace::Workplace;
use files::{
    AUTO_JSON, FSDP, PLUGIN_STAGE_2, PLUGIN_STAGE_3, SCENARIO_1, SCENARIO_2, SCENARIO_JSON,
    STAGE_2_JSON, STAGE_3_JSON, WITH_FILE,
};

/// The launcher's words for a file of settings, and perhaps DeepSpeed's own beside it.
fn under(place: &Workplace, yaml: &str, json: &str) -> Vec<String> {
    let (path, own) = (place.path("launch.yaml"), place.path("ds_config.json"));
    fs::write(&own, json).unwrap();
    let yaml = yaml.replace("ds_config.json", own.to_str().unwrap());
    fs::write(&path, yaml).unwrap();
    let path = path.into_os_string().into_string().unwrap();
    let words = ["--quiet", "--no_prefix", "--config_file"];
    words.map(str::to_owned).into_iter().chain([path]).collect()
}

/// Runs the job under a file of settings, and perhaps DeepSpeed's own beside it.
fn run(place: &Workplace, yaml: &str, json: &str, flags: &[&str]) -> Done {
    let launch = under(place, yaml, json);
    let mut launch: Vec<&str> = launch.iter().map(String::as_str).collect();
    launch.extend(flags);
    let program = place.launch_nlp(2, &launch).args(["--show-state"]);
    program
        .args(["--output".as_ref(), place.output().as_os_str()])
        .run()
}

/// Everything in `texts` is printed, however wide the columns are.
#[track_caller]
fn assert_shown(done: &Done, texts: &[&str]) {
    let narrow: Vec<_> = done.stdout.split_whitespace().collect();
    let narrow = narrow.join(" ");
    for text in texts {
        assert!(narrow.contains(text), "`{text}` is not shown: {done:#?}");
    }
}

/// It trained, evaluated and saved a whole model.
#[track_caller]
fn assert_trained(place: &Workplace, done: &Done) {
    done.assert_code(0);
    assert_shown(done, &["epoch 1: accuracy", "on 7 held-out snippets"]);
    assert_eq!(done.stdout.matches("saved the model").count(), 1);
    let (before, after) = (weights(&place.model()), weights(&place.output()));
    let mut learnt = 0;
    for (name, (shape, bytes)) in &before {
        let Some((found, changed)) = after.get(name) else {
            continue;
        };
        assert_eq!(found, shape, "{name}");
        learnt += usize::from(changed != bytes);
    }
    assert!(learnt > 10, "{learnt} of {} tensors changed", before.len());
}

/// Shape and values of each tensor of a model folder.
fn weights(folder: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let weights = Weights::open(folder.join("model.safetensors")).unwrap();
    let all = weights.tensors().map(|tensor| {
        let values = tensor.bytes().unwrap().into_owned();
        (tensor.name().to_owned(), (tensor.shape().to_vec(), values))
    });
    all.collect()
}

const DEEPSPEED: &str = "Distributed environment: DistributedType.DEEPSPEED Backend: gloo \
                         Num processes: 2 Process index: 0 Local process index: 0 Device: cpu";

#[test]
fn the_file_of_fsdp() {
    let place = Workplace::new();
    let done = run(&place, FSDP, "{}", &[]);
    assert_trained(&place, &done);
    assert_shown(
        &done,
        &[
            "Distributed environment: DistributedType.FSDP Backend: gloo Num processes: 2",
            "Mixed precision type: bf16",
            "told as FSDP 1",
            "ranks 2 x shard",
            "sharded optimizer state, gradients, parameters",
            "units modules of class BertLayer",
        ],
    );
}

#[test]
fn clm_in_shards_saves_a_whole_model_and_makes_up_text() {
    let place = Workplace::new();
    let yaml = FSDP.replace("BertLayer", "GPT2Block");
    let flags = under(&place, &yaml, "{}");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = place.launch(2, &flags).args([CLM]);
    let done = program
        .args(arguments(&place, "gpt2"))
        .args(["--epochs", "1", "--show-state"])
        .run();
    done.assert_code(0);
    assert_shown(&done, &["units modules of class GPT2Block", "sample: the"]);
    let saved = weights(&place.path("gpt2"));
    let words = saved.iter().find(|(name, _)| name.ends_with("wte.weight"));
    let (_, (shape, _)) = words.unwrap();
    assert_eq!(shape.get(1), Some(&32), "{shape:?}");
}

#[test]
fn the_plugin_of_deepspeed_in_stage_2() {
    let place = Workplace::new();
    let done = run(&place, PLUGIN_STAGE_2, "{}", &[]);
    assert_trained(&place, &done);
    assert_shown(
        &done,
        &[
            DEEPSPEED,
            "Mixed precision type: fp16",
            "settled ds_config: {'train_batch_size': 8, 'train_micro_batch_size_per_gpu': 4, \
             'gradient_accumulation_steps': 1, 'zero_optimization': {'stage': 2,",
            "sharded optimizer state, gradients (",
            "clipped to the global norm 1 (",
        ],
    );
}

#[test]
fn the_plugin_of_deepspeed_in_stage_3_with_offload() {
    let place = Workplace::new();
    let done = run(&place, PLUGIN_STAGE_3, "{}", &[]);
    assert_trained(&place, &done);
    assert_shown(
        &done,
        &[
            DEEPSPEED,
            "'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'cpu',",
            "sharded optimizer state, gradients, parameters (",
            "parameters kept in pinned CPU memory",
            "optimizer kept in pinned CPU memory",
        ],
    );
}

/// Its 14 batches in an epoch are 7 steps of two processes.
const NAMED: [&str; 4] = [
    "'optimizer': {'type': 'AdamW', 'params': {'lr': 0.001, 'weight_decay': 0.01",
    "'scheduler': {'type': 'WarmupDecayLR', 'params': {'warmup_min_lr': 0, 'warmup_max_lr': 0.001, \
     'warmup_num_steps': 0, 'total_num_steps': 7}}",
    "'gradient_clipping': 1.0",
    "'train_batch_size': 8, 'train_micro_batch_size_per_gpu': 4",
];

#[test]
fn a_file_of_deepspeed_that_names_optimizer_and_schedule_in_stage_2() {
    let place = Workplace::new();
    let done = run(&place, WITH_FILE, STAGE_2_JSON, &[]);
    assert_trained(&place, &done);
    assert_shown(&done, &[DEEPSPEED, "Mixed precision type: fp16"]);
    assert_shown(&done, &NAMED);
    // The tiny model is 64 wide.
    assert_shown(&done, &["'reduce_bucket_size': 4096"]);
}

#[test]
fn a_file_of_deepspeed_that_names_optimizer_and_schedule_in_stage_3() {
    let place = Workplace::new();
    let done = run(&place, WITH_FILE, STAGE_3_JSON, &[]);
    assert_trained(&place, &done);
    assert_shown(&done, &NAMED);
    assert_shown(
        &done,
        &[
            "'reduce_bucket_size': 4096, 'stage3_prefetch_bucket_size': 3686, \
             'stage3_param_persistence_threshold': 640",
            "'stage3_gather_16bit_weights_on_model_save': False",
        ],
    );
}

#[test]
fn scenario_1_is_refused_before_anything_is_trained() {
    let place = Workplace::new();
    let done = run(&place, SCENARIO_1, SCENARIO_JSON, &[]);
    assert_ne!(done.status.code(), Some(0), "{done:#?}");
    done.assert_told(&[
        "`gradient_accumulation_steps` is 1 (",
        "`gradient_clipping` is 1.0 (",
        "`zero_stage` is 3 (",
        "`offload_optimizer_device` is cpu (",
        "`offload_param_device` is cpu (",
        "`zero3_save_16bit_model` is true (",
        "say it in the DeepSpeed config only",
    ]);
    assert_eq!(done.stdout.matches("epoch ").count(), 0, "{done:#?}");
}

#[test]
fn scenario_2_shows_the_state_of_the_documentation() {
    let place = Workplace::new();
    let done = run(&place, SCENARIO_2, SCENARIO_JSON, &[]);
    assert_trained(&place, &done);
    assert_shown(
        &done,
        &[
            DEEPSPEED,
            "Mixed precision type: bf16 \
             ds_config: {'bf16': {'enabled': True}, 'zero_optimization': {'stage': 3, \
             'stage3_gather_16bit_weights_on_model_save': False, 'offload_optimizer': {'device': \
             'none'}, 'offload_param': {'device': 'none'}}, 'gradient_clipping': 1.0, \
             'train_batch_size': 'auto', 'train_micro_batch_size_per_gpu': 'auto', \
             'gradient_accumulation_steps': 10, 'steps_per_print': inf, 'fp16': {'enabled': False}}",
            "'train_batch_size': 80, 'train_micro_batch_size_per_gpu': 4",
        ],
    );
}

#[test]
fn scenario_3_shows_the_state_of_the_documentation() {
    let place = Workplace::new();
    let flags = [
        "--mixed_precision=fp16",
        "--zero_stage=3",
        "--gradient_accumulation_steps=5",
        "--gradient_clipping=1.0",
        "--offload_param_device=cpu",
        "--offload_optimizer_device=cpu",
        "--zero3_save_16bit_model=true",
    ];
    let done = run(&place, SCENARIO_2, AUTO_JSON, &flags);
    assert_trained(&place, &done);
    assert_shown(
        &done,
        &[
            DEEPSPEED,
            "Mixed precision type: fp16 \
             ds_config: {'bf16': {'enabled': False}, 'zero_optimization': {'stage': 3, \
             'stage3_gather_16bit_weights_on_model_save': True, 'offload_optimizer': {'device': \
             'cpu'}, 'offload_param': {'device': 'cpu'}}, 'gradient_clipping': 1.0, \
             'train_batch_size': 'auto', 'train_micro_batch_size_per_gpu': 'auto', \
             'gradient_accumulation_steps': 5, 'steps_per_print': inf, 'fp16': {'enabled': True, \
             'auto_cast': True}}",
            "'train_batch_size': 40, 'train_micro_batch_size_per_gpu': 4",
        ],
    );
}
