//! Keys, values and who waits for them. No sockets here.

use std::collections::{HashMap, VecDeque};

use super::{
    limits,
    server::Connection,
    wills::Wills,
    wire::{self, Bytes, Request, put, put_count},
};

/// Bytes to send, and to whom.
pub(super) type Answers = Vec<(Connection, Bytes)>;

/// The client broke the rules: its connection has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

#[derive(Debug, Default)]
pub(super) struct Table {
    values: HashMap<Bytes, Bytes>,
    queues: HashMap<Bytes, VecDeque<Bytes>>,
    /// Bytes of all keys and values.
    stored: usize,
    waits: HashMap<Connection, Wait>,
    /// Who waits for a key, first come, first served.
    waiting_for: HashMap<Bytes, Vec<Connection>>,
    waiting_at: HashMap<Bytes, Vec<Connection>>,
    wills: Wills,
}

#[derive(Debug)]
enum Wait {
    /// Until these exist.
    Keys { keys: Vec<Bytes>, missing: usize },
    /// Until enough are at this barrier.
    Barrier { key: Bytes },
}

impl Table {
    pub(super) fn new(wills: Wills, known: Vec<(String, String)>) -> Self {
        let mut table = Self {
            wills,
            ..Self::default()
        };
        for (key, value) in known {
            // Nobody waits yet, and there is room.
            let _ = table.put(key.into_bytes(), value.into_bytes(), &mut Answers::new());
        }
        table
    }

    /// Does what a client asks for.
    pub(super) fn serve(
        &mut self,
        client: Connection,
        request: Request,
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        let mut answer = Bytes::new();
        match request {
            // Once, before everything else: the server has seen to that.
            Request::Validate { .. } => return Err(Refused),
            Request::Ping { nonce } => answer.extend(nonce.to_le_bytes()),
            Request::Set { key, value } => self.set(client, key, value, answers)?,
            Request::MultiSet { pairs } => {
                for (key, value) in pairs {
                    self.set(client, key, value, answers)?;
                }
            }
            Request::Append { key, value } => {
                let mut whole = self.values.get(&key).cloned().unwrap_or_default();
                whole.extend(value);
                self.put(key, whole, answers)?;
            }
            Request::CompareSet {
                key,
                expected,
                desired,
            } => {
                let result = self.compare_set(client, key, expected, desired, answers)?;
                put(&mut answer, &result);
            }
            Request::Get { key } => put(&mut answer, self.get(&key)),
            Request::MultiGet { keys } => self.get_all(&keys, &mut answer)?,
            Request::Add { key, delta } => {
                self.wills.added(client, &key);
                let sum = self.add(key, delta, answers)?;
                answer.extend(sum.to_le_bytes());
            }
            Request::Check { keys } => answer.push(match keys.iter().all(|key| self.exists(key)) {
                true => wire::READY,
                false => wire::NOT_READY,
            }),
            Request::Wait { keys } => self.wait(client, keys, &mut answer)?,
            Request::Barrier { key, size } => self.barrier(client, key, size, answers)?,
            Request::CancelWait => {
                self.forget_wait(client);
                answer.push(wire::WAIT_CANCELED);
            }
            Request::NumKeys => put_count(&mut answer, self.values.len()),
            Request::ListKeys => {
                put_count(&mut answer, self.values.len());
                self.values.keys().for_each(|key| put(&mut answer, key));
            }
            Request::Delete { key } => {
                self.wills.deleted(&key);
                put_count(&mut answer, usize::from(self.delete(&key)));
            }
            Request::QueuePush { key, value } => self.push(key, value, answers)?,
            Request::QueuePop { key } => match self.pop(&key) {
                Some(value) => {
                    put_count(&mut answer, 1);
                    put(&mut answer, &value);
                }
                None => put_count(&mut answer, 0),
            },
            Request::QueueLen { key } => {
                put_count(&mut answer, self.queues.get(&key).map_or(0, VecDeque::len));
            }
        }
        if !answer.is_empty() {
            answers.push((client, answer));
        }
        Ok(())
    }

    /// Writes what a client has left, and forgets it.
    pub(super) fn closed(&mut self, client: Connection, answers: &mut Answers) {
        self.forget_wait(client);
        for (key, value) in self.wills.closed(client) {
            if !self.values.contains_key(&key) {
                // Where it does not fit any more, there is nothing left to do.
                let _ = self.put(key, value, answers);
            }
        }
    }

    fn get(&self, key: &[u8]) -> &[u8] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }

    fn get_all(&self, keys: &[Bytes], answer: &mut Bytes) -> Result<(), Refused> {
        for key in keys {
            let value = self.get(key);
            if answer.len() + value.len() > limits::ANSWER {
                return Err(Refused);
            }
            put(answer, value);
        }
        Ok(())
    }

    fn exists(&self, key: &[u8]) -> bool {
        let queue = self.queues.get(key);
        self.values.contains_key(key) || queue.is_some_and(|queue| !queue.is_empty())
    }

    /// Sets a value as a client asks for it.
    fn set(
        &mut self,
        client: Connection,
        key: Bytes,
        value: Bytes,
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        if let Some(stale) = self.wills.set(client, &key, &value) {
            self.delete(&stale);
        }
        self.put(key, value, answers)
    }

    fn put(&mut self, key: Bytes, value: Bytes, answers: &mut Answers) -> Result<(), Refused> {
        let before = self.values.get(&key).map_or(0, |old| key.len() + old.len());
        let stored = self.stored - before + key.len() + value.len();
        if stored > limits::STORED || value.len() > limits::request::VALUE {
            return Err(Refused);
        }
        self.stored = stored;
        for client in self.waiting_for.remove(&key).unwrap_or_default() {
            self.found_one(client, answers);
        }
        self.values.insert(key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.values.remove(key);
        if let Some(old) = &old {
            self.stored -= key.len() + old.len();
        }
        old.is_some()
    }

    /// Returns the value afterwards, or `expected` where there is none.
    fn compare_set(
        &mut self,
        client: Connection,
        key: Bytes,
        expected: Bytes,
        desired: Bytes,
        answers: &mut Answers,
    ) -> Result<Bytes, Refused> {
        match self.values.get(&key) {
            None if !expected.is_empty() => return Ok(expected),
            Some(found) if *found != expected => return Ok(found.clone()),
            _ => {}
        }
        self.set(client, key, desired.clone(), answers)?;
        Ok(desired)
    }

    /// Counters are kept as decimal text.
    fn add(&mut self, key: Bytes, delta: i64, answers: &mut Answers) -> Result<i64, Refused> {
        let before = match self.values.get(&key) {
            None => 0,
            Some(text) => std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.trim().parse::<i64>().ok())
                .ok_or(Refused)?,
        };
        let sum = before.wrapping_add(delta);
        self.put(key, sum.to_string().into_bytes(), answers)?;
        Ok(sum)
    }

    fn push(&mut self, key: Bytes, value: Bytes, answers: &mut Answers) -> Result<(), Refused> {
        let stored = self.stored + key.len() + value.len();
        if stored > limits::STORED {
            return Err(Refused);
        }
        self.stored = stored;
        // One value wakes one client.
        let waiting = self.waiting_for.get_mut(&key);
        let first = waiting
            .filter(|waiting| !waiting.is_empty())
            .map(|waiting| waiting.remove(0));
        self.queues.entry(key).or_default().push_back(value);
        if let Some(first) = first {
            self.found_one(first, answers);
        }
        Ok(())
    }

    fn pop(&mut self, key: &[u8]) -> Option<Bytes> {
        let queue = self.queues.get_mut(key)?;
        let value = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.stored -= key.len() + value.len();
        Some(value)
    }

    fn wait(
        &mut self,
        client: Connection,
        keys: Vec<Bytes>,
        answer: &mut Bytes,
    ) -> Result<(), Refused> {
        if self.waits.contains_key(&client) {
            return Err(Refused);
        }
        let mut keys: Vec<_> = keys.into_iter().filter(|key| !self.exists(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            answer.push(wire::STOP_WAITING);
            return Ok(());
        }
        for key in &keys {
            self.waiting_for
                .entry(key.clone())
                .or_default()
                .push(client);
        }
        let missing = keys.len();
        self.waits.insert(client, Wait::Keys { keys, missing });
        Ok(())
    }

    /// One of the keys that a client waits for exists now.
    fn found_one(&mut self, client: Connection, answers: &mut Answers) {
        let Some(Wait::Keys { missing, .. }) = self.waits.get_mut(&client) else {
            return;
        };
        *missing -= 1;
        if *missing == 0 {
            self.forget_wait(client);
            answers.push((client, vec![wire::STOP_WAITING]));
        }
    }

    fn barrier(
        &mut self,
        client: Connection,
        key: Bytes,
        size: i64,
        answers: &mut Answers,
    ) -> Result<(), Refused> {
        if self.waits.contains_key(&client) {
            return Err(Refused);
        }
        let arrived = self.add(key.clone(), 1, answers)?;
        if arrived < size {
            self.waiting_at.entry(key.clone()).or_default().push(client);
            self.waits.insert(client, Wait::Barrier { key });
            return Ok(());
        }
        let mut freed = self.waiting_at.remove(&key).unwrap_or_default();
        freed.push(client);
        for client in freed {
            self.waits.remove(&client);
            answers.push((client, vec![wire::STOP_WAITING]));
        }
        Ok(())
    }

    fn forget_wait(&mut self, client: Connection) {
        match self.waits.remove(&client) {
            None => {}
            Some(Wait::Keys { keys, .. }) => {
                for key in keys {
                    forget(&mut self.waiting_for, &key, client);
                }
            }
            Some(Wait::Barrier { key }) => forget(&mut self.waiting_at, &key, client),
        }
    }
}

fn forget(waiting: &mut HashMap<Bytes, Vec<Connection>>, key: &[u8], client: Connection) {
    if let Some(clients) = waiting.get_mut(key) {
        clients.retain(|other| *other != client);
        if clients.is_empty() {
            waiting.remove(key);
        }
    }
}
