//! Four sources and six settings: each setting takes the value of the first source that has one,
//! whatever the others do.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use crate::command::{Folder, free_port};

/// A setting, its values by flag, variable and file, and how a process learns of it.
struct Key {
    name: &'static str,
    variable: &'static str,
    section: Option<&'static str>,
    values: [String; 3],
    /// The variable of a process, and what it holds if nobody gives a value; `None` if that differs
    /// from run to run, empty if it is not set.
    seen: &'static str,
    otherwise: Option<&'static str>,
    /// The value that is shown if nobody gives one.
    default: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Flag,
    Variable,
    File,
    Nobody,
}

const SOURCES: [Source; 4] = [Source::Flag, Source::Variable, Source::File, Source::Nobody];

fn keys() -> [Key; 6] {
    let values = |[flag, variable, file]: [&str; 3]| [flag, variable, file].map(str::to_owned);
    [
        Key {
            name: "num_processes",
            variable: "ACCELERATE_NUM_PROCESSES",
            section: None,
            values: values(["2", "3", "4"]),
            seen: "WORLD_SIZE",
            otherwise: Some(""),
            default: Some("1"),
        },
        Key {
            name: "mixed_precision",
            variable: "ACCELERATE_MIXED_PRECISION",
            section: None,
            values: values(["fp16", "bf16", "fp8"]),
            seen: "ACCELERATE_MIXED_PRECISION",
            otherwise: Some("no"),
            default: Some("no"),
        },
        Key {
            name: "main_process_ip",
            variable: "ACCELERATE_MAIN_PROCESS_IP",
            section: None,
            values: values(["127.0.0.2", "127.0.0.3", "127.0.0.4"]),
            seen: "MASTER_ADDR",
            otherwise: Some("127.0.0.1"),
            default: None,
        },
        Key {
            name: "main_process_port",
            variable: "ACCELERATE_MAIN_PROCESS_PORT",
            section: None,
            values: [free_port(), free_port(), free_port()].map(|port| port.to_string()),
            seen: "MASTER_PORT",
            otherwise: None,
            default: None,
        },
        Key {
            name: "dynamo_backend",
            variable: "ACCELERATE_DYNAMO_BACKEND",
            section: Some("dynamo_config"),
            values: values(["INDUCTOR", "EAGER", "AOT_EAGER"]),
            seen: "ACCELERATE_DYNAMO_BACKEND",
            otherwise: Some("NO"),
            default: None,
        },
        Key {
            name: "gradient_accumulation_steps",
            variable: "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
            section: Some("deepspeed_config"),
            values: values(["5", "6", "7"]),
            seen: "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
            otherwise: Some(""),
            default: None,
        },
    ]
}

/// What is given to one run, and what must come of it.
#[derive(Default)]
struct Case<'a> {
    flags: Vec<String>,
    variables: Vec<(&'a str, &'a str)>,
    file: String,
    shown: Vec<(String, &'a str, &'static str, String)>,
}

impl<'a> Case<'a> {
    /// Every source from `first` on has a value for the setting.
    fn give(&mut self, key: &'a Key, first: Source) {
        let Key { name, variable, .. } = key;
        let [flag, by_variable, in_file] = &key.values;
        if first <= Source::Flag {
            self.flags.extend([format!("--{name}"), flag.clone()]);
        }
        if first <= Source::Variable {
            self.variables.push((variable, by_variable));
        }
        if first <= Source::File {
            match key.section {
                Some(section) => write!(self.file, "{section}:\n  {name}: {in_file}\n"),
                None => writeln!(self.file, "{name}: {in_file}"),
            }
            .unwrap();
        }
        let from = match first {
            Source::Flag => (flag.as_str(), "flag", format!("--{name}")),
            Source::Variable => (by_variable.as_str(), "variable", (*variable).to_owned()),
            Source::File => {
                let line = self.file.lines().count();
                (in_file.as_str(), "file", format!("job.yaml:{line}"))
            }
            Source::Nobody => ("", "", String::new()),
        };
        let full = match key.section {
            Some(section) => format!("{section}.{name}"),
            None => (*name).to_owned(),
        };
        self.shown.push((full, from.0, from.1, from.2));
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[test]
fn each_setting_comes_from_the_first_source_that_has_it() {
    let folder = Folder::new();
    let keys = keys();
    for shift in 0..SOURCES.len() {
        let source = |index: usize| match index {
            // Nobody at all is a test of its own: one process is not told where others are.
            0 => SOURCES[shift % 3],
            _ => SOURCES[(index + shift) % SOURCES.len()],
        };
        let mut case = Case {
            file: "distributed_type: MULTI_CPU\n".to_owned(),
            ..Case::default()
        };
        for (index, key) in keys.iter().enumerate() {
            case.give(key, source(index));
        }
        folder.write("job.yaml", &case.file);

        let show = folder.accelerate(["config", "show", "--json", "--config_file", "job.yaml"]);
        let show = show.args(&case.flags).envs(case.variables.clone()).done();
        show.assert_code(0);
        let shown: Value = serde_json::from_str(&show.stdout).unwrap();
        for ((name, value, kind, from), key) in case.shown.iter().zip(&keys) {
            let row = &shown[name];
            if kind.is_empty() {
                let expected = key.default.map(str::to_owned);
                let found = row.get("value").map(text);
                assert_eq!(found, expected, "{shift}: {name}: {row}");
                continue;
            }
            assert_eq!(text(&row["value"]), *value, "{shift}: {name}: {row}");
            assert_eq!(row["origin"], *kind, "{shift}: {name}: {row}");
            assert_eq!(row["from"], *from, "{shift}: {name}: {row}");
        }

        let launch = folder.launch(["--config_file", "job.yaml"]);
        let launch = launch.args(&case.flags).envs(case.variables.clone());
        let body = "test $RANK != 0 || env > seen";
        launch.args(["sh", "-c", body]).done().assert_code(0);
        let seen = folder.read("seen");
        let seen: BTreeMap<_, _> = seen
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        for ((name, value, kind, _), key) in case.shown.iter().zip(&keys) {
            let found = seen.get(key.seen).copied().unwrap_or_default();
            match (kind.is_empty(), key.otherwise) {
                (false, _) => assert_eq!(found, *value, "{shift}: {name}"),
                (true, Some(otherwise)) => assert_eq!(found, otherwise, "{shift}: {name}"),
                (true, None) => {
                    assert!(!found.is_empty(), "{shift}: {name}");
                    assert!(!key.values.iter().any(|value| value == found), "{found}");
                }
            }
        }
    }
}

#[test]
fn what_nobody_gave_is_found_out_and_said() {
    let folder = Folder::new();
    let show = |words: &[&str]| {
        let show = folder.accelerate(["config", "show", "--json"]).args(words);
        let show = show.done();
        show.assert_code(0);
        serde_json::from_str::<Value>(&show.stdout).unwrap()
    };
    let shown = show(&["--cpu"]);
    assert_eq!(shown["num_processes"]["value"], 1);
    assert_eq!(shown["num_processes"]["origin"], "detected");
    let threads = &shown["num_cpu_threads_per_process"];
    assert_eq!(threads["origin"], "detected");

    // The processes get what is shown.
    let done = folder
        .launch([
            "--cpu",
            "sh",
            "-c",
            "echo ${WORLD_SIZE:-1} $OMP_NUM_THREADS",
        ])
        .done();
    done.assert_code(0);
    assert_eq!(done.stdout, format!("1 {}\n", threads["value"]));
    done.assert_says("`--num_processes` was set to `1` (on the CPU, more are asked for by number)");
    done.assert_says("`--num_cpu_threads_per_process` was set to");

    // A dry run shows them among the settings, with the reason.
    let dry = folder.launch(["--cpu", "--dry_run", "sh"]).done();
    dry.assert_code(0);
    dry.assert_prints("num_processes = 1  (detected: on the CPU");

    // Threads are given by flag or by the variable of OpenMP; a flag wins.
    let threads = |words: &[&str]| {
        let run = folder.launch(["--quiet", "--cpu"]).args(words);
        let run = run.env("OMP_NUM_THREADS", "5");
        run.args(["sh", "-c", "echo $OMP_NUM_THREADS"])
            .done()
            .stdout
    };
    assert_eq!(threads(&[]), "5\n");
    assert_eq!(threads(&["--num_cpu_threads_per_process", "3"]), "3\n");
}

#[test]
fn a_flag_for_one_setting_leaves_the_others_of_the_file_alone() {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        "distributed_type: FSDP\nnum_processes: 3\nmixed_precision: bf16\nuse_cpu: true\n\
         fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_offload_params: true\n",
    );
    let body = "echo $WORLD_SIZE $ACCELERATE_MIXED_PRECISION $ACCELERATE_USE_FSDP \
                $FSDP_SHARDING_STRATEGY $FSDP_OFFLOAD_PARAMS";
    let run = |words: &[&str]| {
        let run = folder.launch(["--quiet", "--no_prefix", "--config_file", "job.yaml"]);
        let done = run.args(words).args(["sh", "-c", body]).done();
        done.assert_code(0);
        done.stdout.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(run(&[]), "3 bf16 true SHARD_GRAD_OP true");
    assert_eq!(
        run(&["--num_processes", "2"]),
        "2 bf16 true SHARD_GRAD_OP true"
    );
    assert_eq!(
        run(&["--fsdp_sharding_strategy", "FULL_SHARD"]),
        "3 bf16 true FULL_SHARD true"
    );
    assert_eq!(
        run(&["--fsdp_offload_params", "false", "--mixed_precision=no"]),
        "3 no true SHARD_GRAD_OP false"
    );
}
