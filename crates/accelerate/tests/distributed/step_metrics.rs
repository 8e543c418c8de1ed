//! Where the time of steps goes on real ranks, and who keeps the others waiting.

use std::thread;
use std::time::{Duration, Instant};

use accelerate::data::{DataLoader, Dataset};
use accelerate::metrics::{StepMetrics, StepMetricsKwargs};
use accelerate::nn::{Factory, Forward, Linear, Module};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::tracking::run::{RankReader, RunReader, Severity};
use accelerate::{Accelerator, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Kind, Tensor};

const PAUSE: Duration = Duration::from_millis(15);
const BATCH: usize = 2;
const STEPS: usize = 40;

/// Samples that one of the ranks reads slowly.
struct Slow {
    pause: Duration,
}

impl Dataset for Slow {
    type Item = f64;

    fn len(&self) -> usize {
        // So many for each of two ranks.
        2 * BATCH * STEPS
    }

    fn get(&self, index: usize) -> Result<f64> {
        thread::sleep(self.pause);
        Ok(index as f64 / 100.0)
    }
}

/// Trains for an epoch, in a run in `folder`; how long the steps behind the first took by a clock
/// beside, and what was measured of them.
fn train(accelerator: &Accelerator, pause: Duration) -> Result<(f64, Vec<StepMetrics>)> {
    let model = Linear::new(1, 1, &Factory::default())?;
    let weights: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|p| p.tensor().shallow_clone())
        .collect();
    let optimizer = Sgd::new(weights, SgdConfig::new(1e-3))?;
    let batches = DataLoader::builder(Slow { pause })
        .batch_size(BATCH)
        .build()?;
    let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    let (mut start, mut steps): (Option<Instant>, Vec<StepMetrics>) = (None, Vec::new());
    for batch in &batches {
        let x = batch?.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
        accelerator.backward(&model.call(&x)?.f_square()?.f_mean(Kind::Float)?)?;
        accelerator.clip_grad_norm(model.parameters(), 1.0)?;
        optimizer.step()?;
        steps.extend(accelerator.step_metrics().map(|report| report.last));
        start.get_or_insert_with(Instant::now);
        optimizer.zero_grad()?;
    }
    let whole = start.map_or(0.0, |start| start.elapsed().as_secs_f64());
    steps.remove(0);
    Ok((whole, steps))
}

#[test]
fn a_rank_that_reads_slowly_waits_for_data_and_the_other_one_for_it() {
    let folder = tempfile::tempdir().unwrap();
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::builder()
            .logging_dir(folder.path())
            .step_metrics_kwargs(StepMetricsKwargs {
                in_log: true,
                exchange_every: Duration::from_millis(300),
            })
            .build()?;
        accelerator.init_trackers("project", None)?;
        let is_slow = rank.index() == 1;
        let pause = if is_slow { PAUSE } else { Duration::ZERO };
        let (whole, steps) = train(&accelerator, pause)?;

        assert_eq!(steps.len(), STEPS - 1);
        assert_eq!(steps.last().map(|step| step.step), Some(STEPS as i64));
        let sum = |of: fn(&StepMetrics) -> f64| steps.iter().map(of).sum::<f64>();
        let (data_wait, compute) = (
            sum(|step| step.split.data_wait),
            sum(|step| step.split.compute),
        );
        let (communication, other) = (
            sum(|step| step.split.communication),
            sum(|step| step.split.other),
        );
        let seconds = sum(|step| step.seconds);
        let parts = data_wait + compute + communication + other;
        assert!((parts - seconds).abs() < 1e-6, "{parts}, not {seconds}");
        // Behind the last step comes the end of the epoch.
        assert!(
            seconds < 1.05 * whole && seconds > 0.9 * whole,
            "{seconds} of {whole}"
        );
        // Each reads one batch ahead: in the last step nothing is read any more.
        let pauses = (STEPS - 2) as f64 * BATCH as f64 * PAUSE.as_secs_f64();
        if is_slow {
            assert!(data_wait >= 0.99 * pauses, "{data_wait}");
            assert!(communication < 0.5 * data_wait, "{communication}");
        } else {
            assert!(communication > 0.7 * pauses, "{communication}");
            assert!(data_wait < 0.2 * communication, "{data_wait}");
        }
        let report = accelerator.step_metrics().unwrap();
        let rate = report.last.samples_per_second.unwrap_or(0.0);
        assert!((rate * report.last.seconds - BATCH as f64).abs() < 1e-6);
        assert!(report.last.gradient_norm > Some(0.0), "{report:?}");
        assert!(report.last.memory_bytes > Some(1 << 20), "{report:?}");
        assert_eq!(report.last.tokens_per_second, None);

        accelerator.log([("loss", 1.0)], Some(1));
        let run = accelerator.run_folder();
        // All have written what they have.
        accelerator.end_training()?;
        if let Some(run) = run {
            let run = RunReader::open(run)?;
            let logged = run.latest("perf/step_seconds").unwrap().value;
            assert!((logged - report.average.seconds).abs() < 1e-9, "{logged}");
            written(&run)?;
        }
        Ok(())
    });
}

/// Both ranks have lines in the run, and the slow one is named.
fn written(run: &RunReader) -> Result<()> {
    let mut readers: Vec<RankReader> = run.ranks()?;
    assert_eq!(readers.len(), 2);
    for reader in &mut readers {
        let lines = reader.poll()?;
        assert!((2..STEPS).contains(&lines.len()), "{} lines", lines.len());
        let at = |line: &StepMetrics| line.t;
        assert!(lines.is_sorted_by_key(at), "{lines:?}");
        assert!(lines.iter().all(|line| line.memory_bytes.is_some()));
    }
    let events = run.events()?;
    let found: Vec<_> = events
        .iter()
        .filter(|event| event.severity == Severity::Warning)
        .collect();
    assert_eq!(found.len(), 1, "at most one a minute: {events:?}");
    assert_eq!(found[0].rank, 1);
    assert!(
        found[0]
            .message
            .starts_with("rank 1 keeps the others waiting"),
        "{}",
        found[0].message
    );
    Ok(())
}
