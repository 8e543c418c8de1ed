//! Parts of a batch on their way from one rank to the next.
//!
//! Each part is announced by three numbers: which outline its tensors have, the length of that
//! outline where it is new, and whether it is the last of its batch. An outline, that is shapes,
//! types and plain values, is sent once and then known by its number.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;

use accelerate_torch::storage::with_bytes;
use accelerate_torch::{Backend, ProcessGroup, Work};
use tch::{Device, Kind, Tensor};

use crate::tree::{MessageReader, MessageWriter, Parcel, as_bytes};
use crate::{Error, Result};

const ANNOUNCEMENT: u16 = 0;
const OUTLINE: u16 = 1;
const TENSOR: u16 = 2;

/// How many parts may be on their way before the rank waits for the next one.
const AHEAD: usize = 2;
/// How many outlines both ends remember.
const KNOWN: usize = 64;

/// One end of the way between two neighbours. Each way has one direction, and one thread at each end.
#[derive(Debug)]
struct Edge {
    group: ProcessGroup,
    peer: usize,
    /// Where tensors travel.
    device: Device,
    outlines: Outlines,
}

/// The outlines that both ends know by number: both add the same ones in the same order.
#[derive(Debug, Default)]
struct Outlines {
    known: Vec<Vec<u8>>,
    added: usize,
}

impl Outlines {
    fn find(&self, outline: &[u8]) -> Option<usize> {
        self.known.iter().position(|known| known == outline)
    }

    /// Remembers an outline, in the place of the oldest where there are too many.
    fn add(&mut self, outline: Vec<u8>) -> usize {
        let number = self.added % KNOWN;
        self.added += 1;
        match self.known.get_mut(number) {
            Some(oldest) => *oldest = outline,
            None => self.known.push(outline),
        }
        number
    }
}

impl Edge {
    fn new(group: ProcessGroup, peer: usize, device: Device) -> Self {
        let device = match group.backend() {
            Backend::Gloo => Device::Cpu,
            _ => device,
        };
        Self {
            group,
            peer,
            device,
            outlines: Outlines::default(),
        }
    }

    /// Where numbers and outlines travel.
    fn small(&self) -> Device {
        match self.group.backend() {
            Backend::Nccl => self.device,
            _ => Device::Cpu,
        }
    }
}

/// The way to the next rank.
#[derive(Debug)]
pub(super) struct Outbox {
    edge: Edge,
    under_way: VecDeque<Vec<Work>>,
}

impl Outbox {
    pub(super) fn new(group: ProcessGroup, peer: usize, device: Device) -> Self {
        Self {
            edge: Edge::new(group, peer, device),
            under_way: VecDeque::new(),
        }
    }

    /// Starts to send a part; waits only where too many are on their way.
    pub(super) fn send(&mut self, mut part: Parcel, last: bool) -> Result<()> {
        while self.under_way.len() >= AHEAD {
            self.wait_for_oldest()?;
        }
        let Edge {
            group,
            peer,
            device,
            ..
        } = &self.edge;
        for tensor in part.tensors_mut() {
            *tensor = tensor.f_detach()?.f_to_device(*device)?.f_contiguous()?;
        }
        let mut outline = MessageWriter::default();
        outline.outline(&part)?;
        let outline = outline.finish();
        let known = self.edge.outlines.find(&outline);
        let mut works = Vec::new();
        let length = if known.is_none() { outline.len() } else { 0 };
        let number = known.unwrap_or(self.edge.outlines.added % KNOWN);
        let numbers = [count(number), count(length), i64::from(last)];
        let numbers = Tensor::f_from_slice(&numbers)?.f_to_device(self.edge.small())?;
        works.push(group.send_async(&numbers, *peer, ANNOUNCEMENT)?);
        if known.is_none() {
            let bytes = Tensor::f_from_slice(&outline)?.f_to_device(self.edge.small())?;
            works.push(group.send_async(&bytes, *peer, OUTLINE)?);
        }
        for tensor in part.tensors_mut().filter(|tensor| tensor.numel() > 0) {
            works.push(group.send_async(&as_bytes(tensor)?, *peer, TENSOR)?);
        }
        if known.is_none() {
            self.edge.outlines.add(outline);
        }
        self.under_way.push_back(works);
        Ok(())
    }

    /// Waits until the next rank has everything.
    pub(super) fn flush(&mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        for work in self.under_way.pop_front().into_iter().flatten() {
            work.wait()?;
        }
        Ok(())
    }
}

/// A part as it comes in.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) part: Parcel,
    /// Whether it is the last of its batch.
    pub(super) last: bool,
}

/// The way from the rank before.
#[derive(Debug)]
pub(super) struct Inbox {
    edge: Edge,
}

impl Inbox {
    pub(super) fn new(group: ProcessGroup, peer: usize, device: Device) -> Self {
        Self {
            edge: Edge::new(group, peer, device),
        }
    }

    /// Receives a whole batch, part after part, while others are computed.
    ///
    /// Where nobody takes the parts any more, the rest is received and dropped, so that the rank
    /// before comes to the end of its own work.
    pub(super) fn receive_batch(&mut self, to: &SyncSender<Result<Arrival>>) {
        loop {
            let arrival = self.receive();
            let is_end = arrival.as_ref().map_or(true, |arrival| arrival.last);
            let _ = to.send(arrival);
            if is_end {
                return;
            }
        }
    }

    fn receive(&mut self) -> Result<Arrival> {
        let Edge {
            group,
            peer,
            device,
            ..
        } = &self.edge;
        let numbers = Tensor::f_zeros([3], (Kind::Int64, self.edge.small()))?;
        group.receive(&numbers, *peer, ANNOUNCEMENT)?;
        let numbers = Vec::<i64>::try_from(&numbers.f_to_device(Device::Cpu)?)?;
        let [number, length, last] = numbers.as_slice() else {
            return Err(damaged(format!("{numbers:?}")));
        };
        let (device, number) = (*device, usize::try_from(*number).unwrap_or(KNOWN));
        if *length > 0 {
            let bytes = Tensor::f_empty([*length], (Kind::Uint8, self.edge.small()))?;
            group.receive(&bytes, *peer, OUTLINE)?;
            let outline = with_bytes(&bytes.f_to_device(Device::Cpu)?, <[u8]>::to_vec)?;
            self.edge.outlines.add(outline);
        }
        let outline = self.edge.outlines.known.get(number);
        let outline = outline.ok_or_else(|| damaged(format!("{numbers:?}")))?;
        let mut part = MessageReader::new(outline).outline(device)?;
        let (group, peer) = (&self.edge.group, self.edge.peer);
        let works = part
            .tensors_mut()
            .filter(|tensor| tensor.numel() > 0)
            .map(|tensor| Ok(group.receive_async(&as_bytes(tensor)?, peer, TENSOR)?))
            .collect::<Result<Vec<Work>>>()?;
        for work in works {
            work.wait()?;
        }
        Ok(Arrival {
            part,
            last: *last != 0,
        })
    }
}

/// Gives every rank a tree that only the last one has.
///
/// # Collective
/// Every rank of the group calls this.
pub(super) fn share<T: crate::tree::Tree>(
    group: &ProcessGroup,
    device: Device,
    own: Option<T>,
) -> Result<T> {
    let root = group.size().saturating_sub(1);
    let device = match group.backend() {
        Backend::Gloo => Device::Cpu,
        _ => device,
    };
    let mut sent = Parcel::default();
    let mut outline = MessageWriter::default();
    if let Some(own) = own {
        own.pack(&mut sent)?;
        for tensor in sent.tensors_mut() {
            *tensor = tensor.f_detach()?.f_to_device(device)?.f_contiguous()?;
        }
        outline.outline(&sent)?;
    }
    let outline = group.broadcast_bytes(&outline.finish(), root)?;
    let mut whole = match group.rank() == root {
        true => sent,
        false => MessageReader::new(&outline).outline(device)?,
    };
    for tensor in whole.tensors_mut().filter(|tensor| tensor.numel() > 0) {
        group.broadcast(&as_bytes(tensor)?, root)?;
    }
    T::unpack(&mut whole)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn damaged(found: String) -> Error {
    Error::Argument {
        operation: "pipeline",
        expected: "the announcement of a part of a batch; run one version on every rank".to_owned(),
        found,
    }
}
