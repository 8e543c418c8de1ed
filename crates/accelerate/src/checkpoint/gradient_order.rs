//! In which order the gradients of each model came first, so that ranks add them up alike when they
//! go on: see [`DataParallel::arrange_buckets`].

use std::path::Path;

use super::folder::io;
use super::training_state::TrainingState;
use crate::collectives::broadcast_object_list;
use crate::parallel::DataParallel;
use crate::{Error, Result};

pub(super) const GRADIENT_ORDER: &str = "gradient_order.json";

/// From so many ranks on the order of a sum counts.
const RANKS: usize = 3;

impl TrainingState<'_> {
    /// Writes the orders, where they count and are known; answers whether it did.
    pub(super) fn write_gradient_order(&self, folder: &Path) -> Result<bool> {
        let orders = self.data_parallel.iter();
        let orders: Option<Vec<_>> = orders.map(|model| model.gradient_order()).collect();
        let counts = self.state.num_processes() >= RANKS;
        let Some(orders) = orders.filter(|orders| counts && !orders.is_empty()) else {
            return Ok(false);
        };
        let path = folder.join(GRADIENT_ORDER);
        let text = serde_json::to_vec(&orders).map_err(Error::data)?;
        std::fs::write(&path, text).map_err(|source| io("write", &path, source))?;
        Ok(true)
    }

    /// Arranges the buckets of all models as they were, if as many ranks saved.
    ///
    /// Without the file nothing changes: the order decides the last bit of sums, no more.
    pub(super) fn arrange_buckets(&self, folder: &Path, saved_by: Option<usize>) -> Result<()> {
        let ranks = self.state.num_processes();
        if ranks < RANKS || saved_by != Some(ranks) {
            return Ok(());
        }
        let mut orders: Vec<Vec<usize>> = Vec::new();
        if self.state.is_main_process()
            && let Ok(text) = std::fs::read(folder.join(GRADIENT_ORDER))
        {
            orders = serde_json::from_slice(&text).unwrap_or_default();
        }
        let mut orders = vec![orders];
        broadcast_object_list(self.state, &mut orders, 0)?;
        let orders = orders.concat();
        if orders.len() != self.data_parallel.len() {
            return Ok(());
        }
        let models = self.data_parallel.iter().zip(&orders);
        models
            .into_iter()
            .try_for_each(|(model, order)| DataParallel::arrange_buckets(model, order))
    }
}
