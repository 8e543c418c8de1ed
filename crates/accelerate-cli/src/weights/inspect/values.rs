//! Files of `torch.save` that hold more than a state dict, and what is no tensor in them.

use std::{collections::HashMap, convert::Infallible};

use accelerate_formats::{Look, StoredTensor, Value, distributed::flatten};

use super::{
    entry::Entry,
    listing::{Listing, NamedText, Tie},
};

/// The longest text of a value.
const LONGEST: usize = 60;

/// All tensors of a value under their flat names, and everything else.
pub(super) fn listing(value: &Value) -> Listing {
    let mut listing = Listing::default();
    let mut seen = Seen::default();
    let walked: Result<(), Infallible> = flatten(value, |flat| {
        let name = match flat.name() {
            all if all.is_empty() => "(all of it)".to_owned(),
            name => name,
        };
        match flat.value() {
            Value::Tensor(tensor) => {
                if let Some(first) = seen.first_name(&name, tensor) {
                    listing.tied.push(Tie {
                        name: name.clone(),
                        tied_to: first,
                    });
                }
                listing.tensors.push(Entry::of_stored(&name, tensor));
            }
            other => listing.values.push(NamedText::new(&name, short(other))),
        }
        Ok(())
    });
    match walked {
        Ok(()) => listing,
        Err(never) => match never {},
    }
}

/// The first name of each look at a storage.
#[derive(Default)]
struct Seen(HashMap<Look, String>);

impl Seen {
    /// The name under which the same look was seen before.
    fn first_name(&mut self, name: &str, tensor: &StoredTensor) -> Option<String> {
        let look = tensor.look()?;
        if let Some(first) = self.0.get(&look) {
            return Some(first.clone());
        }
        self.0.insert(look, name.to_owned());
        None
    }
}

/// A value in a few words, as Python shows it.
pub(super) fn short(value: &Value) -> String {
    let text = python(value);
    match text {
        Some(text) if text.chars().count() <= LONGEST => text,
        _ => described(value),
    }
}

fn described(value: &Value) -> String {
    match value {
        Value::List(items) => format!("a list of {}", items.len()),
        Value::Tuple(items) => format!("a tuple of {}", items.len()),
        Value::Set(items) => format!("a set of {}", items.len()),
        Value::Dict(dict) => format!("a dict of {}", dict.len()),
        Value::Str(text) => format!("a str of {} characters", text.chars().count()),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::Array(array) => format!("a numpy array, {} {:?}", array.dtype(), array.shape()),
        other => other.kind().to_owned(),
    }
}

fn python(value: &Value) -> Option<String> {
    Some(match value {
        Value::None => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Str(text) if text.len() <= 4 * LONGEST => format!("{text:?}"),
        Value::List(items) => format!("[{}]", joined(items)?),
        Value::Tuple(items) => format!("({})", joined(items)?),
        Value::Dict(dict) if dict.is_empty() => "{}".to_owned(),
        Value::Dtype(dtype) => format!("torch.{}", dtype.torch_name()?),
        Value::Size(sizes) => format!("torch.Size({sizes:?})"),
        _ => return None,
    })
}

fn joined(items: &[Value]) -> Option<String> {
    if items.len() > LONGEST {
        return None;
    }
    let texts: Option<Vec<String>> = items.iter().map(python).collect();
    texts.map(|texts| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use accelerate_formats::{Dict, Dtype, Storage};

    use super::*;

    #[test]
    fn tied_are_only_tensors_of_one_look() {
        let storage = Arc::new(Storage::new(vec![0u8; 16]));
        let view = |dtype, strides: &[usize]| {
            let storage = Arc::clone(&storage);
            StoredTensor::strided(dtype, vec![2, 2], strides.to_vec(), 0, storage).unwrap()
        };
        let dict = Dict::new()
            .with("a", view(Dtype::F32, &[2, 1]))
            .with("turned", view(Dtype::F32, &[1, 2]))
            .with("whole", view(Dtype::I32, &[2, 1]))
            .with("same", view(Dtype::F32, &[2, 1]));
        let listing = listing(&dict.into());
        let tied = listing.tied.iter().map(|tie| (&*tie.name, &*tie.tied_to));
        assert_eq!(tied.collect::<Vec<_>>(), [("same", "a")]);
    }

    #[test]
    fn values_are_told_shortly() {
        assert_eq!(short(&Value::Float(0.001)), "0.001");
        assert_eq!(
            short(&vec![Value::from(1), Value::from("x")].into()),
            "[1, \"x\"]"
        );
        assert_eq!(short(&vec![Value::from(1); 200].into()), "a list of 200");
        assert_eq!(short(&Dict::new().with("a", 1).into()), "a dict of 1");
        assert_eq!(
            short(&Value::Str("x".repeat(100))),
            "a str of 100 characters"
        );
    }
}
