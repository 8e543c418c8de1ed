//! Config files with mistyped keys and wrong values: reading them never panics, and each error names
//! the file, the line and the key.

use std::collections::BTreeSet;

use accelerate_plan::{
    Hint,
    config::{ConfigError, RawFile, yaml},
    settings::ConfigFile,
};

const WHOLE: &str = "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: 0,1
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
use_cpu: false
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_min_num_params: 1e8
  fsdp_offload_params: true
  fsdp_sharding_strategy: 1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_version: 2
deepspeed_config:
  gradient_clipping: 1.0
  zero_stage: 3
fp8_config:
  amax_history_length: 16
  override_linear_precision: (false, true, false)
dynamo_config:
  dynamo_backend: INDUCTOR
parallelism_config:
  parallelism_config_tp_size: 2
";

/// Values of every kind, few of which fit where they are put.
const VALUES: [&str; 18] = [
    "~",
    "''",
    "-1",
    "0",
    "7",
    "2.5",
    "99999999999999999999",
    ".inf",
    "no",
    "maybe",
    "bf16",
    "FULL_SHARD",
    "[1, 2]",
    "[]",
    "{a: 1}",
    "{}",
    "2001-01-01",
    "!!binary aGk=",
];

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).map_or(0, |number| number % limit)
    }
}

fn split(line: &str) -> (&str, &str, &str) {
    let bare = line.trim_start();
    let indent = &line[..line.len() - bare.len()];
    let (key, value) = bare.split_once(':').unwrap_or((bare, ""));
    (indent, key, value)
}

/// Changes a few lines; returns the text and the lines, from 1, that were changed.
fn mutate(dice: &mut Dice) -> (String, BTreeSet<usize>) {
    let mut lines: Vec<String> = WHOLE.lines().map(str::to_owned).collect();
    let mut changed = BTreeSet::new();
    for _ in 0..=dice.below(3) {
        let number = dice.below(lines.len());
        let (indent, key, value) = split(&lines[number]);
        let is_section = value.is_empty();
        lines[number] = match dice.below(4) {
            // A letter is lost, doubled, or another.
            kind @ 0..=2 if key.len() > 2 => {
                let at = dice.below(key.len());
                let (start, end) = key.split_at(at);
                let letter = &end[..1];
                let key = match kind {
                    0 => format!("{start}{}", &end[1..]),
                    1 => format!("{start}{letter}{end}"),
                    _ => format!("{start}z{}", &end[1..]),
                };
                format!("{indent}{key}:{value}")
            }
            // What stands below a section stays there.
            _ if is_section => continue,
            _ => format!("{indent}{key}: {}", VALUES[dice.below(VALUES.len())]),
        };
        changed.insert(number + 1);
    }
    (lines.join("\n") + "\n", changed)
}

/// The lines and keys that an error is about, none if it is about the whole file; `None` for an
/// error that no such change can cause.
fn told(error: &ConfigError) -> Option<Vec<(usize, String)>> {
    Some(match error {
        ConfigError::UnknownKeys { keys, .. } => {
            keys.iter().map(|key| (key.line, key.key.clone())).collect()
        }
        ConfigError::WrongValue { wrong, .. } => vec![(wrong.line, wrong.key.clone())],
        ConfigError::Duplicate { line, key, .. } => vec![(*line, key.clone())],
        // A value that YAML itself cannot have: the line is told, and what stands there.
        ConfigError::MissingKey { .. } | ConfigError::Syntax { .. } => Vec::new(),
        _ => return None,
    })
}

#[test]
fn the_whole_file_is_read() {
    let file = RawFile::parse("whole.yaml", WHOLE).unwrap();
    ConfigFile::of(file).unwrap();
}

/// `MUTATIONS` asks for another number of files.
#[test]
fn errors_name_file_line_and_key() {
    let rounds = std::env::var("MUTATIONS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(1000);
    let mut dice = Dice(7);
    let mut readable = 0;
    for _ in 0..rounds {
        let (text, changed) = mutate(&mut dice);
        let file = RawFile::parse("job.yaml", &text).and_then(ConfigFile::of);
        let error = match file {
            Ok(file) => {
                // It is understood in the same way when it is written anew.
                let written = yaml::write(&file.updated());
                let again = RawFile::parse("job.yaml", &written).and_then(ConfigFile::of);
                let again = again.unwrap_or_else(|error| panic!("{error}\n{text}\n{written}"));
                assert_eq!(again.updated(), file.updated(), "{text}\n{written}");
                readable += 1;
                continue;
            }
            Err(error) => error,
        };
        let said = error.to_string();
        assert!(said.contains("job.yaml"), "{said}");
        assert!(
            error.line().is_none_or(|line| changed.contains(&line)),
            "{said}\n{text}"
        );
        for (line, key) in told(&error).expect(&said) {
            assert!(changed.contains(&line), "{said}\n{text}");
            assert!(said.contains(&format!("`{key}`")), "{said}");
            let at = [format!("job.yaml:{line}`"), format!("(line {line})")];
            assert!(at.iter().any(|at| said.contains(at)), "{said}");
            let (_, found, _) = split(text.lines().nth(line - 1).unwrap());
            assert!(key.ends_with(found), "{said}\n{text}");
        }
        if let ConfigError::UnknownKeys { .. } = error {
            assert!(error.hint().is_some(), "{said}");
        }
    }
    // Some changes do no harm, most do.
    assert!((rounds / 50..rounds / 2).contains(&readable), "{readable}");
}
