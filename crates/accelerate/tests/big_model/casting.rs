//! Weights in a small type, computed with in a larger one.

use accelerate::big_model::{LayerwiseCasting, attach_layerwise_casting_hooks};
use accelerate::nn::Module;
use accelerate::{Error, Result};
use tch::Kind;

use crate::model::{Net, ids};

fn casting() -> LayerwiseCasting {
    LayerwiseCasting {
        storage: Kind::Float8e4m3fn,
        compute: Kind::Float,
        skip_names: vec!["head".to_owned()],
        skip_classes: vec!["Bound".to_owned()],
    }
}

#[test]
fn layers_are_small_at_rest_and_norms_are_not() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let rounded = Net::with_values(Kind::Float)?;
    for block in &rounded.h {
        for (_, one) in block.up.named_parameters() {
            let small = one.tensor().detach().to_kind(Kind::Float8e4m3fn);
            tch::no_grad(|| one.tensor().shallow_clone().copy_(&small));
        }
    }
    assert_eq!(attach_layerwise_casting_hooks(&model, &casting())?, 3);
    for _pass in 0..2 {
        assert_eq!(model.logits(&ids())?, rounded.logits(&ids())?);
        for (name, one) in model.named_parameters() {
            let expected = match name.contains("up.") {
                true => Kind::Float8e4m3fn,
                false => Kind::Float,
            };
            assert_eq!(one.tensor().kind(), expected, "{name}");
        }
    }
    Ok(())
}

#[test]
fn types_that_are_no_floats_are_refused() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let wrong = LayerwiseCasting {
        storage: Kind::Int8,
        ..casting()
    };
    let error = attach_layerwise_casting_hooks(&model, &wrong).unwrap_err();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
    Ok(())
}
