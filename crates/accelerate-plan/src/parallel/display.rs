//! A plan for a person.

use std::fmt;

use super::{
    Accumulation, Cast, Clipping, Construction, FloatType, Ignored, InputCast, LossScaling,
    ParallelPlan, Part, Quantised, Recompute, Sharded, Storage, WeightSource,
};
use crate::settings::Origin;

/// One line for each part, names and values under each other, and where a value came from if somebody
/// chose it. Parts that are as they always are have no line.
impl fmt::Display for ParallelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = lines.iter().map(|(part, _)| part.name().len()).max();
        let width = width.unwrap_or_default();
        for (index, (part, text)) in lines.iter().enumerate() {
            let line_break = if index > 0 { "\n" } else { "" };
            write!(f, "{line_break}{:width$}  {text}", part.name())?;
            let origins = self.origins.of(*part);
            if !origins.is_empty() {
                let origins: Vec<_> = origins.iter().map(Origin::to_string).collect();
                write!(f, "  ({})", origins.join(", "))?;
            }
        }
        self.notes
            .iter()
            .try_for_each(|note| write!(f, "\n{:width$}  {note}", "note"))
    }
}

impl ParallelPlan {
    fn lines(&self) -> Vec<(Part, String)> {
        let gathers = self.sharded == Sharded::Parameters;
        let offload = &self.offload;
        let is_away = |storage: &Storage| *storage != Storage::Device;
        let lines = [
            (true, Part::Dialect, self.dialect.to_string()),
            (true, Part::Mesh, self.mesh.to_string()),
            (true, Part::Sharded, self.sharded.to_string()),
            (gathers, Part::AfterForward, self.after_forward()),
            (
                self.sharded > Sharded::Nothing,
                Part::Wrap,
                self.units(),
            ),
            (
                self.ignored != Ignored::Nothing,
                Part::Ignored,
                self.ignored.to_string(),
            ),
            (gathers, Part::Prefetch, self.prefetch.to_string()),
            (true, Part::Precision, self.precision()),
            (
                self.weights != Quantised::No,
                Part::WeightWire,
                self.weights.to_string(),
            ),
            (
                self.reduction.gradients != Quantised::No,
                Part::GradientWire,
                self.reduction.gradients.to_string(),
            ),
            (
                is_away(&offload.parameters),
                Part::OffloadParameters,
                offload.parameters.to_string(),
            ),
            (
                is_away(&offload.gradients),
                Part::OffloadGradients,
                offload.gradients.to_string(),
            ),
            (
                is_away(&offload.optimizer_state),
                Part::OffloadOptimizer,
                self.optimizer_storage(),
            ),
            (
                self.recompute != Recompute::Nothing,
                Part::Recompute,
                self.recompute.to_string(),
            ),
            (true, Part::Loading, self.loading()),
            (
                !self.use_orig_params,
                Part::OrigParams,
                "as one flat parameter for each unit".to_owned(),
            ),
            (true, Part::StateDict, self.state_dict()),
            (
                self.clipping != Clipping::ByProgram,
                Part::Clipping,
                self.clipping.to_string(),
            ),
            (
                self.accumulation != Accumulation::ByProgram,
                Part::Accumulation,
                self.accumulation.to_string(),
            ),
        ];
        let shown = lines.into_iter().filter(|(is_shown, ..)| *is_shown);
        shown.map(|(_, part, text)| (part, text)).collect()
    }

    fn after_forward(&self) -> String {
        let mut text = self.after_forward.to_string();
        if self.keep_up_to > 0 {
            let most = self.keep_up_to;
            text.push_str(&format!("; parameters up to {most} elements stay whole"));
        }
        text
    }

    fn units(&self) -> String {
        let mut text = self.wrap.to_string();
        if !self.leaf_classes.is_empty() {
            let classes = self.leaf_classes.join(", ");
            text.push_str(&format!("; gathered with all inside: {classes}"));
        }
        text
    }

    fn precision(&self) -> String {
        let precision = &self.precision;
        let mut parts: Vec<String> = [
            ("parameters", precision.parameters),
            ("reduction", precision.reduction),
            ("buffers", precision.buffers),
            ("outputs", precision.outputs),
            ("autocast", precision.autocast),
        ]
        .into_iter()
        .filter(|(_, cast)| *cast != Cast::AsIs)
        .map(|(what, cast)| format!("{what} {cast}"))
        .collect();
        if precision.is_master_float32 {
            parts.push(format!("kept in {}", FloatType::Float32));
        }
        match precision.inputs {
            InputCast::Nobody => {}
            InputCast::Root => parts.push("inputs cast".to_owned()),
            InputCast::EveryUnit => parts.push("inputs of each unit cast".to_owned()),
        }
        match precision.loss_scaling {
            LossScaling::Off => {}
            LossScaling::Accelerator => parts.push("loss scaled".to_owned()),
            LossScaling::Fixed(scale) => parts.push(format!("loss scaled by {scale}")),
            LossScaling::Dynamic(rule) => parts.push(format!(
                "loss scaled from 2^{} on",
                rule.initial_scale_power
            )),
        }
        match parts.is_empty() {
            true => "everything as it was loaded".to_owned(),
            false => parts.join(", "),
        }
    }

    fn optimizer_storage(&self) -> String {
        let storage = &self.offload.optimizer_state;
        match self.offload.optimizer_ratio {
            ratio if ratio < 1.0 => format!("{ratio} of it {storage}"),
            _ => storage.to_string(),
        }
    }

    fn loading(&self) -> String {
        let loading = &self.loading;
        let reads = match loading.weights {
            WeightSource::EveryRank => "each rank reads weights",
            WeightSource::RankZero => "rank 0 reads weights and sends them",
        };
        let sends = match (loading.weights, loading.sync_module_states) {
            (WeightSource::EveryRank, true) => ", rank 0 sends its values",
            _ => "",
        };
        let cuts = match loading.construction {
            Construction::Whole => "",
            Construction::InShards => ", cut while it is built",
        };
        format!("{reads}{sends}{cuts}")
    }

    fn state_dict(&self) -> String {
        let state = &self.state_dict;
        let mut text = match state.layout {
            super::Layout::DeepSpeed => "a folder as DeepSpeed writes it".to_owned(),
            super::Layout::Fsdp | super::Layout::Plain => state.kind.to_string(),
        };
        if state.gathers_16bit_model {
            text.push_str(", and a whole 16-bit model on request");
        }
        text
    }
}
