//! Writes a model of made-up weights as public checkpoints are: `config.json`, safetensors files and
//! their index.
//!
//! ```text
//! cargo run --release --example random_model -- gpt2-xl float32 1GB FOLDER
//! ```
//!
//! Shapes, types and the size of files are arguments; see `shapes.rs`. The weights follow from the
//! names of the tensors, so every run writes the same files. Memory is needed for a megabyte of
//! them. `cargo xtask random-model` runs this.
#![forbid(unsafe_code)]

mod shapes;
mod values;

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use accelerate_formats::{ShardSize, ShardedOptions, write_sharded_with};

use shapes::Shape;
use values::{RandomWeights, WeightType};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [shape, kind, size, folder] = arguments.as_slice() else {
        return Err(format!(
            "expected SHAPE TYPE SHARD_SIZE FOLDER, where SHAPE is one of {} and TYPE is `float32` or `bfloat16`",
            Shape::NAMES.join(", ")
        )
        .into());
    };
    let (shape, kind) = (Shape::named(shape)?, WeightType::named(kind)?);
    write(&shape, kind, size.parse()?, Path::new(folder))
}

fn write(
    shape: &Shape,
    kind: WeightType,
    size: ShardSize,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let weights = RandomWeights::new(shape.tensors(), kind);
    let options = ShardedOptions::default().with_max_shard_size(size);
    let files = write_sharded_with(&weights, folder, options)?;
    let config = serde_json::to_string_pretty(&shape.config(kind.name()))?;
    fs::write(folder.join("config.json"), config + "\n")?;
    say(&format!(
        "{} parameters in {} files in `{}`",
        weights.parameters(),
        files.len(),
        folder.display()
    ));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "says what was written")]
fn say(text: &str) {
    println!("{text}");
}
