//! Tests of `launch`: ranks that are threads, and the errors of joining processes.

use kiln_comm::{
    JobError, LaunchFlags, Rank, RankConfig, RankError, RankGroup, RankInfo, Reduce, TransientError, launch,
};

/// Returns the configuration for these variables; two threads if they describe no launch.
fn of_vars(vars: &[(&str, &str)]) -> RankConfig {
    let value = |name: &str| vars.iter().find(|var| var.0 == name).map(|var| var.1.to_owned());
    RankConfig::from_vars_or_threads(2, &LaunchFlags::default(), value).threads_per_rank(1)
}

/// Returns the sum of the rank numbers.
fn sum(mut rank: Rank) -> kiln_comm::Result<f32> {
    let mut sum = [rank.info.rank as f32];
    rank.comm.all_reduce_sum(Reduce::F32(&mut sum))?;
    Ok(sum[0])
}

/// Returns the variables that torchrun sets for rank 0 of `world_size` processes.
fn torchrun(world_size: &'static str) -> [(&'static str, &'static str); 5] {
    [
        ("RANK", "0"),
        ("WORLD_SIZE", world_size),
        ("LOCAL_RANK", "0"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
    ]
}

#[test]
fn launch_runs_ranks_as_threads() {
    let ranks = launch(RankConfig::threads(3).threads_per_rank(2), |rank| {
        assert_eq!(rank.comm.rank_info(), rank.info);
        assert_eq!(rayon::current_num_threads(), 2);
        Ok::<_, RankError>((rank.info, rank.threads))
    });
    let expected = |rank| (RankInfo { rank, world_size: 3, local_rank: rank }, 2);
    assert_eq!(ranks.unwrap(), [0, 1, 2].map(expected));
    assert_eq!(launch(RankConfig::threads(3), sum).unwrap(), [3.0; 3]);
}

#[test]
fn launch_runs_threads_if_a_launcher_started_at_most_one_process() {
    assert_eq!(launch(of_vars(&[]), sum).unwrap(), [1.0; 2]);
    assert_eq!(launch(of_vars(&torchrun("1")), sum).unwrap(), [1.0; 2]);
}

#[test]
fn launch_returns_the_error_of_an_incomplete_launcher() {
    let error = launch(of_vars(&[("RANK", "0")]), sum).unwrap_err();
    assert!(matches!(error, RankError::Join(JobError::Launch(_))), "{error:?}");
    assert!(error.to_string().contains("lacks WORLD_SIZE"), "{error}");
    assert_eq!(error.exit_status(), 70);
}

/// Without the feature `grpc`, a program cannot connect processes.
#[cfg(not(feature = "grpc"))]
#[test]
fn launch_rejects_processes_without_the_feature_grpc() {
    let error = launch(of_vars(&torchrun("2")), sum).unwrap_err();
    assert!(matches!(error, RankError::Join(JobError::NoProcesses { .. })), "{error:?}");
    let expected = "rank 0 of 2, local rank 0, by torchrun, master 127.0.0.1:29500: this program was built without \
                    the feature `grpc` of kiln-comm";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn transient_errors_of_thread_ranks_have_exit_status_75() {
    let full = || std::io::Error::other("no space left");
    let fails = |is_transient: bool| {
        let outcome = launch(RankConfig::threads(2), |rank| match (rank.info.rank, is_transient) {
            (1, true) => Err(kiln_comm::BoxError::from(TransientError(full().into()))),
            (1, false) => Err(full().into()),
            _ => Ok(sum(rank)?),
        });
        outcome.unwrap_err()
    };
    let [transient, other] = [true, false].map(fails);
    assert_eq!([transient.to_string(), other.to_string()], ["rank 1: no space left"; 2]);
    assert_eq!([transient.exit_status(), other.exit_status()], [75, 70]);
}

#[test]
fn rank_group_returns_its_number_of_threads_before_it_runs() {
    let group = RankGroup::join(RankConfig::threads(2).threads_per_rank(3)).unwrap();
    assert_eq!(group.threads(), 3);
    let threads = group.run(|rank| Ok::<_, RankError>(rank.threads)).unwrap();
    assert_eq!(threads, [3; 2]);
}
