//! Damaged config files: reading them never panics, and each error says where the damage is.

use accelerate_plan::{
    Hint,
    config::{ConfigError, RawFile, yaml},
};

const YAML: &str = "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
shared: &shared {fsdp_offload_params: false, 'fsdp_version': 1}
fsdp_config:
  <<: *shared
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: \"BertLayer,\\u0041\"
gpu_ids: 0,1   # both
mixed_precision: no
num_machines: 0x2
learning_rate: 1.0e-3
commands:
- echo |
- >-
  folded
  text
? long
: [~, 1e8, .inf, {a: b}]
tpu_env: []
";

const JSON: &str = "\
{
  \"compute_environment\": \"LOCAL_MACHINE\",
  \"fsdp_config\": {\"a\": [1, 2.5e3, null, true], \"b\": \"\\ud83d\\ude00\"},
  \"num_processes\": -12,
  \"tpu_env\": []
}
";

/// What is put into a text or in the place of one of its characters.
const DAMAGE: [&str; 40] = [
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\0",
    "\u{1b}",
    "\u{85}",
    "\u{feff}",
    "é",
    "😀",
    "'",
    "\"",
    "\\",
    ":",
    ": ",
    "- ",
    "-",
    "? ",
    "#",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&",
    "*",
    "*shared",
    "<<: ",
    "!",
    "!!int ",
    "!!python/name:x ",
    "|",
    ">",
    "%",
    "---\n",
    "...\n",
    "@",
    "9",
    "a: &b",
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

fn mutate(text: &str, dice: &mut Dice) -> String {
    let mut characters: Vec<String> = text.chars().map(String::from).collect();
    for _ in 0..=dice.below(4) {
        let place = dice.below(characters.len());
        let damage = DAMAGE[dice.below(DAMAGE.len())];
        match dice.below(4) {
            0 => characters[place] = damage.to_owned(),
            1 => characters.insert(place, damage.to_owned()),
            2 => characters.truncate(place.max(1)),
            _ => {
                let end = (place + dice.below(20)).min(characters.len());
                let part = characters[place..end].to_vec();
                let at = dice.below(characters.len());
                characters.splice(at..at, part);
            }
        }
    }
    characters.concat()
}

fn check(path: &str, text: &str) -> bool {
    let error = match RawFile::parse(path, text) {
        Ok(file) => {
            // What was read can be written and read again.
            let value = file.to_value();
            let written = yaml::write(&value);
            let again = RawFile::parse("again.yaml", &written);
            assert!(
                again.is_ok() || file.entries.is_empty(),
                "{text}\n{written}\n{again:?}"
            );
            return true;
        }
        Err(error) => error,
    };
    let lines = text.lines().count() + 1;
    match &error {
        ConfigError::Empty { .. } | ConfigError::NotAMap { .. } => {}
        _ => {
            let line = error.line();
            assert!(
                line.is_some_and(|line| (1..=lines).contains(&line)),
                "{error}\n{text}"
            );
        }
    }
    assert!(error.to_string().contains(path), "{error}");
    assert!(error.hint().is_some(), "{error}");
    false
}

/// `MUTATIONS` asks for another number of damaged files.
#[test]
fn damaged_files_end_in_an_error_with_a_line() {
    assert!(check("whole.yaml", YAML) && check("whole.json", JSON));
    assert!(check("json_in.yaml", JSON));
    let mut dice = Dice(1);
    let mut readable = 0;
    let rounds = std::env::var("MUTATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    for round in 0..rounds {
        let (path, text) = match round % 4 {
            0 => ("broken.json", JSON),
            1 => ("broken.yaml", JSON),
            _ => ("broken.yaml", YAML),
        };
        readable += usize::from(check(path, &mutate(text, &mut dice)));
    }
    // Some damage does no harm, most of it does.
    assert!(
        (rounds / 10..rounds * 3 / 4).contains(&readable),
        "{readable}"
    );
}
