//! Keys and values of tokens that were read before.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use accelerate::nn::IntoInput;
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

/// The least room, in tokens, of a cache that was not told how long the sequences get.
const LEAST_ROOM: i64 = 64;

/// The keys and values of every decoder layer, so that a step computes only its own tokens.
///
/// Room for `capacity` tokens is made once, when a layer first writes; a step then writes in
/// place and allocates nothing. Where sequences outgrow it, the room doubles.
///
/// A clone is a handle on the same cache. It stands in a model's input as a tree without
/// tensors: hooks that move or cast inputs leave it alone, as each layer's part is where that
/// layer computes. Nothing in it records gradients.
///
/// # Source
/// `DynamicCache` and `EncoderDecoderCache` of `transformers`. Differs: it does not allocate for
/// each token.
#[derive(Clone)]
pub struct KeyValueCache {
    layers: Arc<[LayerCache]>,
}

impl KeyValueCache {
    /// An empty cache for so many layers, with room for `capacity` tokens from the first write on.
    pub fn new(num_layers: usize, capacity: i64) -> Self {
        let layers = (0..num_layers).map(|_| LayerCache::new(capacity)).collect();
        Self { layers }
    }

    /// How many layers there are.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// How many tokens are in it, the padded ones included.
    pub fn tokens(&self) -> i64 {
        self.layers.first().map_or(0, LayerCache::tokens)
    }

    /// The part of one layer.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such layer.
    pub fn layer(&self, index: usize) -> Result<&LayerCache> {
        self.layers.get(index).ok_or_else(|| Error::Argument {
            operation: "KeyValueCache::layer",
            expected: format!("a layer within 0..{}", self.layers.len()),
            found: index.to_string(),
        })
    }

    /// Puts row `rows[i]` in the place of row `i`, as beams that go on from other beams need.
    ///
    /// What comes from an encoder stays as it is: beams change places only within one prompt.
    ///
    /// # Shapes
    /// `rows`: `[rows]` of int64.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn reorder(&self, rows: &Tensor) -> Result<()> {
        self.layers
            .iter()
            .try_for_each(|layer| layer.room().reorder(rows))
    }

    /// Forgets all but the first `tokens`; their memory stays for others.
    pub(super) fn keep_first(&self, tokens: i64) {
        for layer in self.layers.iter() {
            let mut room = layer.room();
            room.tokens = room.tokens.min(tokens);
        }
    }

    /// Each row `times` times, one after another: the beams that start from one prompt.
    ///
    /// # Errors
    /// If memory is short.
    pub fn repeat_rows(&self, times: i64) -> Result<()> {
        self.layers
            .iter()
            .try_for_each(|layer| layer.room().repeat_rows(times))
    }
}

/// The part of a [`KeyValueCache`] that belongs to one layer.
#[derive(Clone)]
pub struct LayerCache(Arc<Mutex<Room>>);

/// What one layer keeps.
#[derive(Default)]
struct Room {
    /// For how many tokens there is memory.
    capacity: i64,
    tokens: i64,
    own: Option<Pair>,
    /// A second memory, between which and the first reordering changes.
    spare: Option<Pair>,
    cross: Option<Pair>,
}

/// Keys and values, both `[rows, heads, tokens, width]`.
struct Pair {
    keys: Tensor,
    values: Tensor,
}

impl Pair {
    fn map(&self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            keys: change(&self.keys)?,
            values: change(&self.values)?,
        })
    }

    fn first(&self, tokens: i64) -> Result<(Tensor, Tensor)> {
        Ok((
            self.keys.f_narrow(2, 0, tokens)?,
            self.values.f_narrow(2, 0, tokens)?,
        ))
    }

    fn handles(&self) -> (Tensor, Tensor) {
        (self.keys.shallow_clone(), self.values.shallow_clone())
    }
}

impl LayerCache {
    fn new(capacity: i64) -> Self {
        Self(Arc::new(Mutex::new(Room {
            capacity: capacity.max(0),
            ..Default::default()
        })))
    }

    /// A panic elsewhere leaves no layer half written that anyone would read on.
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many tokens are in it, the padded ones included.
    pub fn tokens(&self) -> i64 {
        self.room().tokens
    }

    /// Adds the keys and values of new tokens and gives those of all tokens, old ones first.
    ///
    /// # Shapes
    /// - `key`, `value`: `[rows, heads, new, width]`
    /// - output: `[rows, heads, cached + new, width]`, views of the cache
    ///
    /// # Errors
    /// If the rows, heads or widths are not those of the tokens before.
    pub fn append(&self, key: &Tensor, value: &Tensor) -> Result<(Tensor, Tensor)> {
        tch::no_grad(|| self.room().append(key, value))
    }

    /// The keys and values of an encoder's states: computed at the first step, then kept.
    ///
    /// # Shapes
    /// `[rows, heads, tokens of the prompt, width]`, keys first.
    ///
    /// # Errors
    /// What `compute` reports.
    pub fn cross(
        &self,
        compute: impl FnOnce() -> Result<(Tensor, Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        if let Some(kept) = &self.room().cross {
            return Ok(kept.handles());
        }
        let (keys, values) = compute()?;
        let pair = Pair { keys, values };
        let handles = pair.handles();
        self.room().cross = Some(pair);
        Ok(handles)
    }
}

impl Room {
    fn append(&mut self, key: &Tensor, value: &Tensor) -> Result<(Tensor, Tensor)> {
        let (before, new) = (self.tokens, key.size4()?.2);
        let after = before + new;
        let own = match self.own.take() {
            Some(own) if after <= self.capacity => own,
            full => self.grown(full, key, value, after)?,
        };
        let own = self.own.insert(own);
        put(&own.keys, key, before)?;
        put(&own.values, value, before)?;
        self.tokens = after;
        own.first(after)
    }

    /// A larger memory with what `full` holds; the first has exactly the capacity asked for.
    fn grown(
        &mut self,
        full: Option<Pair>,
        key: &Tensor,
        value: &Tensor,
        needed: i64,
    ) -> Result<Pair> {
        let capacity = match &full {
            None if self.capacity >= needed => self.capacity,
            _ => needed.max(2 * self.capacity).max(LEAST_ROOM),
        };
        let memory = |like: &Tensor| -> Result<Tensor> {
            let (rows, heads, _, width) = like.size4()?;
            let options = (like.f_kind()?, like.device());
            Ok(Tensor::f_empty([rows, heads, capacity, width], options)?)
        };
        let larger = Pair {
            keys: memory(key)?,
            values: memory(value)?,
        };
        if let Some(full) = full {
            let (keys, values) = full.first(self.tokens)?;
            put(&larger.keys, &keys, 0)?;
            put(&larger.values, &values, 0)?;
        }
        self.spare = None;
        self.capacity = capacity;
        Ok(larger)
    }

    fn reorder(&mut self, rows: &Tensor) -> Result<()> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        let spare = match self.spare.take() {
            Some(spare) => spare,
            None => own.map(|tensor| Ok(tensor.f_empty_like()?))?,
        };
        tch::no_grad(|| -> Result<()> {
            let rows = rows.f_to_device(own.keys.device())?;
            let (to, from) = (spare.first(self.tokens)?, own.first(self.tokens)?);
            let _same = from.0.f_index_select_out(&to.0, 0, &rows)?;
            let _same = from.1.f_index_select_out(&to.1, 0, &rows)?;
            Ok(())
        })?;
        self.spare = self.own.replace(spare);
        Ok(())
    }

    fn repeat_rows(&mut self, times: i64) -> Result<()> {
        let repeat = |pair: &Option<Pair>| {
            let repeat = |tensor: &Tensor| -> Result<Tensor> {
                Ok(tensor.f_repeat_interleave_self_int(times, Some(0), None::<i64>)?)
            };
            pair.as_ref().map(|pair| pair.map(repeat)).transpose()
        };
        self.own = repeat(&self.own)?;
        self.cross = repeat(&self.cross)?;
        self.spare = None;
        Ok(())
    }
}

/// Writes new tokens into a memory, behind `before` others.
fn put(memory: &Tensor, new: &Tensor, before: i64) -> Result<()> {
    let (rows, heads, _, width) = memory.size4()?;
    let (new_rows, new_heads, added, new_width) = new.size4()?;
    if (rows, heads, width) != (new_rows, new_heads, new_width) {
        return Err(Error::Argument {
            operation: "LayerCache::append",
            expected: format!("{rows} rows, {heads} heads, width {width}"),
            found: format!("{new_rows} rows, {new_heads} heads, width {new_width}"),
        });
    }
    memory.f_narrow(2, before, added)?.f_copy_(new)?;
    Ok(())
}

macro_rules! tree_without_tensors {
    ($($type:ty),*) => {$(
        /// Without tensors: a hook leaves the cache where the layers put it.
        impl Tree for $type {
            fn visit(&self, _leaf: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<()> {
                Ok(())
            }

            fn visit_mut(
                &mut self,
                _leaf: &mut dyn FnMut(&mut Tensor) -> Result<()>,
            ) -> Result<()> {
                Ok(())
            }
        }

        impl IntoInput<$type> for $type {
            fn into_input(self) -> $type {
                self
            }
        }

        impl IntoInput<$type> for &$type {
            fn into_input(self) -> $type {
                self.clone()
            }
        }
    )*};
}

tree_without_tensors!(KeyValueCache, LayerCache);

impl fmt::Debug for KeyValueCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueCache")
            .field("layers", &self.layers.len())
            .field("tokens", &self.tokens())
            .finish()
    }
}

impl fmt::Debug for LayerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerCache")
            .field("tokens", &self.tokens())
            .field("capacity", &self.room().capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    /// Rows of one head of width 1 with these values.
    fn column(values: &[&[f32]]) -> Result<Tensor> {
        let flat: Vec<f32> = values.iter().flat_map(|row| row.iter().copied()).collect();
        let shape = [values.len() as i64, 1, -1, 1];
        Ok(Tensor::f_from_slice(&flat)?.f_view(shape)?)
    }

    fn flat(tensor: &Tensor) -> Result<Vec<f32>> {
        Ok(Vec::try_from(&tensor.f_contiguous()?.f_view([-1])?)?)
    }

    #[test]
    fn tokens_are_kept_while_the_room_grows() -> Result<()> {
        let cache = KeyValueCache::new(1, 2);
        let layer = cache.layer(0)?;
        let mut expected = Vec::new();
        for step in 0..100 {
            let (keys, values) = layer.append(&column(&[&[step as f32]])?, &column(&[&[-1.0]])?)?;
            expected.push(step as f32);
            assert_eq!(flat(&keys)?, expected);
            assert_eq!(values.size(), [1, 1, step + 1, 1]);
        }
        assert_eq!(cache.tokens(), 100);
        Ok(())
    }

    #[test]
    fn a_step_within_the_capacity_stays_in_its_memory() -> Result<()> {
        let cache = KeyValueCache::new(1, 8);
        let layer = cache.layer(0)?;
        let place = |keys: &Tensor| keys.data_ptr();
        let new = column(&[&[1.0]])?;
        let first = place(&layer.append(&new, &new)?.0);
        for _ in 1..8 {
            assert_eq!(place(&layer.append(&new, &new)?.0), first);
        }
        assert_ne!(place(&layer.append(&new, &new)?.0), first);
        Ok(())
    }

    #[test]
    fn what_is_forgotten_is_written_over() -> Result<()> {
        let cache = KeyValueCache::new(1, 3);
        let layer = cache.layer(0)?;
        let prompt = column(&[&[1.0, 2.0]])?;
        drop(layer.append(&prompt, &prompt)?);
        drop(layer.append(&column(&[&[9.0]])?, &column(&[&[9.0]])?)?);
        cache.keep_first(2);
        assert_eq!(cache.tokens(), 2);
        let (keys, values) = layer.append(&column(&[&[3.0]])?, &column(&[&[4.0]])?)?;
        assert_eq!(flat(&keys)?, [1.0, 2.0, 3.0]);
        assert_eq!(flat(&values)?, [1.0, 2.0, 4.0]);
        Ok(())
    }

    #[test]
    fn beams_change_places() -> Result<()> {
        let cache = KeyValueCache::new(1, 4);
        let layer = cache.layer(0)?;
        let prompt = column(&[&[1.0, 2.0], &[5.0, 6.0]])?;
        drop(layer.append(&prompt, &prompt.f_neg()?)?);
        let cross = column(&[&[7.0], &[8.0]])?;
        let (kept, _) = layer.cross(|| Ok((cross.shallow_clone(), cross.shallow_clone())))?;
        assert_eq!(kept, cross);
        cache.repeat_rows(2)?;
        cache.reorder(&Tensor::f_from_slice(&[1i64, 0, 3, 3])?)?;
        let new = column(&[&[10.0], &[11.0], &[12.0], &[13.0]])?;
        drop(layer.append(&new, &new)?);
        cache.reorder(&Tensor::f_from_slice(&[1i64, 1, 3, 2])?)?;
        let (keys, values) = layer.append(&new, &new)?;
        let expected = [
            [1.0, 2.0, 11.0, 10.0],
            [1.0, 2.0, 11.0, 11.0],
            [5.0, 6.0, 13.0, 12.0],
            [5.0, 6.0, 12.0, 13.0],
        ];
        assert_eq!(flat(&keys)?, expected.concat());
        assert_eq!(values.double_value(&[3, 0, 0, 0]), -5.0);
        let (kept, _) = layer.cross(|| Ok((new.shallow_clone(), new.shallow_clone())))?;
        assert_eq!(flat(&kept)?, [7.0, 7.0, 8.0, 8.0]);
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_told() -> Result<()> {
        let cache = KeyValueCache::new(1, 4);
        let layer = cache.layer(0)?;
        let one = Tensor::f_zeros([1, 2, 1, 3], (Kind::Float, Device::Cpu))?;
        drop(layer.append(&one, &one)?);
        let two = Tensor::f_zeros([2, 2, 1, 3], (Kind::Float, Device::Cpu))?;
        let message = layer
            .append(&two, &two)
            .err()
            .map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("1 rows, 2 heads, width 3")));
        assert!(cache.layer(1).is_err());
        Ok(())
    }
}
