//! What is known of a run at one moment, as far as the views show it.

use std::time::Duration;

use accelerate_tracking::run::TimeSplit;

/// A run at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) state: State,
    /// Since the run began, up to its end.
    pub(crate) elapsed: Option<Duration>,
    pub(crate) step: Option<i64>,
    /// How many steps there will be, where the run says.
    pub(crate) total_steps: Option<i64>,
    /// Those of the page that was asked for.
    pub(crate) curves: Vec<CurveView>,
    /// All metrics with their last values.
    pub(crate) latest: Vec<(String, f64)>,
    pub(crate) ranks: Vec<RankView>,
    /// Warnings and errors, the newest last.
    pub(crate) notices: Vec<String>,
    /// What is wrong with the folder, if something is.
    pub(crate) problem: Option<String>,
}

/// Where a run stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no run yet.
    #[default]
    Awaited,
    Running,
    Finished,
    /// With what the run said of it.
    Failed(String),
    /// Nobody writes it any more, and it was not ended.
    Crashed,
    /// Nothing tells whether it goes on.
    Unknown,
}

impl State {
    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed(_) | Self::Crashed)
    }

    /// In few words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Awaited => "waiting for a run".to_owned(),
            Self::Running => "running".to_owned(),
            Self::Finished => "finished".to_owned(),
            Self::Failed(why) if why.is_empty() => "failed".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
            Self::Crashed => "ended without a word".to_owned(),
            Self::Unknown => "perhaps running".to_owned(),
        }
    }
}

/// The points of a metric, thinned out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CurveView {
    pub(crate) name: String,
    /// Step and value, by step; only finite ones.
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) last: Option<f64>,
}

/// The last steps of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RankView {
    pub(crate) rank: usize,
    pub(crate) step: i64,
    pub(crate) split: Split,
    pub(crate) samples_per_second: Option<f64>,
    pub(crate) tokens_per_second: Option<f64>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) gradient_norm: Option<f64>,
    pub(crate) loss_scale: Option<f64>,
    /// Whether the others wait for it.
    pub(crate) is_straggler: bool,
    pub(crate) warning: Option<String>,
}

/// Where the time of a step goes, as it is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Split(pub(crate) TimeSplit);

impl Split {
    /// The time of the whole step.
    pub(crate) fn whole(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }

    /// The parts with their names, in the order in which they are drawn.
    pub(crate) fn parts(&self) -> [(&'static str, f64); 4] {
        let Self(split) = self;
        [
            ("data wait", split.data_wait),
            ("compute", split.compute),
            ("communication", split.communication),
            ("other", split.other),
        ]
    }

    /// How many of `width` characters each part gets: all of them together, to the nearest
    /// character.
    pub(crate) fn shares(&self, width: usize) -> [usize; 4] {
        let whole = self.whole();
        let mut before = 0.0;
        let mut drawn = 0;
        self.parts().map(|(_, seconds)| {
            before += seconds;
            let end = match whole > 0.0 {
                true => rounded(before / whole, width),
                false => 0,
            };
            let share = end.saturating_sub(drawn);
            drawn = drawn.max(end);
            share
        })
    }
}

/// This share of `width`, to the nearest character.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of the width of a terminal"
)]
fn rounded(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * width as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_the_width_and_follow_the_parts() {
        let split = Split(TimeSplit {
            data_wait: 1.0,
            compute: 6.0,
            communication: 2.0,
            other: 1.0,
        });
        assert_eq!(split.shares(20), [2, 12, 4, 2]);
        for width in 0..40 {
            assert_eq!(split.shares(width).iter().sum::<usize>(), width, "{width}");
        }
        assert_eq!(Split::default().shares(20), [0; 4]);
    }
}
