//! What several processes do with such models.

use accelerate::big_model::{
    DispatchOptions, LoadCheckpointOptions, Placement, dispatch_model, load_checkpoint_in_model,
};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::ranks;
use tch::Kind;

use crate::model::{Net, ids, map, saved};

#[test]
fn rank_0_reads_for_all_and_nobody_trains_a_spread_model() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let model = Net::with_values(Kind::Float)?;
        let expected = model.logits(&ids())?;
        let folder = saved(&model);
        let nowhere = folder.path().join("absent");
        let path = if rank.index() == 0 {
            folder.path()
        } else {
            nowhere.as_path()
        };
        let options =
            LoadCheckpointOptions::default().with_broadcast_from_rank0(accelerator.state());
        let empty = Net::empty(Kind::Float)?;
        let loaded = load_checkpoint_in_model(&empty, path, &options)?;
        assert!(loaded.report.fits());
        assert_eq!(empty.logits(&ids())?, expected);
        // A failure of rank 0 is one of all.
        let failed = load_checkpoint_in_model(&empty, &nowhere, &options);
        match rank.index() {
            0 => assert!(matches!(failed, Err(Error::Formats(_)))),
            _ => assert!(matches!(failed, Err(Error::OtherRankFailed { rank: 0 }))),
        }

        let offload = tempfile::tempdir().unwrap();
        let places = map(&[("", Placement::Cpu), ("h", Placement::Disk)]);
        let dispatch = DispatchOptions::default()
            .with_preload_class("Bound")
            .with_offload_folder(offload.path());
        dispatch_model(&empty, &places, &dispatch)?;
        let refused = accelerator.prepare(empty).unwrap_err();
        assert!(
            matches!(refused, Error::TrainsDispatched { processes: 2, .. }),
            "{refused}"
        );
        Ok(())
    });
}
