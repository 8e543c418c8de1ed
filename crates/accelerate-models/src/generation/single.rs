//! Greedy search and sampling: one token at a time, never taken back.

use accelerate::Result;
use tch::{Kind, Tensor};

use super::GenerationConfig;
use super::generate::{Generated, Run};
use super::session::Started;

/// Adds tokens until every sequence has ended or is as long as can be.
///
/// # Source
/// `GenerationMixin._sample` of `transformers`.
pub(super) fn search(
    started: Started<'_>,
    config: &GenerationConfig,
    run: &mut Run<'_>,
) -> Result<Generated> {
    let Started {
        mut session,
        sequences: prompt,
        mut logits,
        longest,
    } = started;
    let (rows, prompt_tokens) = prompt.size2()?;
    let device = prompt.device();
    // Room for all tokens at once: a step writes one column.
    let all = Tensor::f_zeros([rows, longest], (Kind::Int64, device))?;
    all.f_narrow(1, 0, prompt_tokens)?.f_copy_(&prompt)?;
    let mut running = Tensor::f_ones([rows], (Kind::Bool, device))?;
    let mut tokens = prompt_tokens;
    loop {
        let scores = run.processed(&all.f_narrow(1, 0, tokens)?, logits)?;
        let mut next = chosen(&scores, config.do_sample)?;
        if let Some(filler) = config.filler().filter(|_| run.has_ends()) {
            next = next.f_masked_fill(&running.f_logical_not()?, filler)?;
        }
        all.f_select(1, tokens)?.f_copy_(&next)?;
        tokens += 1;
        if let Some(streamer) = &mut run.streamer {
            streamer.token(next.f_int64_value(&[0])?)?;
        }
        let mut finished = tokens == longest;
        if !finished && run.may_end_early() {
            let ended = run.ended(&all.f_narrow(1, 0, tokens)?)?;
            running = running.f_logical_and(&ended.f_logical_not()?)?;
            finished = running.f_any()?.f_int64_value(&[])? == 0;
        }
        let newest = next.f_unsqueeze(-1)?;
        if finished {
            if let Some(streamer) = &mut run.streamer {
                streamer.end()?;
            }
            run.synced.wait(&session, &newest)?;
            break;
        }
        run.synced.go_on()?;
        logits = session.step(&newest)?;
    }
    Ok(Generated {
        sequences: all.f_narrow(1, 0, tokens)?.f_contiguous()?,
        scores: None,
        prompt_tokens,
    })
}

fn chosen(scores: &Tensor, sample: bool) -> Result<Tensor> {
    if !sample {
        return Ok(scores.f_argmax(-1, false)?);
    }
    let likely = scores.f_softmax(-1, None)?;
    Ok(likely.f_multinomial(1, false)?.f_squeeze_dim(1)?)
}
