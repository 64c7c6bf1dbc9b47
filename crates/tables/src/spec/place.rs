use std::path::Path;

use crate::{Error, Result, SpecError};

/// A place in the spec, for errors.
#[derive(Clone)]
pub(super) struct At<'a> {
    pub(super) path: &'a Path,
    pub(super) key: String,
}

impl At<'_> {
    pub(super) fn child(&self, key: impl std::fmt::Display) -> Self {
        Self { path: self.path, key: format!("{}.{key}", self.key) }
    }

    pub(super) fn require(
        &self,
        holds: bool,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Result<()> {
        if holds {
            return Ok(());
        }
        let found: String = found.to_string().chars().take(80).collect();
        Err(Error::Spec(SpecError::Spec {
            path: self.path.to_owned(),
            key: self.key.clone(),
            expected: expected.into(),
            found,
        }))
    }

    pub(super) fn count(&self, n: usize, max: usize) -> Result<()> {
        self.require((1..=max).contains(&n), format!("1 to {max}"), n)
    }
}
