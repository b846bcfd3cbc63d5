//! How a caller follows a compilation, and stops it.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::Error;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The source is read to find its digest, or what is compiled already to compare it with its own; counted in bytes.
    Digest,
    /// Somebody else compiles the same; waiting for it, nothing is counted.
    Wait,
    /// Weights are read, encoded and written; counted in bytes of the source.
    Weights,
}

/// Is told now and then how far things are, from the thread that called; `Break` ends the compilation.
pub trait Progress {
    /// `done` of `total`; both are 0 where nothing can be counted.
    fn at(&mut self, step: Step, done: u64, total: u64) -> ControlFlow<()>;
}

/// Nobody listens.
impl Progress for () {
    fn at(&mut self, _: Step, _: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(Step, u64, u64) -> ControlFlow<()>> Progress for F {
    fn at(&mut self, step: Step, done: u64, total: u64) -> ControlFlow<()> {
        self(step, done, total)
    }
}

/// Counts what is done of one step.
pub(crate) struct Work<'a> {
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) source: &'a Path,
    step: Step,
    done: u64,
    total: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(progress: &'a mut dyn Progress, source: &'a Path) -> Self {
        Self { progress, source, step: Step::Digest, done: 0, total: 0 }
    }

    /// Begins a step.
    pub(crate) fn begin(&mut self, step: Step, total: u64) -> Result<(), Error> {
        (self.step, self.done, self.total) = (step, 0, total);
        self.add(0)
    }

    /// The step is done, whatever was not needed of its total.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.add(self.total.saturating_sub(self.done))
    }

    /// Counts and tells.
    pub(crate) fn add(&mut self, done: u64) -> Result<(), Error> {
        self.done += done;
        match self.progress.at(self.step, self.done.min(self.total), self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled { path: self.source.to_owned() }),
        }
    }
}
