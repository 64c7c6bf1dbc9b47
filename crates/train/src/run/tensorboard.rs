//! Event files for TensorBoard: records of protocol buffers, each with checksums (the format `TFRecord`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::run::callback::TrainCallback;
use crate::run::folder::TENSORBOARD_FOLDER;
use crate::run::state::Run;
use crate::step::reports::{EpochReport, StepReport};
use crate::step::task::metric_sums::MetricSums;

/// The number of buffered bytes from which they are written. They are written before each checkpoint, too.
const BUFFER_BYTES: usize = 16 << 10;

/// A callback that writes the run's progress as an event file for TensorBoard, to the folder `tensorboard` of the run
/// folder, on rank 0: `tensorboard --logdir runs` shows all runs. A resumed run adds a file, whose steps replace those
/// that the earlier files have from this step on. What a checkpoint contains is in the files before it, also if the run is
/// killed.
///
/// | tag | value |
/// |---|---|
/// | `loss/step` | the loss of each training step |
/// | `loss/train`, `loss/validation` | the loss of each epoch and of its validation |
/// | `METRIC/validation` | the metric that selects the best epoch, such as `accuracy/validation` |
/// | `accuracy/train` | the accuracy of each epoch, if the metric is the accuracy |
/// | the name of a value that a callback logs | the value ([`ValidationEnd::log`](crate::ValidationEnd::log)) |
/// | `seconds/epoch`, `seconds/validation` | the time of the training steps and of the validation |
///
/// The step of an event counts training steps over all epochs, from 0; values of an epoch have its last step.
///
/// A file that cannot be written ends the logging, with one message, and not the run.
pub struct TensorBoard {
    file: Option<File>,
    buffer: Vec<u8>,
    /// The number of steps of an epoch.
    n_steps: usize,
    /// The epoch that is being trained, from 0.
    epoch: usize,
    /// The training of this epoch.
    trained: Option<EpochReport>,
    on_error: Box<dyn FnMut(String) + Send>,
}

impl TensorBoard {
    /// Creates the callback. `on_error` receives the message if a file cannot be written.
    pub fn new(on_error: impl FnMut(String) + Send + 'static) -> Self {
        Self {
            file: None,
            buffer: Vec::new(),
            n_steps: 0,
            epoch: 0,
            trained: None,
            on_error: Box::new(on_error),
        }
    }

    fn scalars(&mut self, step: usize, values: &[(&str, f64)]) {
        if self.file.is_some() {
            let summary: Vec<u8> =
                values.iter().flat_map(|&(tag, value)| message(1, &scalar(tag, value as f32))).collect();
            self.buffer.extend(record(&event(step, &message(5, &summary))));
            if BUFFER_BYTES <= self.buffer.len() {
                self.flush();
            }
        }
    }

    /// Returns the last step of the epoch: a session that resumes after the epoch begins at the next one, and keeps its values.
    fn last_step(&self) -> usize {
        ((self.epoch + 1) * self.n_steps).saturating_sub(1)
    }

    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        let written = file.write_all(&self.buffer);
        self.buffer.clear();
        if let Err(error) = written {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.file = None;
        (self.on_error)(format!("the event file for TensorBoard could not be written: {error}"));
    }
}

impl TrainCallback for TensorBoard {
    fn started(&mut self, run: &Run, n_steps: usize) {
        (self.n_steps, self.epoch) = (n_steps, run.n_epochs());
        let Some(folder) = run.folder() else { return };
        match create(&folder.path().join(TENSORBOARD_FOLDER)) {
            Ok(file) => {
                self.file = Some(file);
                let first = self.epoch * n_steps + run.n_steps();
                self.buffer.extend(record(&event(0, &message(3, b"brain.Event:2"))));
                // The start of a session: readers drop what earlier files have from this step on.
                self.buffer.extend(record(&event(first, &message(7, &varint_field(1, 1)))));
                self.flush();
            }
            Err(error) => self.fail(&error),
        }
    }

    fn step(&mut self, report: &StepReport) {
        let step = self.epoch * self.n_steps + report.step;
        self.scalars(step, &[("loss/step", report.counts.loss())]);
    }

    fn epoch_trained(&mut self, train: &EpochReport) {
        self.trained = Some(*train);
    }

    fn validated(&mut self, val: &Validation) {
        let Some(train) = self.trained.take() else { return };
        let tag = format!("{}/validation", val.metric);
        let mut values = vec![("loss/train", train.counts.loss())];
        values.extend((!val.is_empty()).then(|| ("loss/validation", val.sums.loss())));
        values.push(("seconds/epoch", train.wall.as_secs_f64()));
        values.extend(val.value.map(|value| (tag.as_str(), value)));
        values.extend((val.metric == Metric::Accuracy).then(|| ("accuracy/train", train.counts.accuracy())));
        values.extend(val.wall.map(|wall| ("seconds/validation", wall.as_secs_f64())));
        self.scalars(self.last_step(), &values);
    }

    fn logged(&mut self, values: &[(String, f64)]) {
        let values: Vec<(&str, f64)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.scalars(self.last_step(), &values);
    }

    fn saving(&mut self) {
        self.flush();
    }

    fn epoch(&mut self, epoch: usize, _: &EpochReport, _: &MetricSums, _: bool) {
        self.epoch = epoch;
    }
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        self.flush();
    }
}

impl fmt::Debug for TensorBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorBoard").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Creates an event file. Its name contains the time and the process, so that the files of a resumed run do not
/// overwrite each other and sort by their age.
fn create(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let (seconds, nanos) = since_epoch();
    let name = format!("events.out.tfevents.{seconds}.{nanos:09}.{}", std::process::id());
    File::create_new(folder.join(name))
}

/// Returns the seconds and nanoseconds since 1970.
fn since_epoch() -> (u64, u32) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (time.as_secs(), time.subsec_nanos())
}

/// Encodes an `Event` with the current time, a step, and another field.
fn event(step: usize, field: &[u8]) -> Vec<u8> {
    let (seconds, nanos) = since_epoch();
    let time = seconds as f64 + f64::from(nanos) * 1e-9;
    [&[0x09][..], &time.to_le_bytes(), &varint_field(2, step as u64), field].concat()
}

/// Encodes a `Summary.Value` of one number.
fn scalar(tag: &str, value: f32) -> Vec<u8> {
    [&message(1, tag.as_bytes())[..], &[0x15], &value.to_le_bytes()].concat()
}

/// Encodes a field of bytes: a string or a message.
fn message(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn varint_field(field: u8, value: u64) -> Vec<u8> {
    [&[field << 3][..], &varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while 0x80 <= value {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Frames a record: its length and its bytes, each followed by a checksum.
fn record(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &checksum(&length).to_le_bytes(), bytes, &checksum(bytes).to_le_bytes()].concat()
}

/// Computes the checksum of a record: CRC-32C, rotated and offset as TFRecord requires.
fn checksum(bytes: &[u8]) -> u32 {
    let crc = !bytes.iter().fold(!0_u32, |crc, byte| crc >> 8 ^ CRC_TABLE[(crc as u8 ^ byte) as usize]);
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The remainders of all bytes by the polynomial of CRC-32C (Castagnoli 1993), bits reversed.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82F6_3B78 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_masked_crc_32c() {
        // The check value of CRC-32C, in RFC 3720, appendix B.4: 32 bytes of zeros.
        let crc = 0x8A91_36AA_u32;
        assert_eq!(checksum(&[0; 32]), crc.rotate_right(15).wrapping_add(0xA282_EAD8));
    }

    #[test]
    fn numbers_are_encoded_as_protocol_buffers_do() {
        assert_eq!(varint(300), [0xAC, 0x02]);
        assert_eq!(varint_field(2, 0), [0x10, 0]);
        assert_eq!(scalar("a", 1.0), [0x0A, 1, b'a', 0x15, 0, 0, 0x80, 0x3F]);
    }
}
