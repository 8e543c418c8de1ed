//! The numbers of all rounds as a table.

use crate::big_models::run::Measured;

use super::floor::Floor;
use crate::bench::measurement::median;
use crate::bench::report::{machine, ratio_cells};

/// What one round measured; of pairs ours comes first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Round {
    pub(super) floor: Floor,
    pub(super) plain: (Measured, Measured),
    pub(super) cold: Measured,
    pub(super) half: (Measured, Measured),
    pub(super) without_prefetch: Measured,
    pub(super) limited: (Measured, Measured),
    pub(super) limited_without_prefetch: Measured,
    /// Rows per second.
    pub(super) one_rank: f64,
    pub(super) two_ranks: f64,
}

/// One line: ours, what it stands beside, and how much of that it may be.
struct Row {
    name: &'static str,
    of: fn(&Round) -> (f64, f64),
    goal: Option<f64>,
}

const MIB: f64 = 1_048_576.0;

fn seconds_a_token(run: &Measured) -> f64 {
    1.0 / run.tokens_per_second
}

const ROWS: [Row; 12] = [
    Row {
        name: "all in memory: start of the program to its end, one token (s)",
        of: |round| (round.plain.0.wall_seconds, round.plain.1.wall_seconds),
        goal: Some(0.2),
    },
    Row {
        name: "all in memory: peak private memory (MiB)",
        of: |round| {
            (
                round.plain.0.peak_private_bytes / MIB,
                round.plain.1.peak_private_bytes / MIB,
            )
        },
        goal: Some(0.15),
    },
    Row {
        name: "the same from a cold cache, beside reading the files (s)",
        of: |round| (round.cold.wall_seconds, round.floor.cold_start()),
        goal: None,
    },
    Row {
        name: "half on disk: loading (s)",
        of: |round| (round.half.0.load_seconds, round.half.1.load_seconds),
        goal: Some(0.05),
    },
    Row {
        name: "half on disk, all cached: a token (s)",
        of: |round| {
            (
                seconds_a_token(&round.half.0),
                seconds_a_token(&round.half.1),
            )
        },
        goal: Some(1.0 / 1.1),
    },
    Row {
        name: "the same, beside ours without prefetch (s)",
        of: |round| {
            (
                seconds_a_token(&round.half.0),
                seconds_a_token(&round.without_prefetch),
            )
        },
        goal: None,
    },
    Row {
        name: "the same, beside all bytes over the bandwidth of memory (s)",
        of: |round| (seconds_a_token(&round.half.0), round.floor.warm_token()),
        goal: None,
    },
    Row {
        name: "half on disk, without room in the cache: a token (s)",
        of: |round| {
            (
                seconds_a_token(&round.limited.0),
                seconds_a_token(&round.limited.1),
            )
        },
        goal: Some(1.0 / 1.5),
    },
    Row {
        name: "the same, beside ours without prefetch (s)",
        of: |round| {
            (
                seconds_a_token(&round.limited.0),
                seconds_a_token(&round.limited_without_prefetch),
            )
        },
        goal: None,
    },
    Row {
        name: "the same, beside the bytes on disk over its bandwidth (s)",
        of: |round| {
            (
                seconds_a_token(&round.limited.0),
                round.floor.limited_token(),
            )
        },
        goal: None,
    },
    Row {
        name: "half on disk, limited: peak private memory (MiB)",
        of: |round| {
            (
                round.limited.0.peak_private_bytes / MIB,
                round.limited.1.peak_private_bytes / MIB,
            )
        },
        goal: None,
    },
    Row {
        name: "in stages on 2 processes, beside 1 of as many threads: a row of 128 tokens (s)",
        of: |round| (1.0 / round.two_ranks, 1.0 / round.one_rank),
        goal: Some(1.0 / 1.6),
    },
];

/// The table in Markdown, and behind it whether both sides wrote the same.
pub(super) fn table(rounds: &[Round]) -> String {
    let mut text = format!(
        "{}; a Llama of 777.9M parameters in float32; 2 threads, in stages 1 thread each; rounds: {}\n\n",
        machine(),
        rounds.len()
    );
    text += "| measure | ours | beside | ratio | range | goal | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for row in &ROWS {
        let (ours, beside): (Vec<f64>, Vec<f64>) = rounds.iter().map(row.of).unzip();
        text += &format!(
            "| {} | {:.3} | {:.3} {}\n",
            row.name,
            median(&ours),
            median(&beside),
            ratio_cells(&ours, &beside, row.goal)
        );
    }
    let all_of = |of: fn(&Floor) -> f64| {
        let all: Vec<f64> = rounds.iter().map(|round| of(&round.floor)).collect();
        median(&all) / 1e9
    };
    text + &format!(
        "\nThe disk reads {:.2} GB/s, two threads read {:.2} GB/s of memory. Tokens of both sides: {}.\n",
        all_of(|floor| floor.disk),
        all_of(|floor| floor.memory),
        if rounds.iter().all(wrote_the_same) {
            "the same"
        } else {
            "not the same"
        }
    )
}

fn wrote_the_same(round: &Round) -> bool {
    let pairs = [&round.plain, &round.half, &round.limited];
    pairs
        .iter()
        .all(|(ours, original)| ours.tokens == original.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wall_seconds: f64, tokens_per_second: f64) -> Measured {
        Measured {
            wall_seconds,
            load_seconds: wall_seconds / 2.0,
            tokens_per_second,
            peak_private_bytes: 100.0 * wall_seconds * MIB,
            tokens: vec![1],
            ..Measured::default()
        }
    }

    #[test]
    fn every_number_has_its_line() {
        let mut round = Round {
            floor: Floor {
                disk: 2e9,
                memory: 8e9,
                bytes: 4e9,
                bytes_on_disk: 2e9,
            },
            plain: (run(1.0, 1.0), run(10.0, 1.0)),
            cold: run(3.0, 1.0),
            half: (run(1.0, 4.0), run(40.0, 2.0)),
            without_prefetch: run(1.0, 2.0),
            limited: (run(1.0, 0.5), run(20.0, 0.25)),
            limited_without_prefetch: run(1.0, 0.4),
            one_rank: 2.0,
            two_ranks: 3.0,
        };
        let text = table(&[round.clone()]);
        for line in [
            "one token (s) | 1.000 | 10.000 | 0.100 | 0.100 to 0.100 | 0.200 | yes |",
            "| all in memory: peak private memory (MiB) | 100.000 | 1000.000 | 0.100 |",
            "beside reading the files (s) | 3.000 | 2.000 | 1.500 |",
            "loading (s) | 0.500 | 20.000 | 0.025 | 0.025 to 0.025 | 0.050 | yes |",
            "all cached: a token (s) | 0.250 | 0.500 | 0.500 |",
            "bandwidth of memory (s) | 0.250 | 0.500 | 0.500 |",
            "over its bandwidth (s) | 2.000 | 1.000 | 2.000 |",
            "a row of 128 tokens (s) | 0.333 | 0.500 | 0.667 | 0.667 to 0.667 | 0.625 | no |",
            "The disk reads 2.00 GB/s, two threads read 8.00 GB/s of memory. Tokens of both sides: the same.",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        round.half.1.tokens = vec![2];
        assert!(table(&[round]).contains("not the same"));
    }
}
