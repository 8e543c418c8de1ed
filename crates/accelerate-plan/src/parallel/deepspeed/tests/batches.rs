use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn term(value: u64) -> BatchTerm {
    BatchTerm {
        value,
        origin: Origin::Program,
    }
}

fn solve(terms: [Option<u64>; 3], ranks: usize) -> Result<[u64; 3], PlanError> {
    let [train, micro, steps] = terms.map(|value| value.map(term));
    let sizes = BatchSizes::solve(train, micro, steps, size(ranks))?;
    Ok([
        sizes.train.value,
        sizes.micro.value,
        sizes.accumulation.value,
    ])
}

#[test]
fn two_terms_give_the_third() {
    for (terms, all) in [
        ([Some(512), Some(16), Some(4)], [512, 16, 4]),
        ([Some(512), Some(16), None], [512, 16, 4]),
        ([Some(512), None, Some(4)], [512, 16, 4]),
        ([None, Some(16), Some(4)], [512, 16, 4]),
        ([Some(512), None, None], [512, 64, 1]),
        ([None, Some(16), None], [128, 16, 1]),
    ] {
        assert_eq!(solve(terms, 8).unwrap(), all, "{terms:?}");
    }
    assert!(matches!(
        solve([None, None, Some(4)], 8),
        Err(PlanError::NoBatchSize { .. })
    ));
}

#[test]
fn an_equation_that_does_not_hold_is_shown_with_every_term() {
    let text = r#"{"zero_optimization": {"stage": 1},
 "train_batch_size": "100",
 "train_micro_batch_size_per_gpu": 16,
 "gradient_accumulation_steps": "auto"}"#;
    let error = resolved(text).prepare(&job(2), &own()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected `train_batch_size` (100, <the program>:2) to be `train_micro_batch_size_per_gpu` \
         (16, <the program>:3) x `gradient_accumulation_steps` (4, detected: the accelerator's \
         accumulation) x 2 ranks = 128"
    );
    // No number of steps makes 100 of 16 and 2.
    assert!(solve([Some(100), Some(16), None], 2).is_err());
    assert!(solve([Some(7), None, None], 2).is_err());
}

#[test]
fn text_and_number_are_the_same() {
    let text = r#"{"zero_optimization": {"stage": 1}, "train_batch_size": "128",
        "train_micro_batch_size_per_gpu": 1.6e1, "gradient_accumulation_steps": " 4 "}"#;
    let told = resolved(text).prepare(&job(2), &own()).unwrap();
    assert!(told.batch.holds());
    let mut same = json(text);
    same.gradient_accumulation_steps = Sourced::by_program(Auto::Exactly(steps(4)));
    assert!(same.resolve(&precision(MixedPrecision::No)).is_ok());
}

#[test]
fn the_micro_batch_is_that_of_the_loaders() {
    let text = r#"{"zero_optimization": {"stage": 1}, "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}"#;
    let config = resolved(text);
    let micro = |facts: &PrepareFacts| {
        let told = config.prepare(&job(8), facts);
        told.map(|told| (told.batch.micro.value, told.batch.train.value))
    };
    let mut facts = own();
    // The example of the specification: 16 on each of 8, over 4 batches.
    assert_eq!(micro(&facts).unwrap(), (16, 512));
    facts.batch_sizes = vec![Some(size(24)), Some(size(8))];
    assert_eq!(micro(&facts).unwrap(), (8, 256));
    facts.smallest_batch_counts = false;
    assert_eq!(micro(&facts).unwrap().0, 24);
    facts.split_batches = true;
    assert_eq!(micro(&facts).unwrap().0, 3);
    facts.batch_sizes.push(None);
    assert!(micro(&facts).is_err());
    facts.batch_sizes.clear();
    let error = micro(&facts).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the micro batch size is not known: no loader is prepared, and the DeepSpeed config leaves it \
         open"
    );
    facts.batch_sizes.push(Some(size(16)));
    facts.split_batches = false;
    facts.sequence_parallel = size(2);
    assert_eq!(micro(&facts).unwrap(), (16, 256));
    facts.sequence_parallel = size(3);
    assert!(matches!(micro(&facts), Err(PlanError::Divisor { .. })));
}

proptest! {
    #[test]
    fn what_is_solved_holds(
        train in proptest::option::of(0_u64..200),
        micro in proptest::option::of(0_u64..20),
        steps in proptest::option::of(0_u64..6),
        ranks in 1_usize..9,
        is_shown in any::<bool>(),
    ) {
        let [a, b, c] = [train, micro, steps].map(|value| value.map(term));
        match BatchSizes::solve(a, b, c, size(ranks)) {
            Ok(sizes) => {
                let product = sizes.micro.value * sizes.accumulation.value * ranks as u64;
                prop_assert_eq!(sizes.train.value, product);
                prop_assert!(product > 0);
                prop_assert!(!is_shown || sizes.to_string().contains(" = "));
                prop_assert!(train.is_none_or(|train| train == sizes.train.value));
                prop_assert!(micro.is_none_or(|micro| micro == sizes.micro.value));
                prop_assert!(steps.is_none_or(|steps| steps == sizes.accumulation.value));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
