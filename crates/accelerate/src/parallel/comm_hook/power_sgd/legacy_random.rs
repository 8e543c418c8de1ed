/// The Mersenne twister as NumPy's older interface seeds and reads it.
///
/// All ranks draw the seeds of their random matrices from it, in the same order.
///
/// # Source
/// `numpy.random.RandomState(seed).randint`.
#[derive(Debug)]
pub(super) struct LegacyRandom {
    state: [u32; SIZE],
    next: usize,
}

const SIZE: usize = 624;
/// How far apart the words are that are mixed.
const SHIFT: usize = 397;

impl LegacyRandom {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [0; SIZE];
        let mut word = seed;
        for (index, place) in (0u32..).zip(&mut state) {
            if index > 0 {
                word = (word ^ (word >> 30))
                    .wrapping_mul(1_812_433_253)
                    .wrapping_add(index);
            }
            *place = word;
        }
        Self { state, next: SIZE }
    }

    /// Everything that decides which numbers come: the words, and the place of the next one.
    pub(super) fn words(&self) -> Vec<i64> {
        let words = self.state.iter().map(|&word| i64::from(word));
        words.chain([self.next as i64]).collect()
    }

    /// The generator whose [`words`](Self::words) these are.
    pub(super) fn from_words(words: &[i64]) -> Option<Self> {
        let (&next, words) = words.split_last()?;
        let words = words.iter().map(|&word| u32::try_from(word).ok());
        let words: Vec<u32> = words.collect::<Option<_>>()?;
        Some(Self {
            state: words.try_into().ok()?,
            next: usize::try_from(next).ok().filter(|&next| next <= SIZE)?,
        })
    }

    /// A number below 1,000,000,000: 30 bits of a word, the first that is small enough.
    pub(super) fn below_a_billion(&mut self) -> u32 {
        loop {
            let drawn = self.word() & ((1 << 30) - 1);
            if drawn < 1_000_000_000 {
                return drawn;
            }
        }
    }

    fn word(&mut self) -> u32 {
        if self.next == SIZE {
            self.mix();
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn mix(&mut self) {
        for index in 0..SIZE {
            let (high, low) = (self.state[index], self.state[(index + 1) % SIZE]);
            let joined = (high & 0x8000_0000) | (low & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % SIZE] ^ (joined >> 1) ^ odd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_numpy() {
        let mut random = LegacyRandom::new(0);
        let drawn: Vec<u32> = (0..6).map(|_| random.below_a_billion()).collect();
        assert_eq!(
            drawn,
            [
                209_652_396,
                398_764_591,
                924_231_285,
                404_868_288,
                441_365_315,
                463_622_907
            ]
        );
        // numpy.random.RandomState(12345): the 700th number lies in the second round of words.
        let mut random = LegacyRandom::new(12_345);
        let drawn: Vec<u32> = (0..700).map(|_| random.below_a_billion()).collect();
        assert_eq!([drawn[0], drawn[699]], [771_445_218, 982_236_790]);
    }
    #[test]
    fn a_generator_goes_on_from_its_words() {
        for drawn in [0, 5, 623, 624, 700] {
            let mut random = LegacyRandom::new(9);
            for _ in 0..drawn {
                random.word();
            }
            let mut again = LegacyRandom::from_words(&random.words()).unwrap();
            for _ in 0..700 {
                assert_eq!(again.word(), random.word());
            }
        }
        let words = LegacyRandom::new(9).words();
        assert!(LegacyRandom::from_words(&words[1..]).is_none());
        assert!(LegacyRandom::from_words(&[]).is_none());
        let mut wrong = words.clone();
        wrong[3] = -1;
        assert!(LegacyRandom::from_words(&wrong).is_none());
        let mut wrong = words;
        wrong[SIZE] = 625;
        assert!(LegacyRandom::from_words(&wrong).is_none());
    }
}
