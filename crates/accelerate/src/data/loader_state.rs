use std::fmt;

use accelerate_torch::Generator;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tch::Tensor;

use super::iterable::StreamProgress;
use crate::{Error, Result};

/// Where a prepared loader stands: its epoch, and how far the loop over it has come.
///
/// It counts exactly the batches that were handed out, whatever workers have read
/// ahead, and holds what the order of the epoch was drawn from. So a loader of a new
/// program that [loads](super::DataLoaderShard::load_state_dict) it goes on with the
/// next batch of the same order, with any number of workers and of ranks; streams have
/// [limits](super::IterableDataLoaderShard::load_state_dict).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataLoaderState {
    /// The epoch that runs, or comes next.
    pub epoch: u64,
    /// Whether a loop has begun the epoch and not come to its end.
    pub in_epoch: bool,
    /// How many batches of the loader, as it was before it was prepared, all ranks
    /// together were handed out in the epoch.
    pub batches: usize,
    pub(super) shape: LoaderShape,
    pub(super) generators: GeneratorStates,
    /// Of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<StreamProgress>,
}

impl DataLoaderState {
    /// The same loop when it had handed out `batches` batches; of streams, the start only.
    pub(super) fn at_batch(&self, batches: usize) -> Self {
        let stream = self.stream.as_ref().map(StreamProgress::at_start);
        Self {
            batches,
            stream,
            ..self.clone()
        }
    }

    /// The loop that begins where this state was taken between two epochs.
    pub(super) fn begun(&self) -> Result<Self> {
        let mut begun = self.at_batch(0);
        begun.in_epoch = true;
        begun.generators.global = Some(GeneratorState::of(&Generator::default_cpu()?)?);
        Ok(begun)
    }

    /// The state of a loader that begins `epoch` afresh with the same generators.
    pub(super) fn in_other_epoch(self, epoch: u64) -> Self {
        Self {
            epoch,
            in_epoch: false,
            batches: 0,
            ..self
        }
    }
}

impl DataLoaderState {
    /// The same position in batches of another size, where it lies between two of them: a job
    /// that goes on with another number of ranks keeps its step of all ranks together by it.
    pub(super) fn in_batches_of(mut self, own: LoaderShape) -> Self {
        let saved = self.shape;
        if saved.samples != own.samples || saved.batch_size == own.batch_size {
            return self;
        }
        if let (Some(before), Some(size)) = (saved.batch_size, own.batch_size)
            && (self.batches * before).is_multiple_of(size)
        {
            self.batches = self.batches * before / size;
            self.shape = own;
        }
        self
    }
}

/// What must be the same for a position to mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoaderShape {
    pub(super) samples: Option<usize>,
    pub(super) batch_size: Option<usize>,
    pub(super) batches: usize,
}

impl LoaderShape {
    /// What of `saved` is not as it is here, in words.
    pub(super) fn differences(self, saved: Self) -> Vec<String> {
        let text = |number: Option<usize>| number.map_or("varying".to_owned(), |n| n.to_string());
        let pairs = [
            (
                "samples in an epoch",
                text(self.samples),
                text(saved.samples),
            ),
            (
                "a batch size of",
                text(self.batch_size),
                text(saved.batch_size),
            ),
            (
                "batches in an epoch",
                self.batches.to_string(),
                saved.batches.to_string(),
            ),
        ];
        pairs
            .into_iter()
            .filter(|(_, own, saved)| own != saved)
            .map(|(what, own, saved)| format!("expected {what} `{own}`, found `{saved}`"))
            .collect()
    }
}

/// The generators that an epoch's order and its workers' seeds are drawn from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GeneratorStates {
    /// The sampler's own.
    pub(super) sampler: Option<GeneratorState>,
    /// The loader's own, where it is another one.
    pub(super) loader: Option<GeneratorState>,
    /// libtorch's global one, as it was when the epoch began.
    pub(super) global: Option<GeneratorState>,
}

impl GeneratorStates {
    /// What does not fit, by name and whether there is a generator here: the sampler's, or the
    /// data set's, and the loader's.
    pub(super) fn mismatches(&self, own: [(&str, bool); 2]) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for ((name, own), saved) in own.into_iter().zip([&self.sampler, &self.loader]) {
            if own != saved.is_some() {
                let text = |there: bool| if there { "one" } else { "none" };
                problems.push(format!(
                    "expected {} generator of the {name}, found {}",
                    text(own),
                    text(saved.is_some())
                ));
            }
        }
        for saved in [&self.sampler, &self.loader, &self.global] {
            if let Some(saved) = saved
                && !saved.is_sound()?
            {
                problems.push("expected the state of a generator, found other bytes".to_owned());
            }
        }
        Ok(problems)
    }
}

/// The bytes of a generator's state; text of hexadecimal digits where it is written.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct GeneratorState(Vec<u8>);

impl GeneratorState {
    pub(super) fn of(generator: &Generator) -> Result<Self> {
        Ok(Self(Vec::try_from(&generator.state()?)?))
    }

    pub(super) fn restore(&self, generator: &Generator) -> Result<()> {
        Ok(generator.set_state(&Tensor::f_from_slice(&self.0)?)?)
    }

    /// Whether a CPU generator can take this state.
    pub(super) fn is_sound(&self) -> Result<bool> {
        Ok(self.restore(&Generator::new(0)?).is_ok())
    }
}

impl fmt::Debug for GeneratorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GeneratorState({} bytes)", self.0.len())
    }
}

impl Serialize for GeneratorState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16);
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        serializer.serialize_str(&digits.filter_map(digit).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for GeneratorState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| match pair {
            [high, low] => {
                let value = |digit: &u8| char::from(*digit).to_digit(16);
                u8::try_from(value(high)? * 16 + value(low)?).ok()
            }
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes
            .map(Self)
            .ok_or_else(|| de::Error::custom("expected pairs of hexadecimal digits"))
    }
}

/// Runs `draw` with the global generator in the state `at`, and puts it back after.
pub(super) fn with_global<T>(
    at: Option<&GeneratorState>,
    draw: impl FnOnce() -> T,
) -> Result<T, Error> {
    let Some(at) = at else {
        return Ok(draw());
    };
    let global = Generator::default_cpu()?;
    let now = GeneratorState::of(&global)?;
    at.restore(&global)?;
    let drawn = draw();
    now.restore(&global)?;
    Ok(drawn)
}
