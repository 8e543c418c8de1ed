use tch::{Device, Kind, Tensor};

use super::{PipelineOptions, PipelineStep, chunks, split};
use crate::Result;
use crate::nn::{Activation, ActivationFunction, Factory, Linear, Sequential};
use crate::tree::{Parcel, Tree};

fn stages(bytes: &[u64], count: usize) -> Option<Vec<Vec<u64>>> {
    let allowed = vec![true; bytes.len()];
    let ranges = split::balanced(bytes, count, &allowed)?;
    Some(
        ranges
            .into_iter()
            .map(|range| bytes[range].to_vec())
            .collect(),
    )
}

#[test]
fn the_largest_stage_is_as_small_as_it_can_be_and_the_rest_even() {
    assert_eq!(stages(&[4, 1, 1, 1, 1], 2), Some(vec![vec![4], vec![1; 4]]));
    assert_eq!(
        stages(&[1, 1, 1, 9], 3),
        Some(vec![vec![1], vec![1, 1], vec![9]])
    );
    assert_eq!(stages(&[3, 3, 3, 3], 4), Some(vec![vec![3]; 4]));
    assert_eq!(stages(&[7, 0, 0], 1), Some(vec![vec![7, 0, 0]]));
    assert_eq!(stages(&[1, 2], 3), None);
    assert_eq!(stages(&[], 1), None);
    // Whatever the sizes, no other cut has a smaller largest stage.
    let bytes = [5, 1, 8, 2, 2, 7, 3, 1];
    let largest = |cut: &[usize]| {
        let ends = cut.iter().copied().chain([bytes.len()]);
        let begins = [0].into_iter().chain(cut.iter().copied());
        let sums = begins
            .zip(ends)
            .map(|(from, to)| bytes[from..to].iter().sum::<u64>());
        sums.max().unwrap()
    };
    let least = (1..7)
        .flat_map(|one| (one + 1..8).map(move |two| largest(&[one, two])))
        .min();
    let found = stages(&bytes, 3).unwrap();
    assert_eq!(
        found.iter().map(|stage| stage.iter().sum::<u64>()).max(),
        least
    );
}

#[test]
fn there_is_no_cut_where_none_is_allowed() {
    let ranges = split::balanced(&[9, 9, 1, 1], 2, &[false, false, false, true]);
    assert_eq!(ranges, Some(vec![0..3, 3..4]));
    assert_eq!(split::balanced(&[1, 1], 2, &[false, false]), None);
}

fn model() -> Result<Sequential> {
    let factory = Factory::default().on_meta();
    let pair = || -> Result<Sequential> {
        Ok(Sequential::new()
            .with(Linear::new(4, 4, &factory)?)
            .with(Activation::new(ActivationFunction::Relu)))
    };
    Ok(Sequential::new().with(pair()?).with(pair()?).with(pair()?))
}

fn steps(names: &[&str]) -> Vec<PipelineStep> {
    names.iter().map(|name| PipelineStep::new(*name)).collect()
}

fn cut(names: &[&str], stages: usize, options: &PipelineOptions) -> Result<Vec<usize>> {
    let ranges = split::cut(&model()?, &steps(names), stages, options)?;
    Ok(ranges.into_iter().map(|range| range.start).collect())
}

const WHOLE: [&str; 3] = ["0", "1", "2"];
const PARTS: [&str; 6] = ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"];

#[test]
fn a_cut_lies_before_the_step_or_module_that_is_named() -> Result<()> {
    let before = |names: &[&str]| PipelineOptions::default().split_before(names.to_vec());
    assert_eq!(cut(&WHOLE, 3, &PipelineOptions::default())?, [0, 1, 2]);
    assert_eq!(cut(&WHOLE, 2, &before(&["2"]))?, [0, 2]);
    assert_eq!(cut(&PARTS, 3, &before(&["1", "2.1"]))?, [0, 2, 5]);
    for (stages, names, words) in [
        (2, &["3"][..], "has no step `3`"),
        (2, &["0"], "each after the first step"),
        (3, &["2", "1"], "in the order of the steps"),
        (3, &["1"], "2 split points for 3 processes"),
    ] {
        let error = cut(&PARTS, stages, &before(names)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}

#[test]
fn a_class_that_is_not_to_be_cut_stays_whole() -> Result<()> {
    let options = PipelineOptions::default().no_split("Linear");
    assert_eq!(cut(&PARTS, 3, &options)?.len(), 3);
    // The model itself is a `Sequential` too.
    let error = cut(
        &PARTS,
        2,
        &PipelineOptions::default().no_split("Sequential"),
    )
    .unwrap_err();
    assert!(error.to_string().contains("0 places to cut"), "{error}");
    let error = cut(&PARTS, 2, &PipelineOptions::default().no_split("Linaer")).unwrap_err();
    assert!(
        error.to_string().contains("did you mean `Linear`?"),
        "{error}"
    );
    let error = cut(&WHOLE[..2], 2, &PipelineOptions::default()).unwrap_err();
    assert!(error.to_string().contains("`2.0.weight`"), "{error}");
    let error = cut(&WHOLE, 4, &PipelineOptions::default()).unwrap_err();
    assert!(error.to_string().contains("cut into 4 stages"), "{error}");
    Ok(())
}

type Batch = (Tensor, Option<Tensor>, Tensor, Vec<String>, i64);

fn rows(rows: i64) -> Result<Parcel> {
    let values = Tensor::f_arange(rows * 2, (Kind::Int64, Device::Cpu))?.f_view([rows, 2])?;
    let names = (0..rows).map(|row| row.to_string()).collect();
    let positions = Tensor::f_arange(2, (Kind::Int64, Device::Cpu))?.f_view([1, 2])?;
    let batch: Batch = (values, Some(positions), Tensor::from(0.5), names, 7);
    let mut parcel = Parcel::default();
    batch.pack(&mut parcel)?;
    Ok(parcel)
}

#[test]
fn parts_differ_by_a_row_at_most_and_what_has_one_row_goes_with_all() -> Result<()> {
    for (count, parts, expected) in [
        (5, 2, &[3, 2][..]),
        (7, 3, &[3, 2, 2]),
        (2, 4, &[1, 1]),
        (1, 2, &[1]),
        (0, 2, &[0]),
    ] {
        let mut sizes = Vec::new();
        let mut values = Vec::new();
        for mut chunk in chunks::cut(rows(count)?, parts)? {
            let (own, positions, scalar, names, plain) = Batch::unpack(&mut chunk)?;
            sizes.push(own.size()[0]);
            assert_eq!(positions.unwrap().size(), [1, 2]);
            assert_eq!(
                (scalar.dim(), names.len() as i64, plain),
                (0, own.size()[0], 7)
            );
            values.push(own);
        }
        assert_eq!(sizes, expected);
        let whole = Batch::unpack(&mut rows(count)?)?.0;
        assert_eq!(chunks::join(values)?, whole);
    }
    Ok(())
}

#[test]
fn what_cannot_be_cut_or_joined_is_told() -> Result<()> {
    let mut odd = Parcel::default();
    (
        Tensor::zeros([4], (Kind::Float, Device::Cpu)),
        Tensor::zeros([3], (Kind::Float, Device::Cpu)),
    )
        .pack(&mut odd)?;
    let error = chunks::cut(odd, 2).unwrap_err().to_string();
    assert!(error.contains("4 rows in every tensor"), "{error}");
    let error = chunks::cut(Parcel::default(), 2).unwrap_err().to_string();
    assert!(error.contains("a tensor that has rows"), "{error}");
    let error = chunks::join(vec![Tensor::from(1.0), Tensor::from(2.0)]).unwrap_err();
    assert!(error.to_string().contains("such as a loss"), "{error}");
    assert_eq!(chunks::join(vec![Tensor::from(1.0)])?.dim(), 0);
    Ok(())
}
