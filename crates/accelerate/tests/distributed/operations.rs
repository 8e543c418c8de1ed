//! Operations over nested values, on real ranks and against the original.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::{BTreeMap, HashMap};

use accelerate::collectives::{self, Reduction, gather_object};
use accelerate::data::DataLoader;
use accelerate::tree::{Tree, concatenate};
use accelerate::{Accelerator, Error, PartialState, Result};
use accelerate_testkit::{Rank, ranks};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

const SOME: [usize; 3] = [1, 2, 3];

fn own(rank: Rank) -> i64 {
    rank.index() as i64
}

fn values(tensor: &Tensor) -> Vec<i64> {
    Vec::try_from(tensor.flatten(0, -1).to_kind(Kind::Int64)).unwrap()
}

#[derive(Tree, Debug)]
struct Batch {
    ids: Tensor,
    labels: Option<Tensor>,
    extra: HashMap<String, Vec<Tensor>>,
    #[tree(skip)]
    name: String,
}

#[derive(Tree)]
enum Output {
    Loss(Tensor),
    Pair { first: Tensor, second: Box<Output> },
}

fn batch(rank: i64) -> Batch {
    let one = |value: i64| vec![Tensor::from_slice(&[rank * 10 + value])];
    Batch {
        ids: Tensor::from_slice(&[rank, rank + 100]),
        labels: Some(Tensor::from(rank)),
        // A new map has a new order on every rank.
        extra: (0..8).map(|key| (key.to_string(), one(key))).collect(),
        name: format!("of rank {rank}"),
    }
}

#[test]
fn containers_keep_their_types() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let all: Vec<i64> = (0..rank.world() as i64).collect();
        let gathered: Batch = accelerator.gather(batch(own(rank)))?;
        assert_eq!(
            values(&gathered.ids),
            all.iter().flat_map(|r| [*r, r + 100]).collect::<Vec<_>>()
        );
        assert_eq!(values(gathered.labels.as_ref().unwrap()), all);
        for key in 0..8 {
            let expected: Vec<i64> = all.iter().map(|r| r * 10 + key).collect();
            assert_eq!(values(&gathered.extra[&key.to_string()][0]), expected);
        }
        assert_eq!(gathered.name, format!("of rank {}", rank.index()));
        let output = Output::Pair {
            first: Tensor::from(own(rank)),
            second: Box::new(Output::Loss(Tensor::from(1i64))),
        };
        let summed: Output = accelerator.reduce(output, Reduction::Sum)?;
        let Output::Pair { first, second } = summed else {
            panic!("another variant");
        };
        assert_eq!(values(&first), [all.iter().sum::<i64>()]);
        assert!(matches!(*second, Output::Loss(n) if values(&n) == [rank.world() as i64]));
        Ok(())
    });
}

#[test]
fn kinds_that_the_backend_does_not_know_travel_too() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let world = rank.world() as i64;
        let short = Tensor::from_slice(&[own(rank) as i16, -5]);
        let complex = Tensor::complex(
            &Tensor::from_slice(&[own(rank) as f32]),
            &Tensor::from_slice(&[1f32]),
        );
        let (all_short, all_complex): (Tensor, Tensor) = accelerator.gather((&short, &complex))?;
        assert_eq!(all_short.kind(), Kind::Int16);
        let expected: Vec<i64> = (0..world).flat_map(|r| [r, -5]).collect();
        assert_eq!(values(&all_short), expected);
        assert_eq!(values(&all_complex.real()), (0..world).collect::<Vec<_>>());
        assert_eq!(values(&all_complex.imag()), vec![1; rank.world()]);
        // A conjugate is a view with a mark; the numbers have to be made before they are sent.
        let conjugate: Tensor = accelerator.gather(complex.conj())?;
        assert_eq!(values(&conjugate.imag()), vec![-1; rank.world()]);

        let largest: Tensor = accelerator.reduce(&short, Reduction::Max)?;
        assert_eq!(
            (largest.kind(), values(&largest)),
            (Kind::Int16, vec![world - 1, -5])
        );
        let sum: Tensor = accelerator.reduce(&complex, Reduction::Mean)?;
        assert_eq!(sum.real().double_value(&[0]), (world - 1) as f64 / 2.0);
        assert_eq!(sum.imag().double_value(&[0]), 1.0);
        let flag = Tensor::from(own(rank) == world - 1);
        let any: Tensor = accelerator.reduce(&flag, Reduction::Max)?;
        assert_eq!((any.kind(), values(&any)), (Kind::Bool, vec![1]));
        let sent: Tensor = accelerator.broadcast(&short, 1)?;
        assert_eq!(values(&sent), [1, -5]);
        Ok(())
    });
}

#[test]
fn reductions_that_make_no_sense_fail_on_one_process_too() {
    ranks(&[1, 2], |_| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let counts = Tensor::from_slice(&[1i64, 2]);
        let error = accelerator
            .reduce::<Tensor>(&counts, Reduction::Mean)
            .unwrap_err()
            .to_string();
        assert!(error.contains("take the sum and divide it"), "{error}");
        assert!(
            accelerator
                .reduce::<Tensor>(&Tensor::from(true), Reduction::Sum)
                .is_err()
        );
        Ok(())
    });
}

#[test]
fn empty_and_strided_tensors_are_no_special_case() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let empty = Tensor::zeros([0, 3], (Kind::Float, Device::Cpu));
        assert_eq!(accelerator.gather::<Tensor>(&empty)?.size(), [0, 3]);
        assert_eq!(
            accelerator.reduce::<Tensor>(&empty, Reduction::Sum)?.size(),
            [0, 3]
        );
        let base = Tensor::from_slice(&[own(rank); 6]).reshape([2, 3]);
        let strided = base.transpose(0, 1);
        let sent: Tensor = accelerator.broadcast(&strided, 1)?;
        assert_eq!(values(&sent), [1; 6]);
        assert_eq!(values(&base), [1; 6], "the broadcast is in place");
        Ok(())
    });
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Found {
    rank: usize,
    text: Option<String>,
    scores: BTreeMap<String, f64>,
}

fn found(rank: usize) -> Vec<Found> {
    let one = |number: usize| Found {
        rank,
        text: (number > 0).then(|| "ü\"\n".repeat(number * 100)),
        scores: BTreeMap::from([("f1".to_owned(), 0.1 * number as f64 + 0.2)]),
    };
    (0..=rank).map(one).collect()
}

#[test]
fn objects_of_all_ranks_make_one_list() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let expected: Vec<Found> = (0..rank.world()).flat_map(found).collect();
        let all = accelerator.gather_object(found(rank.index()))?;
        assert_eq!(all, expected);
        // Nothing from some ranks, much from another: sent without filling up.
        let last = rank.index() + 1 == rank.world();
        let much = if last {
            vec!["x".repeat(3 << 20)]
        } else {
            vec![]
        };
        let all = accelerator.gather_object(much)?;
        assert_eq!(all.iter().map(String::len).collect::<Vec<_>>(), [3 << 20]);
        assert!(accelerator.gather_object(Vec::<u8>::new())?.is_empty());
        Ok(())
    });
}

#[test]
fn objects_of_one_rank_reach_all() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let last = rank.world() - 1;
        let mut list = found(rank.index());
        accelerator.broadcast_object_list(&mut list, last)?;
        assert_eq!(list, found(last));
        let error = accelerator.broadcast_object_list(&mut list, last + 1);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`from_process` below the number"), "{error}");
        Ok(())
    });
}

/// Something that cannot be written when it is broken.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Fragile(bool);

impl Serialize for Fragile {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            true => Err(serde::ser::Error::custom("it is broken")),
            false => serializer.serialize_newtype_struct("Fragile", &false),
        }
    }
}

#[test]
fn numbers_that_are_not_finite_and_maps_of_any_key_are_objects_too() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let own = BTreeMap::from([((rank.index(), true), [f64::NAN, f64::NEG_INFINITY])]);
        let all = accelerator.gather_object(vec![own])?;
        for (index, map) in all.iter().enumerate() {
            let numbers = map[&(index, true)];
            assert!(numbers[0].is_nan() && numbers[1] == f64::NEG_INFINITY);
        }
        Ok(())
    });
}

#[test]
fn an_object_that_cannot_be_sent_is_an_error_on_every_rank_and_nothing_hangs() {
    ranks(&[1, 3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let object = Fragile(rank.index() == 1);
        let result = accelerator.gather_object(vec![object.clone()]);
        match (rank.world(), rank.index()) {
            (1, _) => assert_eq!(result?, std::slice::from_ref(&object)),
            (_, 1) => assert!(matches!(result, Err(Error::ObjectEncoding { .. }))),
            _ => assert!(matches!(
                result,
                Err(Error::ObjectOfOtherRank { rank: 1, .. })
            )),
        }
        // The ranks are still in step.
        assert_eq!(accelerator.gather_object(vec![1])?, vec![1; rank.world()]);
        if rank.world() > 1 {
            let mut list = vec![object];
            assert!(accelerator.broadcast_object_list(&mut list, 1).is_err());
        }
        accelerator.wait_for_everyone()
    });
}

#[test]
fn tensors_of_different_dimensions_cannot_be_padded() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let shape: &[i64] = if rank.index() == 1 { &[2, 1] } else { &[2] };
        let tensor = Tensor::zeros(shape, (Kind::Float, Device::Cpu));
        let fits = Tensor::from_slice(&vec![1i64; rank.index() + 1]);
        let error = accelerator
            .pad_across_processes::<(Tensor, Tensor)>((&fits, &tensor), 0, 0.0, false)
            .unwrap_err();
        assert!(matches!(&error, Error::DimensionsDiffer { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("rank 1: [0]: [2] Int64, [1]: [2, 1] Float"),
            "{text}"
        );
        // Here the one rank has no such dimension.
        assert!(
            accelerator
                .pad_across_processes::<Tensor>(&tensor, 1, 0.0, false)
                .is_err()
        );
        let padded: Tensor = accelerator.pad_across_processes(&fits, 0, -1.0, true)?;
        assert_eq!(padded.size(), [rank.world() as i64]);
        Ok(())
    });
}

#[test]
fn one_rank_gives_all_a_tensor_whose_shape_they_do_not_know() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let last = rank.index() + 1 == rank.world();
        let tensor = Tensor::arange(6, (Kind::Int16, Device::Cpu)).reshape([2, 3]);
        let copy = accelerator.copy_tensor_to_devices(last.then_some(&tensor))?;
        assert_eq!((copy.kind(), copy.size()), (Kind::Int16, vec![2, 3]));
        assert_eq!(values(&copy), [0, 1, 2, 3, 4, 5]);
        let none = accelerator.copy_tensor_to_devices(None).unwrap_err();
        assert!(none.to_string().contains("on exactly one rank"), "{none}");
        if rank.world() > 1 {
            assert!(accelerator.copy_tensor_to_devices(Some(&tensor)).is_err());
        }
        Ok(())
    });
}

#[test]
fn metrics_see_every_sample_once_as_tensors_and_as_objects() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        for count in [1, 5, 8, 13] {
            for size in 1..=3 {
                let accelerator = Accelerator::new()?;
                let loader = DataLoader::builder((0..count).collect::<Vec<i64>>())
                    .batch_size(size)
                    .build()?;
                let loader = accelerator.prepare(loader)?;
                let (mut tensors, mut objects) = (Vec::new(), Vec::new());
                for ids in &loader {
                    let ids = ids?;
                    let texts = values(&ids).iter().map(ToString::to_string).collect();
                    tensors.extend(values(&accelerator.gather_for_metrics::<Tensor>(&ids)?));
                    objects.extend(accelerator.gather_for_metrics_object::<String>(texts)?);
                }
                let expected: Vec<i64> = (0..count).collect();
                assert_eq!(tensors, expected, "{count} by {size} on {}", rank.world());
                let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
                assert_eq!(objects, expected, "{count} by {size} on {}", rank.world());
            }
        }
        Ok(())
    });
}

/// A tree as the fixture writes it.
#[derive(Tree, Debug)]
enum Node {
    Tensor(Tensor),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Tensor {
        dtype: String,
        shape: Vec<i64>,
        values: Vec<f64>,
    },
    List {
        list: Vec<Recorded>,
    },
    Map {
        map: BTreeMap<String, Recorded>,
    },
}

#[derive(Deserialize)]
struct Case {
    name: String,
    operation: String,
    arguments: Arguments,
    inputs: Vec<Recorded>,
    outputs: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Arguments {
    reduction: Option<String>,
    dim: Option<i64>,
    pad_index: Option<f64>,
    pad_first: Option<bool>,
    from_process: Option<usize>,
}

fn node(recorded: &Recorded) -> Node {
    match recorded {
        Recorded::Tensor {
            dtype,
            shape,
            values,
        } => {
            let kind = match dtype.as_str() {
                "uint8" => Kind::Uint8,
                "int8" => Kind::Int8,
                "int32" => Kind::Int,
                "int64" => Kind::Int64,
                "bool" => Kind::Bool,
                "float16" => Kind::Half,
                "bfloat16" => Kind::BFloat16,
                "float32" => Kind::Float,
                "float64" => Kind::Double,
                other => panic!("no kind for `{other}`"),
            };
            // Every number of the fixture is exact in 64 bits.
            Node::Tensor(
                Tensor::from_slice(values)
                    .to_kind(kind)
                    .reshape(shape.as_slice()),
            )
        }
        Recorded::List { list } => Node::List(list.iter().map(node).collect()),
        Recorded::Map { map } => Node::Map(
            map.iter()
                .map(|(key, value)| (key.clone(), node(value)))
                .collect(),
        ),
    }
}

/// Equal to the last bit, in shapes and kinds and containers too.
fn same(left: &Node, right: &Node) -> bool {
    match (left, right) {
        (Node::Tensor(left), Node::Tensor(right)) => {
            left.kind() == right.kind() && left.size() == right.size() && left.equal(right)
        }
        (Node::List(left), Node::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        (Node::Map(left), Node::Map(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|((lk, l), (rk, r))| lk == rk && same(l, r))
        }
        _ => false,
    }
}

fn apply(state: &PartialState, case: &Case, input: Node) -> Result<Node> {
    let arguments = &case.arguments;
    let dim = arguments.dim.unwrap_or(0);
    match case.operation.as_str() {
        "gather" => collectives::gather(state, input),
        "reduce" => {
            let reduction = match arguments.reduction.as_deref() {
                Some("sum") => Reduction::Sum,
                Some("mean") => Reduction::Mean,
                Some("max") => Reduction::Max,
                other => panic!("no reduction {other:?}"),
            };
            collectives::reduce(state, input, reduction)
        }
        "pad_across_processes" => collectives::pad_across_processes(
            state,
            input,
            dim,
            arguments.pad_index.unwrap_or(0.0),
            arguments.pad_first.unwrap_or(false),
        ),
        "broadcast" => collectives::broadcast(state, input, arguments.from_process.unwrap_or(0)),
        "concatenate" => match input {
            Node::List(trees) => concatenate(trees, dim),
            _ => panic!("trees to join come in a list"),
        },
        other => panic!("no operation `{other}`"),
    }
}

#[test]
fn results_are_the_originals_to_the_last_bit() {
    #[derive(Deserialize)]
    struct Fixture {
        cases: Vec<Case>,
    }
    let text = include_str!("../../../../tests/parity/fixtures/operations.json");
    let fixture: Fixture = serde_json::from_str(text).unwrap();
    assert!(fixture.cases.len() >= 20);
    ranks(&[2], |rank: Rank| -> Result<()> {
        let state = Accelerator::new()?.state().clone();
        for case in &fixture.cases {
            let input = node(&case.inputs[rank.index()]);
            let expected = node(&case.outputs[rank.index()]);
            let found = apply(&state, case, input)?;
            assert!(
                same(&found, &expected),
                "{}: found {found:?}, expected {expected:?}",
                case.name
            );
        }
        // And no rank is ahead of the other.
        let all = gather_object(&state, vec![rank.index()])?;
        assert_eq!(all, [0, 1]);
        Ok(())
    });
}
