use tch::{Device, Kind, Tensor};

use super::*;

fn longrope(short: &[f64], long: &[f64]) -> RotarySettings {
    RotarySettings {
        width: 4,
        base: 100.0,
        max_positions: 16,
        scaling: RotaryScaling::LongRope(LongRopeScaling {
            short_factor: short.to_vec(),
            long_factor: long.to_vec(),
            factor: 4.0,
            attention_factor: None,
            original_max_positions: 4,
        }),
    }
}

/// The frequencies after a call with this last position.
fn after(layer: &RotaryEmbedding, position: i64) -> Result<Vec<f32>> {
    let positions = Tensor::f_from_slice(&[0, position])?.f_view([1, 2])?;
    let like = Tensor::f_zeros([1], (Kind::Float, Device::Cpu))?;
    let _angles = layer.call((&like, &positions))?;
    Ok(Vec::try_from(layer.frequencies.tensor())?)
}

#[test]
fn the_last_position_chooses_short_or_long_factors() -> Result<()> {
    let layer = RotaryEmbedding::new(longrope(&[1.0, 2.0], &[4.0, 5.0]), Device::Cpu)?;
    // As `_compute_longrope_parameters` of transformers 5.24 gives them.
    assert_eq!(layer.attention_factor, 2f64.sqrt());
    let (short, long) = ([1.0f32, 0.05], [0.25f32, 0.02]);
    for (position, expected) in [(3, short), (4, long), (15, long), (1, short)] {
        assert_eq!(after(&layer, position)?, expected, "{position}");
    }
    Ok(())
}

#[test]
fn there_is_one_factor_for_each_angle() {
    for (short, long) in [(&[1.0][..], &[1.0, 2.0][..]), (&[1.0, 2.0][..], &[][..])] {
        let error = RotaryEmbedding::new(longrope(short, long), Device::Cpu).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("2 short and long factors"), "{text}");
    }
    let still = RotarySettings {
        scaling: RotaryScaling::Proportional {
            pairs: 3,
            factor: 1.0,
        },
        ..longrope(&[], &[])
    };
    assert!(RotaryEmbedding::new(still, Device::Cpu).is_err());
}

#[test]
fn what_is_behind_the_turned_part_passes() -> Result<()> {
    let states = Tensor::f_arange(6, (Kind::Float, Device::Cpu))?.f_view([1, 1, 1, 6])?;
    // A quarter of a turn.
    let cosines = Tensor::f_zeros([1, 1, 4], (Kind::Float, Device::Cpu))?;
    let turned = rotate(&states, &cosines, &cosines.f_ones_like()?)?;
    let found: Vec<f32> = Vec::try_from(&turned.f_reshape([-1])?)?;
    assert_eq!(found, [-2.0, -3.0, 0.0, 1.0, 4.0, 5.0]);
    Ok(())
}
