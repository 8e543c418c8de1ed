use std::num::NonZeroUsize;

use accelerate_torch::{Backend, ProcessGroup, Work};
use tch::{Device, Tensor};

use crate::tree::{MessageReader, MessageWriter, Parcel, as_bytes};
use crate::{Error, Result};

/// One step on rank 0, for all ranks.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) samples: Parcel,
    pub(super) last: bool,
    /// The number of samples before the step was filled up.
    pub(super) observed: usize,
}

/// One step as a rank gets it.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) own: Parcel,
    pub(super) last: bool,
    pub(super) observed: usize,
}

/// What comes next, as the first byte of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    End,
    Step,
    Failed,
}

/// The way from rank 0 to all ranks, for one loop.
#[derive(Debug)]
pub(super) struct Channel<'a> {
    group: Option<&'a ProcessGroup>,
    /// Where tensors travel.
    device: Device,
    /// Which loop over the loader this is.
    number: u64,
    /// Which step comes next.
    step: u64,
}

impl<'a> Channel<'a> {
    pub(super) fn new(
        group: Option<&'a ProcessGroup>,
        device: Option<Device>,
        number: u64,
        step: u64,
    ) -> Self {
        let on_device = matches!(
            group.map(ProcessGroup::backend),
            Some(Backend::Nccl | Backend::NcclAndGloo)
        );
        Self {
            group,
            device: match device {
                Some(device @ Device::Cuda(_)) if on_device => device,
                _ => Device::Cpu,
            },
            number,
            step,
        }
    }

    /// Deals out a step, or passes an error on to every other rank; called by rank 0.
    pub(super) fn send(
        &mut self,
        step: Result<Option<Step>>,
        ranks: NonZeroUsize,
    ) -> Result<Option<Delivery>> {
        let Some(group) = self.group else {
            return Ok(step?.map(|step| Delivery {
                own: step.samples,
                last: step.last,
                observed: step.observed,
            }));
        };
        let dealt = step.and_then(|step| step.map(|step| self.deal(step, ranks)).transpose());
        let (message, dealt) = match dealt {
            Ok(Some((message, step, parts))) => (message, Ok(Some((step, parts)))),
            Ok(None) => (self.header(Tag::End), Ok(None)),
            Err(error) => {
                let mut message = self.header(Tag::Failed);
                message.block(error.with_causes().as_bytes());
                (message, Err(error))
            }
        };
        group.broadcast_bytes(&message.finish(), 0)?;
        self.step += 1;
        let Some((Step { last, observed, .. }, parts)) = dealt? else {
            return Ok(None);
        };
        let own = scatter(group, parts)?;
        Ok(Some(Delivery {
            own,
            last,
            observed,
        }))
    }

    /// What rank 0 sent; called by every other rank.
    pub(super) fn receive(&mut self) -> Result<Option<Delivery>> {
        let Some(group) = self.group else {
            return Ok(None);
        };
        let message = group.broadcast_bytes(&[], 0)?;
        let mut message = MessageReader::new(&message);
        let tag = message.byte()?;
        let (sent_loop, sent_step) = (message.number()?, message.number()?);
        if (sent_loop, sent_step) != (self.number, self.step) {
            return Err(Error::OutOfStep {
                sent_step,
                sent_loop,
                step: self.step,
                own_loop: self.number,
            });
        }
        self.step += 1;
        if tag == Tag::Failed as u8 {
            let message = message.text()?;
            return Err(Error::ReadElsewhere { rank: 0, message });
        }
        if tag == Tag::End as u8 {
            return Ok(None);
        }
        let last = message.byte()? != 0;
        let observed = message.size()?;
        let outline = outline_of(&mut message, group.rank())?;
        let mut own = MessageReader::new(outline).outline(self.device)?;
        let works = own
            .tensors_mut()
            .map(|room| start(group, room, &[]))
            .collect::<Result<Vec<_>>>()?;
        wait(works)?;
        Ok(Some(Delivery {
            own,
            last,
            observed,
        }))
    }

    fn header(&self, tag: Tag) -> MessageWriter {
        let mut message = MessageWriter::default();
        message.byte(tag as u8);
        message.number(self.number);
        message.number(self.step);
        message
    }

    /// The message of a step, and the part of each rank.
    fn deal(&self, step: Step, ranks: NonZeroUsize) -> Result<(MessageWriter, Step, Vec<Parcel>)> {
        let total = step.samples.samples().unwrap_or(0);
        let share = total / ranks.get();
        let parts = (0..ranks.get())
            .map(|rank| step.samples.cut(share * rank..share * (rank + 1)))
            .collect::<Result<Vec<_>>>()?;
        let outlines = parts
            .iter()
            .map(|part| {
                let mut outline = MessageWriter::default();
                outline.outline(part)?;
                Ok(outline.finish())
            })
            .collect::<Result<Vec<_>>>()?;
        let mut message = self.header(Tag::Step);
        message.byte(u8::from(step.last));
        message.size(step.observed);
        // Only texts and the like make outlines differ.
        let same = outlines.windows(2).all(|pair| pair[0] == pair[1]);
        let sent = if same { &outlines[..1] } else { &outlines };
        message.size(sent.len());
        for outline in sent {
            message.block(outline);
        }
        let parts = parts
            .into_iter()
            .map(|part| self.ready(part))
            .collect::<Result<_>>()?;
        Ok((message, step, parts))
    }

    /// A part whose tensors lie where they can be sent from.
    fn ready(&self, mut part: Parcel) -> Result<Parcel> {
        for tensor in part.tensors_mut() {
            *tensor = tch::no_grad(|| tensor.f_detach()?.f_to_device(self.device)?.f_contiguous())?;
        }
        Ok(part)
    }
}

/// The outline for one rank: its own, or the one for all.
fn outline_of<'m>(message: &mut MessageReader<'m>, rank: usize) -> Result<&'m [u8]> {
    let count = message.size()?;
    let outlines = (0..count)
        .map(|_| message.block())
        .collect::<Result<Vec<_>>>()?;
    let own = outlines.get(rank).filter(|_| count > 1);
    own.or(outlines.first())
        .copied()
        .ok_or_else(|| Error::Argument {
            operation: "DataLoaderDispatcher",
            expected: "an outline of the batch from rank 0".to_owned(),
            found: "none".to_owned(),
        })
}

/// Sends each rank the tensors of its part, and keeps the first.
fn scatter(group: &ProcessGroup, mut parts: Vec<Parcel>) -> Result<Parcel> {
    let mut columns: Vec<Vec<Tensor>> = Vec::new();
    for part in &mut parts {
        for (place, tensor) in part.tensors_mut().enumerate() {
            match columns.get_mut(place) {
                Some(column) => column.push(tensor.shallow_clone()),
                None => columns.push(vec![tensor.shallow_clone()]),
            }
        }
    }
    let works = columns.iter().map(|column| match column.first() {
        Some(own) => start(group, &own.f_empty_like()?, column),
        None => Ok(None),
    });
    wait(works.collect::<Result<Vec<_>>>()?)?;
    Ok(parts.swap_remove(0))
}

/// One tensor for each rank, as bytes: the backends do not know all kinds of numbers.
fn start(group: &ProcessGroup, room: &Tensor, sent: &[Tensor]) -> Result<Option<Work>> {
    if room.numel() == 0 {
        return Ok(None);
    }
    let sent = sent.iter().map(as_bytes).collect::<Result<Vec<_>>>()?;
    Ok(Some(group.scatter_async(&as_bytes(room)?, &sent, 0)?))
}

fn wait(works: Vec<Option<Work>>) -> Result<()> {
    for work in works.into_iter().flatten() {
        work.wait()?;
    }
    Ok(())
}
