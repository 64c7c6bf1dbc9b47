//! Runs as their folders record them: those of programs that have ended, were interrupted or still train, of this version and
//! of earlier ones. Nothing here trains or writes to the folder of a run.

pub(crate) mod find;
pub(crate) mod record;
pub(crate) mod setting;
mod summary_file;
pub(crate) mod table;
