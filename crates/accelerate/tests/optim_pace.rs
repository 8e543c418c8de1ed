//! How fast a prepared schedule goes, and that it says so.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::f64::consts::PI;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use accelerate::optim::{
    AcceleratedScheduler, Adafactor, AdafactorConfig, ExponentialLR, Optimizer, RmsProp,
    RmsPropConfig, Scheduler, SchedulerStepping, Sgd, SgdConfig, cosine_schedule_with_warmup,
};
use accelerate::{Accelerator, GradientState, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps level and message of every event.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(Level, String)>>>);

impl Heard {
    fn at(&self, level: Level) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let own = all.iter().filter(|(own, _)| *own == level);
        own.map(|(_, message)| message.clone()).collect()
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let heard = (*event.metadata().level(), message.0);
        self.0.lock().unwrap().push(heard);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn leaf() -> Tensor {
    Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true)
}

const UPDATES: u64 = 20;

/// The rates that `UPDATES + 2` updates use, and what was said.
fn follow(processes: usize, once_per_update: bool, length: u64) -> (Vec<f64>, Heard) {
    let heard = Heard::default();
    let rates = tracing::subscriber::with_default(heard.clone(), || {
        let optimizer = Sgd::new(vec![leaf()], SgdConfig::new(1.0)).unwrap();
        let inner = cosine_schedule_with_warmup(&optimizer, 0, length, 0.5);
        let links = [optimizer.learning_rates().clone()];
        let stepping = SchedulerStepping {
            num_processes: NonZeroUsize::new(processes).unwrap(),
            ..Default::default()
        };
        let mut schedule =
            AcceleratedScheduler::new(inner, &links, GradientState::default(), stepping);
        if once_per_update {
            schedule = schedule.once_per_update();
        }
        assert_eq!(
            schedule.ends_at_update(),
            Some(length.div_ceil(schedule.steps_per_update()))
        );
        let mut rates = Vec::new();
        for _ in 0..UPDATES + 2 {
            rates.extend(optimizer.learning_rates().all());
            schedule.step().unwrap();
        }
        rates
    });
    (rates, heard)
}

#[test]
fn the_schedule_follows_the_formula_and_tells_its_pace_and_its_end() {
    // Processes, whether it steps once per update, and the length that is right for that.
    for (processes, once, length) in [
        (1, false, UPDATES),
        (2, false, 2 * UPDATES),
        (1, true, UPDATES),
        (2, true, UPDATES),
    ] {
        let (rates, heard) = follow(processes, once, length);
        for (update, rate) in rates.iter().enumerate().take(UPDATES as usize + 1) {
            let expected = 0.5 * (1.0 + (PI * update as f64 / UPDATES as f64).cos());
            assert!(
                (rate - expected).abs() < 1e-12,
                "{processes} {once} {update}"
            );
        }
        let steps = if once { 1 } else { processes };
        let pace = heard.at(Level::INFO);
        let notice = format!(
            "the schedule makes {steps} step(s) at each update, so its {length} steps end at update {UPDATES}"
        );
        assert_eq!(pace.last(), Some(&notice));
        let warnings = heard.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("passed its end"), "{warnings:?}");
    }
}

#[test]
fn a_length_that_was_not_multiplied_is_warned_of_half_way() {
    let (rates, heard) = follow(2, false, UPDATES);
    assert_eq!(rates[UPDATES as usize / 2], 0.0);
    assert!(heard.at(Level::INFO)[0].contains("end at update 10"));
    assert_eq!(heard.at(Level::WARN).len(), 1);
}

#[test]
fn the_update_that_reaches_an_odd_end_is_not_past_it() {
    // Two steps at each update, and one step left for the last.
    let (_, heard) = follow(2, false, 2 * (UPDATES + 2) - 1);
    assert_eq!(heard.at(Level::WARN), [""; 0]);
    let (_, heard) = follow(2, false, 2 * (UPDATES + 1) - 1);
    assert_eq!(heard.at(Level::WARN).len(), 1);
}

#[test]
fn nothing_is_warned_of_before_the_end() {
    let (_, heard) = follow(2, false, 4 * UPDATES);
    assert_eq!(heard.at(Level::WARN), [""; 0]);
}

#[test]
fn optimizers_and_schedules_of_every_kind_can_be_prepared() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let weight = leaf();
        let optimizer = RmsProp::new(vec![weight.shallow_clone()], RmsPropConfig::default())?;
        let schedule = ExponentialLR::new(&optimizer, 0.5);
        let relative = Adafactor::new(vec![leaf()], AdafactorConfig::default())?;
        let boxed: Box<dyn Optimizer> = Box::new(relative);
        let (mut schedule, mut optimizer, boxed) =
            accelerator.prepare((schedule, optimizer, boxed))?;
        assert_eq!(boxed.name(), "Adafactor");
        accelerator.backward(&weight.sum(Kind::Float))?;
        optimizer.step()?;
        schedule.step()?;
        assert!(weight.double_value(&[0]) < 1.0);
        let expected = 0.01 * 0.5f64.powi(rank.world() as i32);
        assert_eq!(optimizer.learning_rates().all(), [expected]);
        Ok(())
    });
}
