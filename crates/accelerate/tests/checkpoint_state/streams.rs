//! Streams in a saved state: each rank's own part, and a stream that rank 0 deals out.

use accelerate::checkpoint::ProjectConfiguration;
use accelerate::data::{IterableDataLoader, IterableDataset, PreparedIterableDataLoader, Samples};
use accelerate::{Accelerator, DataLoaderConfiguration, Result};
use accelerate_testkit::ranks;
use tch::Tensor;

/// Behind this step the last of three ranks is through with its part, and others are not.
const SAVED_AT: usize = 5;

/// Files of unequal length, of which each rank reads some.
struct Files([i64; 5]);

impl IterableDataset for Files {
    type Item = i64;

    fn epoch(&self) -> Samples<'_, i64> {
        self.shard(1, 0)
    }

    fn num_shards(&self) -> usize {
        self.0.len()
    }

    fn shard(&self, num: usize, index: usize) -> Samples<'_, i64> {
        let files = (0i64..).zip(self.0).skip(index).step_by(num);
        Box::new(files.flat_map(|(file, len)| (file * 100..file * 100 + len).map(Ok)))
    }
}

fn prepared(
    folder: &std::path::Path,
    dispatch: bool,
    workers: usize,
) -> Result<(Accelerator, PreparedIterableDataLoader<Files>)> {
    let accelerator = Accelerator::builder()
        .project_config(ProjectConfiguration::automatic(folder))
        .dataloader_config(DataLoaderConfiguration {
            dispatch_batches: Some(dispatch),
            use_stateful_dataloader: true,
            ..Default::default()
        })
        .build()?;
    let loader = IterableDataLoader::builder(Files([7, 12, 5, 9, 3]))
        .batch_size(2)
        .num_workers(workers)
        .build()?;
    let loader = accelerator.prepare(loader)?;
    Ok((accelerator, loader))
}

fn numbers(batch: Result<Tensor>) -> Vec<i64> {
    Vec::try_from(batch.unwrap()).unwrap()
}

#[test]
fn every_rank_goes_on_in_its_own_part() {
    ranks(&[1, 2, 3], |rank| -> Result<()> {
        for (dispatch, workers) in [(false, 0), (false, 2), (true, 0)] {
            let folder = std::env::temp_dir().join(format!(
                "accelerate-streams-{}-{dispatch}-{workers}",
                rank.port()
            ));
            let (accelerator, loader) = prepared(&folder, dispatch, workers)?;
            let mut rest = Vec::new();
            for (step, batch) in (1..).zip(&loader) {
                if step > SAVED_AT {
                    rest.push(numbers(batch));
                }
                if step == SAVED_AT {
                    accelerator.save_state(None)?;
                }
            }
            drop((accelerator, loader));
            let (accelerator, loader) = prepared(&folder, dispatch, workers)?;
            accelerator.load_state(None)?;
            let found: Vec<_> = loader.iter().map(numbers).collect();
            assert!(!rest.is_empty());
            assert_eq!(found, rest, "{dispatch}, {workers} workers");
            accelerator.wait_for_everyone()?;
            if rank.index() == 0 {
                std::fs::remove_dir_all(&folder).unwrap();
            }
        }
        Ok(())
    });
}
