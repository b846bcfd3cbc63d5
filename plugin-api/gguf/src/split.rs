//! Models that are split over several files: which part a file is, and what the others are called.
//!
//! As llama.cpp's splitter writes them: every part is a GGUF file with some of the tensors, the first has the metadata of
//! the model, and names end in `-00001-of-00003.gguf`.

use crate::error::Error;
use crate::file::Gguf;

/// The most parts; the format counts them in 16 bits.
const MAX: u64 = u16::MAX as u64;

/// Which part of a model a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Its number, from 0.
    pub no: u64,
    /// All parts of the model; more than one.
    pub count: u64,
    /// Tensors of all parts together, where the file says so.
    pub tensors: Option<u64>,
}

impl Gguf {
    /// Which part of a model this file is; none where it is a whole one.
    ///
    /// # Errors
    /// It is a part without a number, or a key has another type.
    pub fn split(&self) -> Result<Option<Split>, Error> {
        let Some(count) = self.u64("split.count")?.filter(|count| *count > 1) else { return Ok(None) };
        let no = self.u64("split.no")?.ok_or_else(|| Error::missing("split.no"))?;
        Ok(Some(Split { no, count, tensors: self.u64("split.tensors.count")? }))
    }

    /// As [`Gguf::split`], for a file that a model is opened by: the first part, which has the metadata.
    ///
    /// # Errors
    /// It is another part, or as above.
    pub fn opening(&self) -> Result<Option<Split>, Error> {
        match self.split()? {
            Some(split) if split.no != 0 => Err(Error::Part { no: split.no + 1, count: split.count }),
            split => Ok(split),
        }
    }
}

/// The file names of all parts of a model, from that of its first part; none for any other name.
pub fn part_names(first: &str) -> Option<Vec<String>> {
    let (model, 1, count) = taken_apart(first)? else { return None };
    Some((1..=count).map(|no| format!("{model}-{no:05}-of-{count:05}.gguf")).collect())
}

/// The model's part of a part's file name: `m` of `m-00001-of-00003.gguf`. None for any other name.
pub fn model_name(part: &str) -> Option<&str> {
    taken_apart(part).map(|(model, ..)| model)
}

fn taken_apart(name: &str) -> Option<(&str, u64, u64)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (model, no) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|n| plain && (1..=MAX).contains(n))
    };
    Some((model, number(no)?, number(count)?)).filter(|(_, no, count)| no <= count)
}
