//! One step of all ranks together.

use accelerate_formats::step_records::{BatchRecord, StepRecord};

/// What all ranks did in one step, as a process by itself would have done it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GlobalStep {
    /// The samples by number, batch after batch and in each of them rank after rank.
    pub(super) indices: Option<Vec<u64>>,
    /// Their contents in the same order.
    pub(super) rows: Vec<String>,
    /// The mean loss of all samples, or the sum of all sums; none where some of the samples are
    /// repetitions, and count twice.
    pub(super) loss: Option<f64>,
}

impl GlobalStep {
    /// The step at `at`, from 0.
    pub(super) fn of(ranks: &[Vec<StepRecord>], at: usize) -> Self {
        let records: Vec<&StepRecord> = ranks.iter().filter_map(|steps| steps.get(at)).collect();
        let rounds = records.iter().map(|record| record.batches.len()).max();
        let mut step = Self {
            indices: Some(Vec::new()),
            loss: Some(0.0),
            ..Self::default()
        };
        for round in 0..rounds.unwrap_or(0) {
            let batches = records
                .iter()
                .filter_map(|record| record.batches.get(round));
            step.add_round(&batches.collect::<Vec<_>>());
        }
        if step.loss.is_some() {
            step.loss = Some(mean_loss(&records));
        }
        step
    }

    fn add_round(&mut self, batches: &[&BatchRecord]) {
        let mut rows: Vec<String> = batches
            .iter()
            .flat_map(|batch| batch.rows.clone())
            .collect();
        let known: Option<Vec<&Vec<u64>>> =
            batches.iter().map(|batch| batch.indices.as_ref()).collect();
        let mut indices: Option<Vec<u64>> =
            known.map(|known| known.into_iter().flatten().copied().collect());
        // Behind these are samples that fill the step up.
        let real = batches.iter().find_map(|batch| batch.remainder);
        if let Some(real) = real.and_then(|real| usize::try_from(real).ok()) {
            if rows.len() > real {
                self.loss = None;
            }
            rows.truncate(real);
            if let Some(indices) = &mut indices {
                indices.truncate(real);
            }
        }
        self.rows.extend(rows);
        self.indices = match (self.indices.take(), indices) {
            (Some(mut all), Some(more)) => {
                all.extend(more);
                Some(all)
            }
            _ => None,
        };
    }
}

/// The mean over samples of losses that are means over batches; the sum of those that are sums.
fn mean_loss(records: &[&StepRecord]) -> f64 {
    let (mut sum, mut samples) = (0.0, 0.0);
    for record in records {
        for (batch, loss) in record.batches.iter().zip(record.losses()) {
            let rows = match record.losses_are_sums {
                true => 1.0,
                false => batch.rows.len() as f64,
            };
            sum += loss * rows;
            samples += rows;
        }
    }
    match records.iter().any(|record| record.losses_are_sums) {
        true => sum,
        false => sum / f64::max(samples, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(indices: &[u64], loss: f64, remainder: Option<u64>) -> Vec<StepRecord> {
        vec![StepRecord {
            batches: vec![BatchRecord {
                indices: Some(indices.to_vec()),
                rows: indices.iter().map(ToString::to_string).collect(),
                remainder,
                ..BatchRecord::default()
            }],
            losses: vec![loss.to_bits()],
            ..StepRecord::default()
        }]
    }

    #[test]
    fn samples_that_fill_a_step_up_are_left_out() {
        let full = GlobalStep::of(&[rank(&[4, 1], 1.0, None), rank(&[0], 4.0, None)], 0);
        assert_eq!((full.indices, full.loss), (Some(vec![4, 1, 0]), Some(2.0)));
        let last = [rank(&[4, 1], 1.0, Some(3)), rank(&[0, 4], 4.0, Some(3))];
        let last = GlobalStep::of(&last, 0);
        assert_eq!((last.indices, last.loss), (Some(vec![4, 1, 0]), None));
        assert_eq!(last.rows.len(), 3);
        let alone = GlobalStep::of(&[rank(&[4, 1, 0], 2.0, Some(3))], 0);
        assert_eq!(alone.loss, Some(2.0), "a short batch repeats nothing");
    }
}
