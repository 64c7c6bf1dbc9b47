//! Tests the detection of the launch from flags and variables: several processes, a single process, or an error.

mod attempts;

use kiln_comm::{LaunchEnv, LaunchError, LaunchFlags, MasterAddress};

/// Reads `--flag=value` words as the command line, and all others as the environment.
fn detect(words: &str) -> Result<Option<LaunchEnv>, LaunchError> {
    let pairs: Vec<_> = words.split(' ').filter_map(|word| word.split_once('=')).collect();
    let value = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
    let number = |name: &str| value(name).map(|value| value.parse().expect("a flag should be a number"));
    let flags = LaunchFlags {
        rank: number("--rank"),
        world_size: number("--world-size"),
        local_rank: number("--local-rank"),
        master: value("--master").map(|text| text.parse().expect("the flag should be HOST:PORT")),
    };
    LaunchEnv::detect(&flags, |name| value(name).filter(|_| !name.starts_with('-')))
}

/// Checks that each line of flags and variables leads to the launch or the error next to it.
fn check_launches(table: &[(&str, &str)]) {
    for (words, expected) in table {
        let got = match detect(words) {
            Ok(Some(launch)) => launch.to_string(),
            Ok(None) => "one process".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, *expected, "the variables are {words}");
    }
}

/// Returns a line of variables: the usual ones of a launcher, with changes.
fn with(usual: &str, changes: &str) -> String {
    // If a name occurs twice, `detect` uses the first value.
    format!("{changes} {usual}")
}

fn check_changes(usual: &str, table: &[(&str, &str)]) {
    let lines: Vec<_> = table.iter().map(|(changes, expected)| (with(usual, changes), *expected)).collect();
    check_launches(&lines.iter().map(|(line, expected)| (line.as_str(), *expected)).collect::<Vec<_>>());
}

/// The variables that torchrun sets for the third of four ranks on two machines.
const TORCHRUN: &str =
    "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0";
/// The variables that `srun -N2 --ntasks-per-node=2` sets in the last of its tasks.
const SLURM: &str = "SLURM_JOB_ID=12 SLURM_NTASKS=4 SLURM_JOB_NODELIST=vnode[1-2] SLURM_NODEID=1 SLURM_STEP_ID=0 \
    SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 SLURM_LOCALID=1";
/// The variables that Slurm sets in the batch script of a job with four tasks on two machines.
const SBATCH: &str =
    "SLURM_JOB_ID=12 SLURM_NTASKS=4 SLURM_JOB_NODELIST=vnode[1-2] SLURM_PROCID=0 SLURM_LOCALID=0";

#[test]
fn no_launcher_means_one_process() {
    check_launches(&[
        ("", "one process"),
        ("RANK= WORLD_SIZE= PMIX_RANK= SLURM_STEP_ID=", "one process"),
        // An address and a port do not determine a rank.
        ("MASTER_ADDR=node1 MASTER_PORT=29500", "one process"),
        ("--master=node1:29500", "one process"),
        // Without a job id, this is not a Slurm job.
        ("SLURM_NTASKS=4", "one process"),
    ]);
}

#[test]
fn launch_flags_are_detected_and_checked() {
    let incomplete = "give both --rank and --world-size, or no launch flags";
    check_launches(&[
        ("--rank=1 --world-size=2", "rank 1 of 2, local rank 1, by the flags"),
        (
            "--rank=1 --world-size=2 --local-rank=0 --master=node1:400",
            "rank 1 of 2, local rank 0, by the flags, master node1:400",
        ),
        ("--rank=0 --world-size=1", "rank 0 of 1, local rank 0, by the flags"),
        ("--rank=1", &format!("the launch by the flags has --rank=1, but lacks --world-size: {incomplete}")),
        (
            "--world-size=2",
            &format!("the launch by the flags has --world-size=2, but lacks --rank: {incomplete}"),
        ),
        (
            "--local-rank=2",
            &format!(
                "the launch by the flags has --local-rank=2, but lacks --rank, --world-size: {incomplete}"
            ),
        ),
        ("--rank=2 --world-size=2", &misfit("--rank=2", "--world-size=2")),
        ("--rank=0 --world-size=0", &misfit("--rank=0", "--world-size=0")),
        ("--rank=0 --world-size=2 --local-rank=2", &misfit("--local-rank=2", "--world-size=2")),
    ]);
}

fn misfit(first: &str, second: &str) -> String {
    format!(
        "{first} does not fit {second}: ranks count from 0 and are less than the number of processes, and no \
         machine has more processes than the job; correct one of them"
    )
}

fn no_number(setting: &str) -> String {
    format!("{setting} is not a whole number: correct it, or unset it and give --rank and --world-size")
}

fn contradiction(first: &str, second: &str) -> String {
    format!(
        "{first}, but {second}: two launchers contradict each other; unset all variables of one of them, or give \
         --rank and --world-size"
    )
}

#[test]
fn torchrun_variables_are_detected_and_checked() {
    let lacks = |found: &str, missing: &str| {
        format!(
            "the launch by torchrun has {found}, but lacks {missing}: set the missing variables, as torchrun \
             does, or unset the others"
        )
    };
    let no_port = |port: &str| {
        format!(
            "MASTER_PORT={port} provides no port for rank 0: expected 1 to 65535, or 1 to 65534 if \
             TORCHELASTIC_USE_AGENT_STORE=True, as torchrun then listens on this port itself and rank 0 on the \
             next one; correct it, or give --master HOST:PORT"
        )
    };
    let at = |master: &str| format!("rank 2 of 4, local rank 0, by torchrun, master {master}");
    let all = "RANK=2, WORLD_SIZE=4, LOCAL_RANK=0";
    check_changes(
        TORCHRUN,
        &[
            ("", &at("node1:29500")),
            ("LOCAL_WORLD_SIZE=", &at("node1:29500")),
            ("MASTER_ADDR=fd00::1", &at("[fd00::1]:29500")),
            // torchrun's agent listens at the port itself, so rank 0 uses the next one.
            ("TORCHELASTIC_USE_AGENT_STORE=True", &at("node1:29501")),
            ("TORCHELASTIC_USE_AGENT_STORE=true MASTER_PORT=65534", &at("node1:65535")),
            ("TORCHELASTIC_USE_AGENT_STORE=False MASTER_PORT=65535", &at("node1:65535")),
            ("TORCHELASTIC_USE_AGENT_STORE=TRUE MASTER_PORT=65535", &no_port("65535")),
            ("MASTER_PORT=0", &no_port("0")),
            ("MASTER_PORT=65536", &no_port("65536")),
            ("MASTER_PORT=http", &no_port("http")),
            (
                "MASTER_ADDR=tcp://node1",
                "MASTER_ADDR=tcp://node1 names no host for rank 0: correct it, or give --master HOST:PORT",
            ),
            ("RANK=", &lacks("WORLD_SIZE=4, LOCAL_RANK=0", "RANK")),
            ("WORLD_SIZE=", &lacks("RANK=2, LOCAL_RANK=0", "WORLD_SIZE")),
            ("LOCAL_RANK=", &lacks("RANK=2, WORLD_SIZE=4", "LOCAL_RANK")),
            ("RANK= WORLD_SIZE=", &lacks("LOCAL_RANK=0", "RANK, WORLD_SIZE")),
            ("MASTER_ADDR=", &lacks(all, "MASTER_ADDR")),
            ("MASTER_PORT=", &lacks(all, "MASTER_PORT")),
            ("RANK=two", &no_number("RANK=two")),
            ("WORLD_SIZE=-4", &no_number("WORLD_SIZE=-4")),
            ("LOCAL_RANK=0.5", &no_number("LOCAL_RANK=0.5")),
            ("LOCAL_WORLD_SIZE=all", &no_number("LOCAL_WORLD_SIZE=all")),
            ("RANK=4", &misfit("RANK=4", "WORLD_SIZE=4")),
            ("LOCAL_RANK=4", &misfit("LOCAL_RANK=4", "WORLD_SIZE=4")),
            ("LOCAL_RANK=2", &misfit("LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2")),
            ("LOCAL_WORLD_SIZE=5", &misfit("LOCAL_WORLD_SIZE=5", "WORLD_SIZE=4")),
        ],
    );
    check_launches(&[
        ("RANK=2", &lacks("RANK=2", "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT")),
        ("RANK=2 --master=node2:400", &lacks("RANK=2", "WORLD_SIZE, LOCAL_RANK")),
        // The manifest of a Kubernetes Indexed Job sets these variables, one process per pod.
        (
            "JOB_COMPLETION_INDEX=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=train-0.train \
             MASTER_PORT=29400",
            "rank 1 of 2, local rank 0, by torchrun, master train-0.train:29400",
        ),
        (
            "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29400",
            "rank 0 of 1, local rank 0, by torchrun, master localhost:29400",
        ),
    ]);
}

#[test]
fn open_mpi_variables_are_detected_and_checked() {
    let lacks = |found: &str, missing: &str| {
        format!(
            "the launch by Open MPI has {found}, but lacks {missing}: start with mpirun, which sets all of them, \
             or unset the others"
        )
    };
    check_changes(
        OPEN_MPI,
        &[
            ("", "rank 2 of 4, local rank 0, by Open MPI"),
            ("LOCAL_WORLD_SIZE=another's", "rank 2 of 4, local rank 0, by Open MPI"),
            // Newer versions of Open MPI start processes through PMIx.
            ("PMIX_RANK=2", "rank 2 of 4, local rank 0, by Open MPI"),
            (
                "OMPI_COMM_WORLD_RANK=",
                &lacks("OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_RANK"),
            ),
            (
                "OMPI_COMM_WORLD_RANK= OMPI_COMM_WORLD_SIZE=",
                &lacks("OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE"),
            ),
            ("OMPI_COMM_WORLD_SIZE=many", &no_number("OMPI_COMM_WORLD_SIZE=many")),
            ("OMPI_COMM_WORLD_SIZE=2", &misfit("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2")),
            (
                "OMPI_COMM_WORLD_LOCAL_RANK=9",
                &misfit("OMPI_COMM_WORLD_LOCAL_RANK=9", "OMPI_COMM_WORLD_SIZE=4"),
            ),
        ],
    );
}

#[test]
fn slurm_steps_are_detected_and_checked() {
    let lacks = |missing: &str| {
        format!(
            "the launch by a Slurm step has SLURM_STEP_ID=0, but lacks {missing}: start with srun, which sets \
             all of them, or give --rank, --world-size and --master"
        )
    };
    check_changes(
        SLURM,
        &[
            ("", "rank 3 of 4, local rank 1, by a Slurm step, master vnode1:29412"),
            (
                "SLURM_STEP_ID= SLURM_STEPID=0",
                "rank 3 of 4, local rank 1, by a Slurm step, master vnode1:29412",
            ),
            // A step may have other hosts and fewer tasks than its job.
            (
                "SLURM_STEP_NODELIST=vnode2 SLURM_NTASKS=8",
                "rank 3 of 4, local rank 1, by a Slurm step, master vnode2:29412",
            ),
            ("SLURM_JOB_ID=4294966999", "rank 3 of 4, local rank 1, by a Slurm step, master vnode1:30399"),
            // A step of one task and the shell of `salloc` are single processes.
            ("SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", "one process"),
            ("SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", "one process"),
            ("SLURM_PROCID=", &lacks("SLURM_PROCID")),
            ("SLURM_LOCALID= SLURM_STEP_NUM_TASKS=", &lacks("SLURM_STEP_NUM_TASKS, SLURM_LOCALID")),
            ("SLURM_JOB_ID= SLURM_JOB_NODELIST=", &lacks("SLURM_JOB_NODELIST, SLURM_JOB_ID")),
            ("SLURM_JOB_ID= SLURM_STEP_NODELIST=vnode2", &lacks("SLURM_JOB_ID")),
            ("SLURM_PROCID=three", &no_number("SLURM_PROCID=three")),
            ("SLURM_JOB_ID=12_1", &no_number("SLURM_JOB_ID=12_1")),
            ("SLURM_PROCID=4", &misfit("SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=4")),
            ("SLURM_LOCALID=4", &misfit("SLURM_LOCALID=4", "SLURM_STEP_NUM_TASKS=4")),
        ],
    );
}

#[test]
fn slurm_scripts_without_srun_are_rejected() {
    let refused = "started without srun in an sbatch script or under salloc: SLURM_NTASKS=4, but SLURM_STEP_ID \
        names no step, so this is the only process; start it as `srun PROGRAM ...`, or, to train in one \
        process, unset SLURM_NTASKS or request one task";
    check_changes(
        SBATCH,
        &[
            ("", refused),
            ("SLURM_STEP_ID=4294967291", refused),
            ("SLURM_STEPID=4294967291", refused),
            ("SLURM_NTASKS=2", &refused.replace("NTASKS=4", "NTASKS=2")),
            ("SLURM_NTASKS=1", "one process"),
            ("SLURM_NTASKS=", "one process"),
            ("SLURM_NTASKS=four", &no_number("SLURM_NTASKS=four")),
            // Other launchers start all processes without srun.
            (TORCHRUN, "rank 2 of 4, local rank 0, by torchrun, master node1:29500"),
            (OPEN_MPI, "rank 2 of 4, local rank 0, by Open MPI"),
            ("--rank=0 --world-size=2", "rank 0 of 2, local rank 0, by the flags"),
        ],
    );
}

#[test]
fn pmix_takes_its_numbers_from_the_slurm_step() {
    let lacks = |missing: &str| {
        format!(
            "the launch by PMIx has PMIX_RANK=3, but lacks {missing}: the world size is available in a Slurm step \
             only; start with `srun --mpi=pmix` or mpirun of Open MPI, or give --rank and --world-size"
        )
    };
    let all = "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_JOB_NODELIST, SLURM_JOB_ID";
    check_launches(&[
        (&with(SLURM, "PMIX_RANK=3"), "rank 3 of 4, local rank 1, by PMIx, master vnode1:29412"),
        (
            &with(SLURM, "PMIX_RANK=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1"),
            "rank 0 of 1, local rank 0, by PMIx, master vnode1:29412",
        ),
        (&with(SLURM, "PMIX_RANK=2"), &contradiction("SLURM_PROCID=3", "PMIX_RANK=2")),
        (&with(SLURM, "PMIX_RANK=x"), &no_number("PMIX_RANK=x")),
        ("PMIX_RANK=3", &lacks(all)),
        (&with(SBATCH, "PMIX_RANK=3"), &lacks("SLURM_STEP_NUM_TASKS")),
    ]);
}

#[test]
fn the_first_launcher_wins_unless_another_contradicts() {
    let torchrun = "rank 2 of 4, local rank 0, by torchrun, master node1:29500";
    check_changes(
        TORCHRUN,
        &[
            (OPEN_MPI, torchrun),
            // Each Slurm task runs a torchrun agent, which assigns its own ranks.
            (SLURM, torchrun),
            ("PMIX_RANK=1", torchrun),
            ("--rank=0 --world-size=3", "rank 0 of 3, local rank 0, by the flags"),
            ("OMPI_COMM_WORLD_RANK=1", &contradiction("RANK=2", "OMPI_COMM_WORLD_RANK=1")),
            ("OMPI_COMM_WORLD_SIZE=8", &contradiction("WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=8")),
            ("OMPI_COMM_WORLD_SIZE=x", &no_number("OMPI_COMM_WORLD_SIZE=x")),
        ],
    );
    // mpirun may run inside a Slurm job.
    check_changes(SLURM, &[(OPEN_MPI, "rank 2 of 4, local rank 0, by Open MPI")]);
}

#[test]
fn the_master_flag_overrides_the_address_of_any_launcher() {
    check_launches(&[
        (
            &with(TORCHRUN, "--master=node7:400 MASTER_ADDR= MASTER_PORT="),
            "rank 2 of 4, local rank 0, by torchrun, master node7:400",
        ),
        (&with(OPEN_MPI, "--master=[::1]:400"), "rank 2 of 4, local rank 0, by Open MPI, master [::1]:400"),
        (
            &with(SLURM, "--master=node7:400 SLURM_JOB_NODELIST=?"),
            "rank 3 of 4, local rank 1, by a Slurm step, master node7:400",
        ),
        (
            &with(SLURM, "--master=node7:400 PMIX_RANK=3"),
            "rank 3 of 4, local rank 1, by PMIx, master node7:400",
        ),
    ]);
}

#[test]
fn reads_the_first_host_of_a_slurm_node_list() {
    for (list, host) in [
        ("vnode1", "vnode1"),
        ("vnode[1-2,5]", "vnode1"),
        ("vnode[5,1-2]", "vnode5"),
        ("a01,b[03-04]", "a01"),
        ("b[03-04],a01", "b03"),
        ("rack[2-3]-ib", "rack2-ib"),
        ("rack[2-3]-ib,login", "rack2-ib"),
        ("r[1-2]n[007,009].site,x", "r1n007.site"),
        ("r[1-2][08-10]", "r108"),
    ] {
        let launch = detect(&with(SLURM, &format!("SLURM_JOB_NODELIST={list}")));
        let master = launch.expect("the list should be read").and_then(|launch| launch.master);
        assert_eq!(master, Some(MasterAddress { host: host.to_owned(), port: 29_412 }), "the list is {list}");
    }
    for list in ["vnode[1-2", "vnode[]", "vnode[a-b]", "vnode[-2]", "vnode]1", ",vnode1", "[", "vnode[+1]"] {
        let error = detect(&with(SLURM, &format!("SLURM_JOB_NODELIST={list}")));
        let expected = format!(
            "SLURM_JOB_NODELIST={list} names no host for rank 0: correct it, or give --master HOST:PORT"
        );
        assert_eq!(error.expect_err("the list should be refused").to_string(), expected);
    }
}

#[test]
fn master_addresses_round_trip_and_invalid_ones_are_rejected() {
    for (text, host, port) in [
        ("node1:29400", "node1", 29_400),
        ("10.77.0.1:1", "10.77.0.1", 1),
        ("train-0.train:65535", "train-0.train", 65_535),
        ("[fd00::1]:400", "fd00::1", 400),
    ] {
        let master: MasterAddress = text.parse().expect("the text should be a master address");
        assert_eq!(master, MasterAddress { host: host.to_owned(), port });
        assert_eq!(master.to_string(), text);
    }
    for text in [
        "",
        "node1",
        "node1:",
        ":400",
        "node1:0",
        "node1:65536",
        "node1:http",
        "fd00::1:400",
        "[fd00::1]",
        "[fd00::1:400",
        "[node1]:400",
        "http://node1:400",
        "node 1:400",
        "[]:400",
    ] {
        let error = text.parse::<MasterAddress>().expect_err("the text should be refused");
        let expected = format!(
            "{text:?} is not HOST:PORT: write node1:29400 or [::1]:29400, with a port from 1 to 65535"
        );
        assert_eq!(error.to_string(), expected);
    }
}
