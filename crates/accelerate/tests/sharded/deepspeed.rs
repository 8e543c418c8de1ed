//! Optimizers and schedules that DeepSpeed's config names, and what the rest of it makes of a program.

use std::num::NonZeroU64;

use accelerate::data::DataLoader;
use accelerate::nn::{Factory, Linear, Module, ModuleState};
use accelerate::optim::{
    AdamW, AdamWConfig, DummyOptim, DummyOptimConfig, DummyScheduler, DummySchedulerConfig,
    Optimizer, Scheduler, WarmupConfig, WarmupDecayLR, linear_schedule_with_warmup,
};
use accelerate::parallel::CommHook;
use accelerate::precision::{LossScaling, MixedPrecision, ScaleRule};
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_plan::parallel::deepspeed::ConfigSource;
use accelerate_plan::parallel::{DeepSpeedSettings, ParallelPlan, Sharded};
use accelerate_testkit::{Rank, ranks};
use tch::{Kind, Tensor};

use crate::job::{
    Job, Model, Setup, batch, by_class, compare, count, groups, loss, model, plan, trained,
};

const STEPS: usize = 6;

/// Both are named: AdamW, and a schedule that is at 0 behind the last step.
const OPTIMIZER: &str =
    r#", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}}"#;
const SCHEDULER: &str = r#", "scheduler": {"type": "WarmupDecayLR", "params": {
    "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
    "total_num_steps": "auto"}}"#;
const SIZE: &str = r#", "train_micro_batch_size_per_gpu": 4"#;

/// An accelerator by a config with these parts, which shards parameters.
fn accelerator(parts: &[&str]) -> Result<Accelerator> {
    let parts = parts.concat();
    let text = format!(
        r#"{{"zero_optimization": {{"stage": 3, "stage3_param_persistence_threshold": 0}}{parts}}}"#
    );
    Accelerator::builder()
        .cpu(true)
        .deepspeed(DeepSpeedSettings::with_config(ConfigSource::Text(text)))
        .build()
}

fn dummy_optim(model: &Model) -> Result<DummyOptim> {
    let config = DummyOptimConfig {
        lr: 4e-3,
        weight_decay: 0.1,
    };
    DummyOptim::new(groups(model), config)
}

/// What the stand-in stands for, by the program itself.
fn adamw(model: &Model) -> Result<AdamW> {
    let config = AdamWConfig {
        lr: 4e-3,
        weight_decay: 0.1,
        ..AdamWConfig::default()
    };
    AdamW::new(groups(model), config)
}

/// Steps of the plain program: its ranks share them.
fn dummy_scheduler<O: Optimizer>(optimizer: &O, rank: Rank) -> DummyScheduler {
    let config = DummySchedulerConfig {
        total_num_steps: Some((STEPS * rank.world()) as u64),
        warmup_num_steps: 2,
    };
    DummyScheduler::new(optimizer, config)
}

fn schedule<O: Optimizer + ?Sized>(optimizer: &O) -> WarmupDecayLR {
    let config = WarmupConfig {
        warmup_max_lr: Some(4e-3),
        warmup_num_steps: NonZeroU64::new(2).unwrap(),
        ..WarmupConfig::default()
    };
    WarmupDecayLR::new(optimizer, STEPS as u64, config)
}

/// The rates that the schedule of this library has behind each step.
fn expected_rates() -> Result<Vec<f64>> {
    let mut schedule = schedule(&adamw(&model(&Setup::default())?)?);
    let mut rates = Vec::new();
    for _ in 0..STEPS {
        schedule.step()?;
        rates.push(schedule.last_lr()[0]);
    }
    Ok(rates)
}

/// The rates behind each step, and the weights behind the last.
type Trained = (Vec<f64>, Vec<Tensor>);

fn train(
    accelerator: &Accelerator,
    model: &PreparedModel<Model>,
    optimizer: &mut dyn Optimizer,
    scheduler: &mut dyn Scheduler,
    rank: Rank,
) -> Result<Trained> {
    let mut rates = Vec::new();
    for number in 0..STEPS {
        let _step = accelerator.accumulate(model)?;
        accelerator.backward(&loss(model, &batch(number, rank))?)?;
        optimizer.step()?;
        scheduler.step()?;
        optimizer.zero_grad()?;
        rates.push(scheduler.last_lr()[0]);
    }
    let weights = model.with_whole_parameters(false, |model| {
        let own = model.parameters().into_iter();
        own.map(|one| Ok(one.tensor().f_detach_copy()?)).collect()
    })?;
    Ok((rates, weights))
}

/// The program's own optimizer and schedule under the same config.
fn by_the_program(rank: Rank) -> Result<Trained> {
    let accelerator = accelerator(&[SIZE])?;
    let model = model(&Setup::default())?;
    let optimizer = adamw(&model)?;
    let scheduler = schedule(&optimizer);
    let (model, mut optimizer, scheduler) = accelerator.prepare((model, optimizer, scheduler))?;
    assert_eq!(scheduler.steps_per_update(), rank.world() as u64);
    let mut scheduler = scheduler.once_per_update();
    train(&accelerator, &model, &mut optimizer, &mut scheduler, rank)
}

fn assert_same(expected: &Trained, found: &Trained) {
    assert_eq!(expected.0, found.0, "the rates");
    for (expected, found) in expected.1.iter().zip(&found.1) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.1.len(), found.1.len());
}

#[test]
fn both_come_from_the_config_for_stand_ins() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let expected = by_the_program(rank)?;
        assert_eq!(expected.0, expected_rates()?);
        let accelerator = accelerator(&[SIZE, OPTIMIZER, SCHEDULER])?;
        let config = accelerator.deepspeed_config().unwrap();
        assert!(config.names_optimizer() && config.names_scheduler());
        let model = model(&Setup::default())?;
        let before = model.head.weight.tensor().f_detach_copy()?;
        let optimizer = dummy_optim(&model)?;
        let scheduler = dummy_scheduler(&optimizer, rank);
        let (model, mut optimizer, mut scheduler) =
            accelerator.prepare((model, optimizer, scheduler))?;
        assert_eq!(optimizer.name(), "AdamW");
        assert_eq!(scheduler.steps_per_update(), 1);
        let config = accelerator.deepspeed_config().unwrap();
        assert_eq!(config.autos(), [] as [&str; 0]);
        let found = train(&accelerator, &model, &mut optimizer, &mut scheduler, rank)?;
        assert_same(&expected, &found);
        assert_ne!(before, *found.1.last().unwrap(), "nothing was learnt");
        Ok(())
    });
}

#[test]
fn boxed_stand_ins_are_found_and_any_order_will_do() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let expected = by_the_program(rank)?;
        let accelerator = accelerator(&[SIZE, OPTIMIZER, SCHEDULER])?;
        let model = model(&Setup::default())?;
        let optimizer: Box<dyn Optimizer> = Box::new(dummy_optim(&model)?);
        let scheduler: Box<dyn Scheduler> = Box::new(dummy_scheduler(&optimizer, rank));
        let (mut scheduler, mut optimizer, model) =
            accelerator.prepare((scheduler, optimizer, model))?;
        let found = train(&accelerator, &model, &mut optimizer, &mut scheduler, rank)?;
        assert_same(&expected, &found);
        Ok(())
    });
}

#[test]
fn the_programs_optimizer_goes_with_the_schedule_of_the_config() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let expected = by_the_program(rank)?;
        let accelerator = accelerator(&[SIZE, SCHEDULER])?;
        let model = model(&Setup::default())?;
        let optimizer = adamw(&model)?;
        let scheduler = dummy_scheduler(&optimizer, rank);
        let (model, mut optimizer, mut scheduler) =
            accelerator.prepare((model, optimizer, scheduler))?;
        let found = train(&accelerator, &model, &mut optimizer, &mut scheduler, rank)?;
        assert_same(&expected, &found);
        Ok(())
    });
}

#[test]
fn a_stand_in_makes_the_schedule_of_an_optimizer_of_the_config() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let expected = by_the_program(rank)?;
        let accelerator = accelerator(&[SIZE, OPTIMIZER])?;
        let model = model(&Setup::default())?;
        let optimizer = dummy_optim(&model)?;
        let scheduler = dummy_scheduler(&optimizer, rank)
            .with_callable(|optimizer| Ok(Box::new(schedule(optimizer))));
        let (model, mut optimizer, mut scheduler) =
            accelerator.prepare((model, optimizer, scheduler))?;
        let found = train(&accelerator, &model, &mut optimizer, &mut scheduler, rank)?;
        assert_same(&expected, &found);
        Ok(())
    });
}

fn real(model: &Model) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(adamw(model)?))
}

fn dummy(model: &Model) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(dummy_optim(model)?))
}

fn linear(optimizer: &dyn Optimizer) -> Box<dyn Scheduler> {
    Box::new(linear_schedule_with_warmup(optimizer, 1, 10))
}

fn stand_in(optimizer: &dyn Optimizer) -> Box<dyn Scheduler> {
    let config = DummySchedulerConfig {
        total_num_steps: Some(10),
        warmup_num_steps: 1,
    };
    Box::new(DummyScheduler::new(optimizer, config))
}

/// Why a pair cannot be prepared.
fn refused(
    parts: &[&str],
    optimizer: fn(&Model) -> Result<Box<dyn Optimizer>>,
    scheduler: fn(&dyn Optimizer) -> Box<dyn Scheduler>,
) -> Result<String> {
    let accelerator = accelerator(parts)?;
    let model = model(&Setup::default())?;
    let optimizer = optimizer(&model)?;
    let scheduler = scheduler(&*optimizer);
    let prepared = accelerator.prepare((model, optimizer, scheduler));
    Ok(prepared.map(|_| ()).unwrap_err().to_string())
}

#[test]
fn pairs_that_contradict_the_config_are_refused() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let text = refused(&[SIZE, OPTIMIZER, SCHEDULER], real, stand_in)?;
        assert!(
            text.contains("names an optimizer, and the program prepares another one"),
            "{text}"
        );
        assert!(text.contains("prepare a `DummyOptim`"), "{text}");
        let text = refused(&[SIZE], dummy, linear)?;
        assert!(
            text.contains("a stand-in for an optimizer, and the DeepSpeed config names none"),
            "{text}"
        );
        let text = refused(&[SIZE, OPTIMIZER, SCHEDULER], dummy, linear)?;
        assert!(
            text.contains("names a schedule, and the program prepares another one"),
            "{text}"
        );
        let text = refused(&[SIZE, OPTIMIZER], dummy, stand_in)?;
        assert!(
            text.contains("a stand-in for a schedule, and the DeepSpeed config names none"),
            "{text}"
        );
        let text = refused(&[SIZE, OPTIMIZER], dummy, linear)?;
        assert!(text.contains("has none to act on"), "{text}");
        assert!(
            text.contains("a `DummyScheduler` with a function that makes the schedule"),
            "{text}"
        );
        let lion = r#", "optimizer": {"type": "Lion", "params": {"lr": 0.1}}"#;
        let text = refused(&[SIZE, lion, SCHEDULER], dummy, stand_in)?;
        assert!(
            text.contains("`optimizer.type` is `Lion`") && text.contains("`Adagrad`, `Lamb`"),
            "{text}"
        );
        let lamb = r#", "optimizer": {"type": "Lamb", "params": {"lr": 0.1}}"#;
        let made = refused_if(rank.world() > 1, &[SIZE, lamb, SCHEDULER])?;
        assert!(made.is_none_or(|text| text.contains("`Lamb`, which looks at whole")));
        Ok(())
    });
}

/// Why stand-ins cannot be prepared, where they are to be refused at all.
fn refused_if(is_wrong: bool, parts: &[&str]) -> Result<Option<String>> {
    let accelerator = accelerator(parts)?;
    let model = model(&Setup::default())?;
    let optimizer = dummy(&model)?;
    let scheduler = stand_in(&*optimizer);
    let prepared = accelerator.prepare((model, optimizer, scheduler));
    match is_wrong {
        true => Ok(Some(prepared.map(|_| ()).unwrap_err().to_string())),
        false => prepared.map(|_| None),
    }
}

#[test]
fn without_deepspeed_a_stand_in_stands_for_nothing() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let plain = Accelerator::builder().cpu(true).build()?;
        assert!(plain.deepspeed_config().is_none());
        let own = model(&Setup::default())?;
        let dummy = dummy_optim(&own)?;
        let scheduler = dummy_scheduler(&dummy, rank);
        let text = plain.prepare(dummy).map(|_| ()).unwrap_err().to_string();
        assert!(
            text.contains("a job without it; make an optimizer"),
            "{text}"
        );
        let text = plain.prepare(scheduler).map(|_| ()).unwrap_err();
        let text = text.to_string();
        assert!(text.contains("`DummyScheduler` needs a job with"), "{text}");
        Ok(())
    });
}

#[test]
fn batch_sizes_come_from_the_loader_and_have_to_fit() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let loader = || DataLoader::builder(vec![0i64; 24]).batch_size(3).build();
        let own = || -> Result<(Model, AdamW)> {
            let model = model(&Setup::default())?;
            let optimizer = adamw(&model)?;
            Ok((model, optimizer))
        };
        let world = rank.world();
        let auto = accelerator(&[
            r#", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto""#,
        ])?;
        let (model, optimizer) = own()?;
        let _prepared = auto.prepare((model, optimizer, loader()?))?;
        let text = auto.deepspeed_config().unwrap().to_string();
        let wanted = format!("'train_batch_size': {}", 3 * world);
        assert!(text.contains(&wanted), "{text}");

        let three =
            accelerator(&[r#", "train_batch_size": 24, "train_micro_batch_size_per_gpu": 3"#])?;
        let (model, optimizer) = own()?;
        let _prepared = three.prepare((model, optimizer, loader()?))?;
        assert_eq!(three.gradient_accumulation_steps(), count(8 / world));

        let wrong = accelerator(&[
            r#", "train_batch_size": 64, "gradient_accumulation_steps": 2"#,
            r#", "train_micro_batch_size_per_gpu": 3"#,
        ])?;
        let (model, optimizer) = own()?;
        let text = wrong.prepare((model, optimizer, loader()?)).map(|_| ());
        let text = text.unwrap_err().to_string();
        let wanted = format!(" x {world} ranks = {}", 6 * world);
        assert!(
            text.contains("`train_batch_size` (64") && text.contains(&wanted),
            "{text}"
        );
        Ok(())
    });
}

/// A model that says how wide it is.
#[derive(Debug, Module)]
#[module(hidden_sizes = Self::widths)]
struct Wide {
    layer: Linear,
    state: ModuleState,
}

impl Wide {
    fn widths(&self) -> Vec<u64> {
        vec![4, 32]
    }
}

#[test]
fn auto_sizes_come_from_the_width_of_the_model() {
    ranks(&[1, 2], |_rank| -> Result<()> {
        let text = r#"{"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
            "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 4}"#;
        let by = || {
            let source = ConfigSource::Text(text.to_owned());
            Accelerator::builder()
                .cpu(true)
                .deepspeed(DeepSpeedSettings::with_config(source))
        };
        let accelerator = by().build()?;
        // The config says the precision.
        assert_eq!(accelerator.mixed_precision(), MixedPrecision::Bf16);
        let narrow = accelerator.prepare(model(&Setup::default())?);
        let text = narrow.map(|_| ()).unwrap_err().to_string();
        assert!(
            text.contains("`zero_optimization.reduce_bucket_size`")
                && text.contains("the hidden size of the model"),
            "{text}"
        );
        let wide = Wide {
            layer: Linear::new(4, 32, &Factory::default())?,
            state: ModuleState::default(),
        };
        let _prepared = accelerator.prepare(wide)?;
        let plan = accelerator.parallel_plan().unwrap();
        assert_eq!(plan.reduction.bucket_size, 32 * 32);
        let shown = accelerator.to_string();
        assert!(shown.contains("Mixed precision type: bf16\n"), "{shown}");
        assert!(
            shown.contains("ds_config: {'zero_optimization': {'stage': 2"),
            "{shown}"
        );

        let both = by().parallel_plan(ParallelPlan::replicated(count(1)));
        let text = both.build().map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("`parallel_plan` or `deepspeed`"), "{text}");
        Ok(())
    });
}

#[test]
fn only_the_step_clips_where_the_config_says_how() {
    ranks(&[1, 2], |rank| -> Result<()> {
        for clipping in ["0.5", "0"] {
            let part = format!(r#", "gradient_clipping": {clipping}"#);
            let accelerator = accelerator(&[SIZE, &part])?;
            let model = model(&Setup::default())?;
            let optimizer = adamw(&model)?;
            let (model, _optimizer) = accelerator.prepare((model, optimizer))?;
            let _step = accelerator.accumulate(&model)?;
            accelerator.backward(&loss(&model, &batch(0, rank))?)?;
            let norm = || -> Result<f64> {
                let norm = accelerator.clip_grad_norm(model.parameters(), 1e-3)?;
                Ok(norm.map_or(0.0, |norm| norm.double_value(&[])))
            };
            let first = norm()?;
            assert!(first > 1e-3, "{first}");
            assert_eq!(norm()?, first);
        }
        Ok(())
    });
}

/// Stage 3 in bfloat16, with or without leave to gather the model.
fn in_sixteen_bits(gathers: bool) -> Result<Accelerator> {
    let text = format!(
        r#"{{"zero_optimization": {{"stage": 3,
            "stage3_gather_16bit_weights_on_model_save": {gathers}}},
            "bf16": {{"enabled": true}}, "train_micro_batch_size_per_gpu": 4}}"#
    );
    Accelerator::builder()
        .cpu(true)
        .deepspeed(DeepSpeedSettings::with_config(ConfigSource::Text(text)))
        .build()
}

#[test]
fn a_model_is_gathered_in_sixteen_bits_where_that_is_allowed() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = in_sixteen_bits(false)?;
        let own = model(&Setup::default())?;
        let optimizer = adamw(&own)?;
        let (own, _optimizer) = accelerator.prepare((own, optimizer))?;
        let text = accelerator.get_state_dict(&*own).unwrap_err().to_string();
        assert!(text.contains("--zero3_save_16bit_model"), "{text}");

        let accelerator = in_sixteen_bits(true)?;
        let own = model(&Setup::default())?;
        let first = own.head.weight.tensor().f_detach_copy()?;
        let optimizer = adamw(&own)?;
        let (own, _optimizer) = accelerator.prepare((own, optimizer))?;
        let weights = accelerator.get_state_dict(&*own)?;
        assert_eq!(weights.is_empty(), rank.index() != 0);
        for (name, weight) in &weights {
            assert_eq!(weight.kind(), Kind::BFloat16, "{name}");
        }
        if let Some(head) = weights.get("head.weight") {
            assert_eq!(*head, first.to_kind(Kind::BFloat16));
        }
        Ok(())
    });
}

#[test]
fn a_teacher_is_prepared_by_a_config_of_its_own() {
    ranks(&[2], |rank| -> Result<()> {
        let settings = |stage: u8, steps: u8| {
            let text = format!(
                r#"{{"zero_optimization": {{"stage": {stage}}}, "gradient_clipping": 1.0,
                    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": {steps}}}"#
            );
            DeepSpeedSettings::with_config(ConfigSource::Text(text))
        };
        let accelerator = Accelerator::builder()
            .cpu(true)
            .deepspeed_plugins([("student", settings(2, 1)), ("teacher", settings(3, 2))])
            .build()?;
        let names: Vec<&str> = accelerator.deepspeed_plugins().collect();
        assert_eq!(names, ["student", "teacher"]);
        let student = model(&Setup::default())?;
        let optimizer = adamw(&student)?;
        let (student, mut optimizer) = accelerator.prepare((student, optimizer))?;
        let text = accelerator.select_deepspeed_plugin("pupil").unwrap_err();
        assert!(text.to_string().contains("`teacher`"), "{text}");
        accelerator.select_deepspeed_plugin("teacher")?;
        assert_eq!(accelerator.gradient_accumulation_steps(), count(2));
        let teacher = accelerator.prepare_for_evaluation(model(&Setup::default())?)?;
        accelerator.select_deepspeed_plugin("student")?;
        assert_eq!(accelerator.gradient_accumulation_steps(), count(1));
        let sharded = |model: &PreparedModel<Model>| model.sharded().map(|own| own.plan().sharded);
        assert_eq!(sharded(&student), Some(Sharded::Gradients));
        assert_eq!(sharded(&teacher), Some(Sharded::Parameters));

        let ids = batch(0, rank);
        let wanted = tch::no_grad(|| loss(&teacher, &ids))?;
        let own = loss(&student, &ids)?;
        assert_eq!(own.double_value(&[]), wanted.double_value(&[]));
        accelerator.backward(&own)?;
        let refused = accelerator.clip_grad_value(student.parameters(), 0.5);
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("`gradient_clipping`"), "{text}");
        optimizer.step()?;
        let learnt = loss(&student, &ids)?.double_value(&[]);
        assert_ne!(learnt, wanted.double_value(&[]));
        Ok(())
    });
}

#[test]
fn without_stages_gradients_are_divided_before_and_behind_their_sum() {
    ranks(&[2], |rank| -> Result<()> {
        let mut all = Vec::new();
        for parts in [
            "",
            r#", "gradient_predivide_factor": 0.5"#,
            r#", "prescale_gradients": true"#,
        ] {
            let text = format!(
                r#"{{"zero_optimization": {{"stage": 0}}, "gradient_clipping": 0,
                    "train_micro_batch_size_per_gpu": 4{parts}}}"#
            );
            let settings = DeepSpeedSettings::with_config(ConfigSource::Text(text));
            let accelerator = Accelerator::builder()
                .cpu(true)
                .deepspeed(settings)
                .build()?;
            let own = model(&Setup::default())?;
            let optimizer = adamw(&own)?;
            let (own, _optimizer) = accelerator.prepare((own, optimizer))?;
            let hook = own
                .data_parallel()
                .map(|ddp| ddp.kwargs().comm_hook.clone());
            let is_divided = parts.contains("predivide");
            assert_eq!(hook.is_some_and(|hook| hook != CommHook::No), is_divided);
            accelerator.backward(&loss(&own, &batch(0, rank))?)?;
            all.push(own.head.weight.tensor().grad());
        }
        // All numbers are powers of two, which divide exactly.
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], all[2]);
        Ok(())
    });
}

/// A step with gradients that only this rank's shards have too large.
fn overflow(job: &mut Job<AdamW>, rank: Rank) -> Result<()> {
    let _step = job.accelerator.accumulate(&job.model)?;
    let own = loss(&job.model, &batch(0, rank))?;
    job.accelerator.backward(&own)?;
    if rank.index() == 1 {
        for parameter in job.model.parameters() {
            let mut gradient = parameter.tensor().grad();
            if gradient.defined() {
                let _ = gradient.f_fill_(f64::INFINITY)?;
            }
        }
    }
    job.step()
}

#[test]
fn an_overflow_on_one_rank_lowers_the_scale_on_all() {
    ranks(&[2], |rank| -> Result<()> {
        let mut scaled = plan(rank, Sharded::Parameters, by_class());
        let setup = Setup {
            steps: 2,
            ..Setup::default()
        };
        let expected = trained(rank, &setup.by(scaled.clone()))?;
        let rule = ScaleRule {
            initial_scale_power: 2,
            hysteresis: 1,
            ..ScaleRule::default()
        };
        scaled.precision.loss_scaling = LossScaling::Dynamic(rule);
        let mut job = Job::new(rank, &setup.by(scaled))?;
        compare(
            &expected,
            &job.train(2)?,
            None,
            "a scale that is a power of two",
        );
        let scaler = job.accelerator.scaler().unwrap().clone();
        assert_eq!(scaler.scale_value()?, 4.0);
        for scale in [2.0, 1.0] {
            overflow(&mut job, rank)?;
            assert!(job.optimizer.step_was_skipped());
            assert_eq!(scaler.scale_value()?, scale);
        }
        assert_eq!(job.weights()?, expected.weights);
        let text = overflow(&mut job, rank).unwrap_err().to_string();
        assert!(text.contains("an overflow at the least one, 1"), "{text}");
        Ok(())
    });
}
