//! In which order the gradients of each model came first, so that ranks add them up alike when they
//! go on: see [`DataParallel::arrange_buckets`](crate::parallel::DataParallel::arrange_buckets).

use std::path::Path;
use std::rc::Rc;

use super::planned_file::{Content, PlannedFile};
use super::training_state::TrainingState;
use crate::collectives::{broadcast_object_list, gather_object};
use crate::parallel::DataParallel;
use crate::{Error, Result};

const GRADIENT_ORDER: &str = "gradient_order.json";

/// From so many ranks on the order of a sum counts in any case.
const RANKS: usize = 3;

impl TrainingState<'_> {
    /// Adds the orders, where they count and are known.
    pub(super) fn plan_gradient_order(&self, files: &mut Vec<PlannedFile>) -> Result<()> {
        let models = self.registry.data_parallel();
        let orders = models.iter().map(|model| model.gradient_order());
        // Of one that is not known, nothing stands there.
        let orders: Vec<Vec<usize>> = orders.map(Option::unwrap_or_default).collect();
        if self.order_counts(&models) && orders.iter().any(|order| !order.is_empty()) {
            let text = serde_json::to_vec(&orders).map_err(Error::data)?;
            files.push(PlannedFile::new(GRADIENT_ORDER, Content::Bytes(text)));
        }
        Ok(())
    }

    /// Whether the last bit of a sum depends on the order, or what a hook remembers does.
    fn order_counts(&self, models: &[Rc<DataParallel>]) -> bool {
        self.state.num_processes() >= RANKS || models.iter().any(|model| model.remembers())
    }

    /// Arranges the buckets of all models as they were, if as many ranks saved, and answers the
    /// orders that were saved.
    ///
    /// Without the file nothing changes: the order decides the last bit of sums, and whether hooks
    /// can go on from what they remember.
    pub(super) fn arrange_buckets(
        &self,
        folder: &Path,
        saved_by: Option<usize>,
    ) -> Result<Vec<Vec<usize>>> {
        let models = self.registry.data_parallel();
        if !self.order_counts(&models) || saved_by != Some(self.state.num_processes()) {
            return Ok(Vec::new());
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
        Ok(orders)
    }
}
