//! A mutator of inputs: small changes of bytes, numbers and lines that tend to find bugs in readers.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::Rng;

/// Numbers at the limits of types, as text.
const NUMBERS: [&str; 16] = [
    "-1",
    "0",
    "1",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e999",
    "nan",
    "",
];

/// A mutator with a buffer that it reuses for each input.
#[derive(Debug, Default)]
pub(crate) struct Mutator {
    bytes: Vec<u8>,
}

impl Mutator {
    /// Returns `input` with one to four random changes, which may splice it with `other`.
    pub(crate) fn mutate(&mut self, input: &[u8], other: &[u8], rng: &mut Xoshiro256StarStar) -> &[u8] {
        self.bytes.clear();
        self.bytes.extend_from_slice(input);
        for _ in 0..1 + below(rng, 2) * below(rng, 4) {
            self.change(other, rng);
        }
        &self.bytes
    }

    fn change(&mut self, other: &[u8], rng: &mut Xoshiro256StarStar) {
        let (at, n_bytes) = (below(rng, self.bytes.len() + 1), self.bytes.len());
        match below(rng, 9) {
            0 if at < n_bytes => self.bytes[at] ^= 1 << below(rng, 8),
            1 if at < n_bytes => self.bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n'][below(rng, 6)],
            2 => self.replace_number(at, rng),
            3 => self.change_digit(at, rng),
            4 => {
                let line = self.line(at);
                let copy = self.bytes[line.clone()].to_vec();
                self.bytes.splice(line.start..line.start, copy);
            }
            5 => drop(self.bytes.drain(self.line(at))),
            6 => self.bytes.truncate(at),
            7 => {
                self.bytes.truncate(at);
                self.bytes.extend_from_slice(&other[below(rng, other.len() + 1)..]);
            }
            _ => {
                let end = (at + below(rng, 16)).min(n_bytes);
                self.bytes.drain(at..end);
            }
        }
    }

    /// Returns the range of the line around a byte, including its line break.
    fn line(&self, at: usize) -> std::ops::Range<usize> {
        let is_break = |byte: &u8| *byte == b'\n';
        let start = self.bytes[..at].iter().rposition(is_break).map_or(0, |position| position + 1);
        let end =
            self.bytes[at..].iter().position(is_break).map_or(self.bytes.len(), |length| at + length + 1);
        start..end
    }

    /// Replaces the next number by one of [`NUMBERS`].
    fn replace_number(&mut self, at: usize, rng: &mut Xoshiro256StarStar) {
        let is_number = |byte: &u8| byte.is_ascii_digit() || b".-+".contains(byte);
        let start =
            self.bytes[at..].iter().position(is_number).map_or(self.bytes.len(), |length| at + length);
        let length = self.bytes[start..].iter().take_while(|byte| is_number(byte)).count();
        self.bytes.splice(start..start + length, NUMBERS[below(rng, NUMBERS.len())].bytes());
    }

    fn change_digit(&mut self, at: usize, rng: &mut Xoshiro256StarStar) {
        if let Some(digit) = self.bytes[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
            *digit = b'0' + below(rng, 10) as u8;
        }
    }
}

/// Returns a random number below `n`; the small bias is irrelevant here.
fn below(rng: &mut Xoshiro256StarStar, n: usize) -> usize {
    (rng.next_u64() >> 32) as usize % n
}
