//! BERT with a head that classifies whole sequences.

use std::path::Path;

use accelerate::Result;
use accelerate::nn::{Dropout, Factory, Forward, Init, Linear, Module, ModuleState, init};
use accelerate::tree::Tree;
use tch::{Kind, Reduction, Tensor};

use super::{BertConfig, BertModel, BertModelInput, ProblemType, checkpoint};

/// What [`BertForSequenceClassification`] takes.
///
/// # Shapes
/// Each tensor is `[batch, tokens]`; labels are `[batch]`, or `[batch, num_labels]` where there
/// can be several for each sequence.
#[derive(Debug, Tree)]
pub struct BertInput {
    /// The token ids, int64 or int32.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding; absent where there is none.
    pub attention_mask: Option<Tensor>,
    /// The segment of each token; all in the first where absent.
    pub token_type_ids: Option<Tensor>,
    /// What the sequences are; with them there is a loss.
    pub labels: Option<Tensor>,
}

/// What [`BertForSequenceClassification`] gives.
#[derive(Debug, Tree)]
pub struct SequenceClassifierOutput {
    /// The mean loss over the batch, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each label, `[batch, num_labels]`.
    pub logits: Tensor,
}

/// BERT whose pooled output goes through dropout and a linear layer.
#[derive(Debug, Clone, Module)]
pub struct BertForSequenceClassification {
    bert: BertModel,
    dropout: Dropout,
    classifier: Linear,
    #[module(skip)]
    num_labels: i64,
    #[module(skip)]
    problem_type: Option<ProblemType>,
    state: ModuleState,
}

impl BertForSequenceClassification {
    /// A model with new weights: normal with the configuration's standard deviation.
    ///
    /// Draws the same numbers as the original for the same seed.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the configuration is refused, else if memory is
    /// short.
    pub fn new(config: &BertConfig, factory: &Factory) -> crate::Result<Self> {
        let bert = BertModel::new(config, factory)?;
        let classifier = checkpoint::fresh(config, factory, |factory| Self::head(config, factory))?;
        Ok(Self::assemble(config, bert, classifier)?)
    }

    /// A model with the configuration and the weights of a folder, for `num_labels` labels, in
    /// evaluation mode.
    ///
    /// The weights may be those of a bare model. Then the head is new, and a warning names its
    /// parameters; nothing else may be missing.
    ///
    /// # Errors
    /// [`Error::Read`](crate::Error::Read), [`Error::ConfigFormat`](crate::Error::ConfigFormat) or
    /// [`Error::Config`](crate::Error::Config) for the configuration,
    /// [`accelerate::Error::Formats`] for a missing or damaged weights file, and
    /// [`accelerate::Error::WeightsDoNotFit`] naming everything that does not fit.
    ///
    /// # Source
    /// `BertForSequenceClassification.from_pretrained`. Differs: names that are missing outside the
    /// head are an error, not new weights.
    pub fn from_folder(
        folder: impl AsRef<Path>,
        num_labels: usize,
        factory: &Factory,
    ) -> crate::Result<Self> {
        let config = BertConfig::from_folder(&folder)?.with_num_labels(num_labels);
        Self::with_weights_of(folder, &config, factory)
    }

    /// As [`from_folder`](Self::from_folder), with a configuration of the caller, such as one
    /// without dropout.
    ///
    /// # Errors
    /// As for [`from_folder`](Self::from_folder).
    pub fn with_weights_of(
        folder: impl AsRef<Path>,
        config: &BertConfig,
        factory: &Factory,
    ) -> crate::Result<Self> {
        config.check()?;
        let empty = factory.with_init(Init::Skip);
        let bert = BertModel::build(config, &empty)?;
        let model = Self::assemble(config, bert, Self::head(config, &empty)?)?;
        let names = checkpoint::Names::inside("bert").with_optional("classifier");
        let report = checkpoint::load(&model, folder.as_ref(), &names)?;
        model.initialize(&report.newly_initialized, config.initializer_range)?;
        model.train(false);
        Ok(model)
    }

    /// How many labels there are.
    pub fn num_labels(&self) -> i64 {
        self.num_labels
    }

    fn head(config: &BertConfig, factory: &Factory) -> Result<Linear> {
        Linear::new(config.hidden_size, config.num_labels(), factory)
    }

    fn assemble(config: &BertConfig, bert: BertModel, classifier: Linear) -> Result<Self> {
        Ok(Self {
            bert,
            dropout: Dropout::new(config.classifier_dropout())?,
            classifier,
            num_labels: config.num_labels(),
            problem_type: config.problem_type,
            state: ModuleState::default(),
        })
    }

    /// Gives first values to the parameters of the head that no file has.
    fn initialize(&self, names: &[String], std: f64) -> Result<()> {
        for (name, parameter) in self.named_parameters() {
            match name.as_str() {
                _ if !names.contains(&name) => {}
                "classifier.bias" => init::constant(parameter.tensor(), 0.0)?,
                _ => init::normal(parameter.tensor(), 0.0, std)?,
            }
        }
        Ok(())
    }

    /// The problem, from the configuration or from the labels.
    fn problem(&self, labels: &Tensor) -> Result<ProblemType> {
        let whole_numbers = matches!(labels.f_kind()?, Kind::Int64 | Kind::Int);
        Ok(self.problem_type.unwrap_or(match self.num_labels {
            1 => ProblemType::Regression,
            _ if whole_numbers => ProblemType::SingleLabelClassification,
            _ => ProblemType::MultiLabelClassification,
        }))
    }

    fn loss(&self, logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
        Ok(match self.problem(labels)? {
            ProblemType::Regression if self.num_labels == 1 => logits
                .f_squeeze()?
                .f_mse_loss(&labels.f_squeeze()?, Reduction::Mean)?,
            ProblemType::Regression => logits.f_mse_loss(labels, Reduction::Mean)?,
            ProblemType::SingleLabelClassification => {
                let labels = labels.f_view([-1])?.f_to_kind(Kind::Int64)?;
                let logits = logits.f_view([-1, self.num_labels])?;
                logits.f_cross_entropy_loss(&labels, None::<Tensor>, Reduction::Mean, -100, 0.0)?
            }
            ProblemType::MultiLabelClassification => logits.f_binary_cross_entropy_with_logits(
                labels,
                None::<Tensor>,
                None::<Tensor>,
                Reduction::Mean,
            )?,
        })
    }
}

impl Forward for BertForSequenceClassification {
    type Input = BertInput;
    type Output = SequenceClassifierOutput;

    fn forward(&self, input: BertInput) -> Result<SequenceClassifierOutput> {
        let BertInput {
            input_ids,
            attention_mask,
            token_type_ids,
            labels,
        } = input;
        let encoded = self.bert.call(BertModelInput {
            input_ids,
            attention_mask,
            token_type_ids,
        })?;
        let logits = self
            .classifier
            .call(self.dropout.call(encoded.pooler_output)?)?;
        let loss = labels
            .map(|labels| self.loss(&logits, &labels))
            .transpose()?;
        Ok(SequenceClassifierOutput { loss, logits })
    }
}
