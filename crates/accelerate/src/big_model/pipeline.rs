//! Weights on their way, block by block.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use accelerate_formats::MappedBytes;
use tch::Tensor;

use super::devices::Site;
use super::order::Order;
use super::prefetch::{AfterUse, Prefetch};
use super::slot::Slot;
use super::worker::{Block, Item, Request, Worker};
use crate::Result;
use crate::memory::available_memory;

/// Brings the weights of the blocks of one model, and lets those go that have computed.
#[derive(Debug)]
pub(super) struct Pipeline {
    blocks: Vec<Stage>,
    order: Order,
    ahead: usize,
    /// None where nothing is brought before it is needed.
    worker: Option<Worker>,
    current: Cell<Option<usize>>,
    /// The blocks whose weights are held for now, the current one among them.
    held: RefCell<Vec<usize>>,
}

/// One block of a model.
#[derive(Debug, Default)]
pub(super) struct Stage {
    units: Vec<Unit>,
    /// Whether its pages stay in memory.
    stays: bool,
    /// Whether they have been brought there.
    is_there: Cell<bool>,
}

/// The weights of one module that come together.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) site: Site,
    pub(super) slots: Vec<Rc<Slot>>,
    /// Of tables only a few rows are read, so that the rest need not come.
    pub(super) reads_rows: bool,
}

impl Stage {
    pub(super) fn push(&mut self, unit: Unit) {
        self.units.push(unit);
    }

    fn slots(&self) -> impl Iterator<Item = (&Unit, &Rc<Slot>)> {
        self.units
            .iter()
            .flat_map(|unit| unit.slots.iter().map(move |slot| (unit, slot)))
    }

    /// Parts of files that are computed with where they lie.
    fn pages(&self) -> Result<Vec<MappedBytes>> {
        let mut pages = Vec::new();
        for (unit, slot) in self.slots() {
            if !unit.reads_rows
                && slot.is_in_place(unit.site)?
                && let Some(mapped) = slot.source().and_then(|source| source.mapped())
            {
                pages.push(mapped.clone());
            }
        }
        Ok(pages)
    }

    /// Everything that the block reads of files.
    fn file_parts(&self) -> Vec<MappedBytes> {
        let whole = self.slots().filter(|(unit, _)| !unit.reads_rows);
        whole
            .filter_map(|(_, slot)| slot.source()?.mapped().cloned())
            .collect()
    }

    fn items(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut seen = HashSet::new();
        for (unit, slot) in self.slots() {
            let Some(source) = slot.source() else {
                continue;
            };
            if slot.is_in_place(unit.site)? || !seen.insert(slot.key()) {
                continue;
            }
            items.push(Item {
                key: slot.key(),
                name: slot.name().to_owned(),
                source: source.share(),
                wanted: slot.wanted(unit.site)?,
            });
        }
        Ok(items)
    }

    fn file_bytes(&self) -> u64 {
        self.file_parts().iter().map(|part| part.len() as u64).sum()
    }
}

impl Pipeline {
    /// For blocks in the order of the tree. `resident` bytes of files are held in memory besides.
    pub(super) fn new(mut blocks: Vec<Stage>, prefetch: Prefetch, resident: u64) -> Result<Self> {
        let sizes: Vec<u64> = blocks.iter().map(Stage::file_bytes).collect();
        let staying = staying(&sizes, prefetch, resident);
        for (block, stays) in blocks.iter_mut().zip(staying) {
            block.stays = stays;
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let worker = match prefetch.blocks {
            0 => None,
            ahead => Some(Worker::start(largest.saturating_mul(ahead as u64 + 1))?),
        };
        Ok(Self {
            order: Order::of_tree(blocks.len()),
            blocks,
            ahead: prefetch.blocks,
            worker,
            current: Cell::new(None),
            held: RefCell::default(),
        })
    }

    /// A module of this block is about to compute.
    pub(super) fn begin(&self, block: usize) -> Result<()> {
        let before = self.current.replace(Some(block));
        if before == Some(block) {
            return Ok(());
        }
        if let Some(before) = before {
            self.order.learn(before, block);
        }
        let coming = self.order.after(block, self.ahead);
        let mut window = vec![block];
        window.extend(&coming);
        let held = self.held.replace(window.clone());
        let (stay, gone): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|number| window.contains(number));
        self.let_go(&window, &gone)?;
        for number in coming {
            if !stay.contains(&number) {
                self.bring(number)?;
            }
        }
        Ok(())
    }

    fn let_go(&self, window: &[usize], gone: &[usize]) -> Result<()> {
        let gone = gone.iter().filter_map(|&number| self.blocks.get(number));
        let gone: Vec<&Stage> = gone.collect();
        if let Some(worker) = &self.worker {
            // What a block in the window shares with one that is gone is still wanted.
            let kept = window.iter().filter_map(|&number| self.blocks.get(number));
            let kept = kept.flat_map(|stage| stage.slots());
            let kept: HashSet<usize> = kept.map(|(_, slot)| slot.key()).collect();
            let keys = gone.iter().flat_map(|stage| stage.slots());
            let keys = keys.map(|(_, slot)| slot.key());
            let keys: Vec<usize> = keys.filter(|key| !kept.contains(key)).collect();
            worker.set_window(window, &keys);
        }
        let pages = gone.iter().filter(|stage| !stage.stays);
        let pages: Vec<MappedBytes> = pages.flat_map(|stage| stage.file_parts()).collect();
        if pages.is_empty() {
            return Ok(());
        }
        match &self.worker {
            Some(worker) => worker.ask(Request::Forget(pages)),
            None => pages.iter().for_each(MappedBytes::forget),
        }
        Ok(())
    }

    fn bring(&self, number: usize) -> Result<()> {
        let (Some(worker), Some(stage)) = (&self.worker, self.blocks.get(number)) else {
            return Ok(());
        };
        let pages = match stage.is_there.replace(stage.stays) {
            true => Vec::new(),
            false => stage.pages()?,
        };
        let items = stage.items()?;
        if !pages.is_empty() || !items.is_empty() {
            worker.ask(Request::Bring(Block {
                number,
                pages,
                items,
            }));
        }
        Ok(())
    }

    /// The values of a slot, if they were brought.
    pub(super) fn take(&self, slot: &Slot) -> Result<Option<Tensor>> {
        match &self.worker {
            // What failed on the thread is tried again here, where memory may be free by now.
            Some(worker) => Ok(worker.take(slot.key()).unwrap_or_default()),
            None => Ok(None),
        }
    }

    /// Takes values that were computed with.
    pub(super) fn give_back(&self, slot: &Slot, site: Site, values: Tensor) -> Result<()> {
        if let Some(worker) = &self.worker
            && !slot.is_in_place(site)?
        {
            worker.recycle(values);
        }
        Ok(())
    }
}

/// Which blocks stay in memory, from what they read of files.
fn staying(sizes: &[u64], prefetch: Prefetch, resident: u64) -> Vec<bool> {
    let budget = match prefetch.after_use {
        AfterUse::Keep => u64::MAX,
        AfterUse::Drop => 0,
        AfterUse::KeepBytes(bytes) => bytes,
        AfterUse::Auto => match available_memory() {
            Some(available) => automatic(sizes, prefetch.blocks, available, resident),
            None => u64::MAX,
        },
    };
    let mut left = budget;
    let sizes = sizes.iter();
    sizes
        .map(|&size| {
            let stays = size <= left;
            if stays {
                left -= size;
            }
            stays
        })
        .collect()
}

/// How many bytes of blocks may stay. What is not counted, such as activations, has a fifth of what
/// is there; where not all blocks stay, those on their way need room too.
fn automatic(sizes: &[u64], ahead: usize, available: u64, resident: u64) -> u64 {
    let usable = (available / 5 * 4).saturating_sub(resident);
    if sizes.iter().sum::<u64>() <= usable {
        return u64::MAX;
    }
    let largest = sizes.iter().copied().max().unwrap_or(0);
    usable.saturating_sub(largest.saturating_mul(ahead as u64 + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_blocks_stay_as_fit() {
        let sizes = [100, 100, 100, 100];
        let stays = |after_use| staying(&sizes, Prefetch::off().with_after_use(after_use), 0);
        assert_eq!(stays(AfterUse::Keep), [true; 4]);
        assert_eq!(stays(AfterUse::Drop), [false; 4]);
        assert_eq!(stays(AfterUse::KeepBytes(250)), [true, true, false, false]);
        assert_eq!(automatic(&sizes, 1, 500, 0), u64::MAX);
        assert_eq!(automatic(&sizes, 0, 500, 100), 100);
        assert_eq!(automatic(&sizes, 2, 400, 0), 0);
    }
}
