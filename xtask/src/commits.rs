//! The form of commit subjects, `area: imperative summary`, and commits that add launches or waits of kernels.

use std::process::Command;

use anyhow::Result;

use crate::cuda::table;
use crate::workspace;

/// The commit at which the check begins. Only the subjects of later commits are checked.
const SINCE: &str = "d0018f5";
const MAX_CHARS: usize = 65;

/// The accepted imperatives that end in `ing` or in `s`, apart from `ss` and `eed`: `adds`, `added` and `adding` are other
/// forms, `compress` and `proceed` are imperatives.
const IMPERATIVES: &[&str] = &["bring", "bypass", "embed", "focus"];

/// Returns a message for each commit since [`SINCE`] whose subject violates the form, and for each number of launches or
/// waits that a commit raises without naming it. Merge commits are not checked. If
/// [`SINCE`] is not in the history of the clone, no commit is checked.
pub(crate) fn problems() -> Result<Vec<String>> {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(workspace::root()?).args(args);
        workspace::stdout_of(&mut command)
    };
    // A shallow clone or a rewritten history may lack this commit, and then does not show which commits came after it.
    if git(&["merge-base", "--is-ancestor", SINCE, "HEAD"]).is_err() {
        println!("    not checked: commit {SINCE} is not in the history of this clone");
        return Ok(Vec::new());
    }
    let range = format!("{SINCE}..HEAD");
    let log = git(&["log", "--no-merges", "--format=%h %s", &range])?;
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let forms =
        lines.filter_map(|(hash, subject)| Some(format!("{hash}: \"{subject}\": {}", problem(subject)?)));
    // A NUL byte separates the hash, the message and the diff of a commit, and one commit from the next.
    let diffs = git(&[
        "log",
        "--no-merges",
        "--patch",
        "--no-color",
        "--no-ext-diff",
        "--unified=0",
        "--format=%x00%h%x00%B%x00",
        &range,
        "--",
        table::FILE,
    ])?;
    let parts: Vec<&str> = diffs.split('\0').skip(1).collect();
    let rises = parts.chunks(3).flat_map(|part| match part {
        [hash, message, diff] => of_commit(hash, table::unexplained_rises(diff, message)),
        _ => Vec::new(),
    });
    Ok(forms.chain(rises).collect())
}

fn of_commit(hash: &str, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{hash}: {problem}")).collect()
}

/// Returns a message if the subject violates the form, or `None` if it is correct.
fn problem(subject: &str) -> Option<String> {
    let n_chars = subject.chars().count();
    if MAX_CHARS < n_chars {
        return Some(format!("{n_chars} characters, at most {MAX_CHARS} allowed"));
    }
    let Some((area, summary)) = subject.split_once(": ") else {
        return Some("expected `area: imperative summary`".to_owned());
    };
    if area.is_empty()
        || !area.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ",-./_ ".contains(c))
    {
        return Some(format!(
            "expected a crate, a folder or a topic in lower case before the colon, got `{area}`"
        ));
    }
    let verb = summary.split(' ').next().unwrap_or_default();
    let ends_as_other_form = verb.ends_with("ed") || verb.ends_with("ing") || verb.ends_with('s');
    let is_other_form = ends_as_other_form && !verb.ends_with("ss") && !verb.ends_with("eed");
    if !verb.starts_with(|c: char| c.is_ascii_lowercase()) || is_other_form && !IMPERATIVES.contains(&verb) {
        return Some(format!("expected a verb in the imperative after the colon, got `{verb}`"));
    }
    summary.ends_with('.').then(|| "a subject must not end with a full stop".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_subjects_must_have_an_area_and_an_imperative() {
        for subject in [
            "loader: resume a pass from any step",
            "cli, kiln: pass the seed to the trainer",
            "docs/benchmarks: embed the picture",
            "tables: decompress pages in place",
            "loader: proceed after an error",
        ] {
            assert_eq!(problem(subject), None, "{subject}");
        }
        for (subject, expected) in [
            ("Resume a pass", "expected `area"),
            ("Loader: resume a pass", "expected a crate"),
            ("loader: resumes a pass", "expected a verb"),
            ("loader: resumed a pass", "expected a verb"),
            ("loader: Resume a pass", "expected a verb"),
            ("loader: no deadlock at the end.", "a subject must not"),
            (&format!("loader: {}", "a".repeat(58)), "66 characters"),
        ] {
            let problem = problem(subject).unwrap();
            assert!(problem.starts_with(expected), "{subject}: {problem}");
        }
    }
}
