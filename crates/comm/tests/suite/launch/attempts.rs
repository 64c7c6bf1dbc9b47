//! Tests of the maximum size of a job, and of the ids of attempts at a job.

use super::{SLURM, TORCHRUN, check_launches, detect, with};

#[test]
fn rejects_more_processes_than_a_job_can_have() {
    check_launches(&[
        ("--rank=0 --world-size=65536", "rank 0 of 65536, local rank 0, by the flags"),
        (
            "--rank=0 --world-size=65537",
            "--world-size=65537 is too many processes: expected at most 65536; correct it",
        ),
        (
            &with(TORCHRUN, "WORLD_SIZE=4000000000"),
            "WORLD_SIZE=4000000000 is too many processes: expected at most 65536; correct it",
        ),
    ]);
}

#[test]
fn launchers_identify_the_attempt_at_a_job() {
    let torchrun = with(TORCHRUN, "TORCHELASTIC_RUN_ID=a-job TORCHELASTIC_RESTART_COUNT=2");
    for (words, expected) in [
        (SLURM, Some("12.0")),
        (&with(SLURM, "SLURM_RESTART_COUNT=1"), Some("12.0, restart 1")),
        (&torchrun, Some("a-job, agent restart 2")),
        (TORCHRUN, None),
        ("--rank=0 --world-size=2", None),
        // These variables belong to a launcher that is not used.
        (&with("--rank=0 --world-size=2", &torchrun), None),
    ] {
        assert_eq!(detect(words).unwrap().unwrap().job_id.as_deref(), expected, "the variables are {words}");
    }
}
