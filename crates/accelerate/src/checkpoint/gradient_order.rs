//! In which order the gradients of each model came first, so that ranks add them up alike when they
//! go on: see [`DataParallel::arrange_buckets`](crate::parallel::DataParallel::arrange_buckets).

use std::path::Path;

use super::planned_file::{Content, PlannedFile};
use super::training_state::TrainingState;
use crate::collectives::{broadcast_object_list, gather_object};
use crate::{Error, Result};

const GRADIENT_ORDER: &str = "gradient_order.json";

/// From so many ranks on the order of a sum counts.
const RANKS: usize = 3;

impl TrainingState<'_> {
    /// Adds the orders, where they count and are known.
    pub(super) fn plan_gradient_order(&self, files: &mut Vec<PlannedFile>) -> Result<()> {
        let models = self.registry.data_parallel();
        let orders: Option<Vec<_>> = models.iter().map(|model| model.gradient_order()).collect();
        let counts = self.state.num_processes() >= RANKS;
        if let Some(orders) = orders.filter(|orders| counts && !orders.is_empty()) {
            let text = serde_json::to_vec(&orders).map_err(Error::data)?;
            files.push(PlannedFile::new(GRADIENT_ORDER, Content::Bytes(text)));
        }
        Ok(())
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
        let models = self.registry.data_parallel();
        let mut own = vec![false; models.len()];
        if orders.len() == models.len() {
            let models = models.iter().zip(&orders);
            own = models
                .map(|(model, order)| model.can_arrange(order))
                .collect();
        }
        // Ranks may stand differently: one may have begun a pass already.
        let all = gather_object(self.state, vec![own])?;
        for (place, (model, order)) in models.iter().zip(&orders).enumerate() {
            if all.iter().all(|can| can.get(place) == Some(&true)) {
                model.arrange_buckets(order)?;
            }
        }
        Ok(())
    }
}
