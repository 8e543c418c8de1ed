//! Takes the times of a step where it passes through the library.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use accelerate_torch::profiler::ProfileRange;
use accelerate_torch::time_blocked;
use accelerate_tracking::run::{StepMetrics, TimeSplit};
use tch::{Device, Tensor};

use super::batch::Amount;
use super::measured::{Measured, StepReport};
use super::memory::MemoryUse;
use super::recorder::{Recorder, RunPlace};
use crate::precision::GradScaler;
use crate::tree::Tree;

/// So many steps of other optimizers show that the one by which steps are counted is gone.
const MOST_OTHERS: u32 = 16;

/// What one rank does in its steps: a shared handle of one thread.
///
/// Time is a chain: each event says what the time since the last one was for. So the parts of a
/// step add up to the whole of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepClock {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    open: Cell<Open>,
    last: Cell<Option<Measured>>,
    average: Cell<Measured>,
    /// The moment of the first event.
    began: Cell<Option<Instant>>,
    ended: Cell<Option<Instant>>,
    leader: Cell<Leader>,
    /// Norms that lie on a GPU, of the step under way and of the last one.
    norms: RefCell<[Option<Tensor>; 2]>,
    recorder: RefCell<Option<Recorder>>,
}

/// The step under way.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// The last event, and how long this thread had been blocked until then.
    mark: Option<(Instant, Duration)>,
    split: TimeSplit,
    /// What has gone backward.
    done: Amount,
    /// The batch that was handed out last, until something of it goes backward.
    batch: Option<Amount>,
    gradient_norm: Option<f64>,
}

/// The optimizer whose steps count.
#[derive(Debug, Clone, Copy, Default)]
struct Leader {
    optimizer: Option<usize>,
    /// Steps of others since its last one.
    others: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    DataWait,
    Compute,
    Other,
}

impl StepClock {
    /// Something ends that was in this phase since the last event, but for what was waiting for others.
    fn mark(&self, phase: Phase) {
        let (now, blocked) = (Instant::now(), time_blocked());
        let mut open = self.shared.open.get();
        if let Some((then, before)) = open.mark {
            let passed = now.saturating_duration_since(then);
            let waited = blocked.saturating_sub(before).min(passed);
            open.split.communication += waited.as_secs_f64();
            let part = match phase {
                Phase::DataWait => &mut open.split.data_wait,
                Phase::Compute => &mut open.split.compute,
                Phase::Other => &mut open.split.other,
            };
            *part += (passed - waited).as_secs_f64();
        } else {
            self.shared.began.set(Some(now));
        }
        open.mark = Some((now, blocked));
        self.shared.open.set(open);
    }

    /// A loop asks for a batch, until the answer is dropped.
    pub(crate) fn wait_for_data(&self) -> DataWait {
        self.mark(Phase::Other);
        DataWait {
            clock: self.clone(),
            _range: named("data wait"),
        }
    }

    /// A batch is handed out. Only the last one before a backward pass is trained on.
    pub(crate) fn batch(&self, batch: &dyn Tree) {
        let mut open = self.shared.open.get();
        open.batch = Some(Amount::of(batch));
        self.shared.open.set(open);
    }

    /// A backward pass is over.
    pub(crate) fn backward(&self) {
        self.mark(Phase::Compute);
        let mut open = self.shared.open.get();
        let batch = open.batch.take().unwrap_or_default();
        open.done.samples += batch.samples;
        open.done.tokens += batch.tokens;
        self.shared.open.set(open);
    }

    /// Gradients were clipped, which had this norm. On a GPU nobody waits for it here.
    pub(crate) fn clipped(&self, norm: &Tensor) {
        self.mark(Phase::Compute);
        let mut open = self.shared.open.get();
        match norm.device() {
            Device::Cpu => open.gradient_norm = norm.f_double_value(&[]).ok(),
            _ => {
                let [under_way, _] = &mut *self.shared.norms.borrow_mut();
                *under_way = Some(norm.shallow_clone());
            }
        }
        self.shared.open.set(open);
    }

    /// An optimizer is about to step, until the answer is dropped.
    pub(crate) fn optimizer(&self) -> Option<ProfileRange> {
        match self.shared.open.get().batch {
            // The program goes backward by itself.
            Some(_) => self.backward(),
            None => self.mark(Phase::Other),
        }
        named("optimizer step")
    }

    /// An optimizer, known by a number of its own, has stepped.
    pub(crate) fn stepped(&self, optimizer: usize, scaler: Option<&GradScaler>) {
        self.mark(Phase::Compute);
        if self.leads(optimizer) {
            self.close(scaler);
        }
    }

    /// Whether steps of this optimizer count: those of the first one do, as long as it steps.
    fn leads(&self, optimizer: usize) -> bool {
        let mut leader = self.shared.leader.get();
        let leads = match leader.optimizer {
            Some(own) if own != optimizer => {
                leader.others += 1;
                leader.others > MOST_OTHERS
            }
            _ => true,
        };
        if leads {
            leader = Leader {
                optimizer: Some(optimizer),
                others: 0,
            };
        }
        self.shared.leader.set(leader);
        leads
    }

    fn close(&self, scaler: Option<&GradScaler>) {
        let shared = &self.shared;
        let open = shared.open.get();
        shared.open.set(Open {
            mark: open.mark,
            ..Open::default()
        });
        let split = open.split;
        let number = shared.last.get().map_or(0, |last| last.step) + 1;
        let step = Measured {
            step: number,
            seconds: split.busy() + split.communication,
            split,
            samples: open.done.samples,
            tokens: open.done.tokens,
            gradient_norm: open.gradient_norm,
        };
        shared.last.set(Some(step));
        shared
            .average
            .set(shared.average.get().moved_on(&step, number));
        shared.ended.set(open.mark.map(|(at, _)| at));
        let [under_way, last] = &mut *shared.norms.borrow_mut();
        *last = under_way.take();
        if let Some(recorder) = &mut *shared.recorder.borrow_mut() {
            recorder.step(&step, scaler);
        }
    }

    /// The last step and the average; none before the first step.
    pub(crate) fn report(&self, device: Device, scaler: Option<&GradScaler>) -> Option<StepReport> {
        let shared = &self.shared;
        let last = shared.last.get()?;
        let [_, norm] = &*shared.norms.borrow();
        let norm = norm.as_ref().and_then(|norm| norm.f_double_value(&[]).ok());
        let passed = |ended: Instant| Some(ended.duration_since(shared.began.get()?));
        let t = shared.ended.get().and_then(passed).unwrap_or_default();
        let memory = MemoryUse::on(device);
        let complete = |measured: Measured| StepMetrics {
            t: t.as_secs_f64(),
            gradient_norm: measured.gradient_norm.or(norm),
            loss_scale: loss_scale(scaler),
            memory_bytes: memory.now,
            peak_memory_bytes: memory.peak,
            ..measured.metrics()
        };
        Some(StepReport {
            last: complete(last),
            average: complete(shared.average.get()),
        })
    }

    /// Gives steps to a recorder from now on.
    pub(crate) fn record_with(&self, recorder: Recorder) {
        self.shared.recorder.replace(Some(recorder));
    }

    /// A run has begun; on the rank that writes it, here.
    pub(crate) fn begin_run(&self, place: Option<RunPlace>) {
        if let Some(recorder) = &mut *self.shared.recorder.borrow_mut() {
            recorder.begin_run(place);
        }
    }

    /// Writes down what is left, and sends nothing to other ranks any more.
    pub(crate) fn finish(&self) {
        if let Some(recorder) = &mut *self.shared.recorder.borrow_mut() {
            recorder.finish();
        }
    }
}

/// By what losses are multiplied, where they are.
pub(super) fn loss_scale(scaler: Option<&GradScaler>) -> Option<f64> {
    let scaler = scaler.filter(|scaler| scaler.is_enabled())?;
    scaler.scale_value().ok()
}

/// A range in profiles; that it cannot be named changes nothing.
fn named(name: &str) -> Option<ProfileRange> {
    ProfileRange::while_recording(|| name.to_owned())
        .ok()
        .flatten()
}

/// A loop waits for a batch until this is dropped.
#[derive(Debug)]
pub(crate) struct DataWait {
    clock: StepClock,
    _range: Option<ProfileRange>,
}

impl Drop for DataWait {
    fn drop(&mut self) {
        self.clock.mark(Phase::DataWait);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use accelerate_torch::Blocked;
    use tch::Kind;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    /// One step: a batch of two samples of three tokens, with pauses in each phase.
    fn step(clock: &StepClock, batch: &Tensor) {
        let wait = clock.wait_for_data();
        thread::sleep(PAUSE);
        clock.batch(batch);
        drop(wait);
        thread::sleep(2 * PAUSE);
        {
            let _blocked = Blocked::begin();
            thread::sleep(3 * PAUSE);
        }
        clock.backward();
        clock.clipped(&Tensor::from(1.5));
        thread::sleep(4 * PAUSE);
        let _range = clock.optimizer();
        clock.stepped(1, None);
    }

    #[test]
    fn each_part_of_a_step_is_what_its_time_was_for() {
        let clock = StepClock::default();
        assert!(clock.report(Device::Cpu, None).is_none());
        let batch = Tensor::ones([2, 3], (Kind::Int64, Device::Cpu));
        let start = Instant::now();
        step(&clock, &batch);
        let whole = start.elapsed().as_secs_f64();
        let report = clock.report(Device::Cpu, None).unwrap();
        let (last, pause) = (&report.last, PAUSE.as_secs_f64());
        let split = &last.split;
        let parts = [
            split.data_wait,
            split.compute,
            split.communication,
            split.other,
        ];
        for (part, pauses) in parts.into_iter().zip([1.0, 2.0, 3.0, 4.0]) {
            // What a busy machine adds is bounded by the whole.
            assert!(part >= pauses * pause, "{last:?}");
        }
        let sum: f64 = parts.iter().sum();
        assert!((sum - last.seconds).abs() < 1e-9, "{last:?}");
        assert!(
            last.seconds <= whole && whole - last.seconds < 2.0 * pause,
            "{whole}: {last:?}"
        );
        assert_eq!((last.step, last.gradient_norm), (1, Some(1.5)));
        let rate = |count: f64| Some(count / last.seconds);
        assert_eq!(last.samples_per_second, rate(2.0));
        assert_eq!(last.tokens_per_second, rate(6.0));
        assert_eq!(report.average, report.last);
    }

    #[test]
    fn batches_that_nothing_is_learned_from_do_not_count() {
        let clock = StepClock::default();
        let batch = |rows: i64| Tensor::ones([rows, 1], (Kind::Float, Device::Cpu));
        let samples = || {
            let last = clock.report(Device::Cpu, None).unwrap().last;
            (last.samples_per_second.unwrap_or(0.0) * last.seconds).round()
        };
        clock.batch(&batch(100));
        // Two batches in one step.
        for rows in [3, 4] {
            clock.batch(&batch(rows));
            clock.backward();
        }
        clock.stepped(1, None);
        assert_eq!(samples(), 7.0);
        // A second loss of the same batch, and a program that goes backward by itself.
        clock.batch(&batch(5));
        clock.backward();
        clock.backward();
        clock.stepped(1, None);
        assert_eq!(samples(), 5.0);
        clock.batch(&batch(6));
        let _range = clock.optimizer();
        clock.stepped(1, None);
        assert_eq!(samples(), 6.0);
    }

    #[test]
    fn steps_are_those_of_the_first_optimizer_as_long_as_it_steps() {
        let clock = StepClock::default();
        let number = || {
            clock
                .report(Device::Cpu, None)
                .map(|report| report.last.step)
        };
        for optimizer in [7, 8, 8, 8, 7, 8] {
            clock.stepped(optimizer, None);
        }
        assert_eq!(number(), Some(2));
        for _ in 0..MOST_OTHERS {
            clock.stepped(8, None);
        }
        assert_eq!(number(), Some(3), "the first one is gone");
        clock.stepped(8, None);
        assert_eq!(number(), Some(4));
    }

    /// Of a step of two milliseconds, which is a small one, a hundredth is 20 microseconds.
    #[test]
    fn measuring_costs_less_than_a_hundredth_of_small_steps() {
        let clock = StepClock::default();
        let batch = Tensor::ones([8, 128], (Kind::Int64, Device::Cpu));
        let norm = Tensor::from(1.0);
        let cycle = || {
            drop(clock.wait_for_data());
            clock.batch(&batch);
            clock.backward();
            clock.clipped(&norm);
            drop(clock.optimizer());
            clock.stepped(1, None);
        };
        let many = 200;
        let round = || {
            let start = Instant::now();
            (0..many).for_each(|_| cycle());
            start.elapsed() / many
        };
        // The best of some rounds: others use the machine too.
        let best = (0..20).map(|_| round()).min().unwrap();
        assert!(best < Duration::from_micros(20), "{best:?}");
        let steps = clock.report(Device::Cpu, None).unwrap().last.step;
        assert_eq!(steps, 20 * i64::from(many));
    }
}
