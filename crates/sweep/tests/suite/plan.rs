//! Tests of the plan: grids, random cells, and files that are rejected.

use std::collections::BTreeSet;

use kiln_sweep::{CoreShare, Plan, PlanError};

pub(crate) fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse(text, "sweep.toml".as_ref())
}

fn settings(plan: &Plan) -> Vec<String> {
    plan.runs().iter().map(|flags| format!("{} seed={}", plan.settings(flags), flags["seed"])).collect()
}

#[test]
fn a_grid_has_all_combinations_and_a_run_for_every_seed() {
    let text = "epochs = 2\nresidual = true\n[sweep]\nlr = [0.1, 1e-2]\nfanouts = [[5, 3], \"10\"]\nseed = [7, 18446744073709551615.0]";
    let text = text.replace("18446744073709551615.0", "\"18446744073709551615\"");
    let plan = parse(&text).unwrap();
    let expected = [
        "fanouts=5,3, lr=0.1 seed=7",
        "fanouts=5,3, lr=0.1 seed=18446744073709551615",
        "fanouts=5,3, lr=0.01 seed=7",
        "fanouts=5,3, lr=0.01 seed=18446744073709551615",
        "fanouts=10, lr=0.1 seed=7",
        "fanouts=10, lr=0.1 seed=18446744073709551615",
        "fanouts=10, lr=0.01 seed=7",
        "fanouts=10, lr=0.01 seed=18446744073709551615",
    ];
    assert_eq!(settings(&plan), expected);
    assert!(plan.runs().iter().all(|flags| flags["epochs"] == "2" && flags["residual"] == "true"));
    // YAML and JSON have the same tables.
    let yaml = "sweep: {lr: [0.1, 0.01]}\nepochs: 2\nseed: 3\n";
    let json = r#"{"sweep": {"lr": [0.1, 0.01]}, "epochs": 2, "seed": 3}"#;
    for (text, name) in [(yaml, "sweep.yaml"), (json, "sweep.json")] {
        let plan = Plan::parse(text, name.as_ref()).unwrap();
        assert_eq!(settings(&plan), ["lr=0.1 seed=3", "lr=0.01 seed=3"], "{name}");
    }
}

const RANDOM: &str = "\
[sweep]
model = [\"sage\", \"gat\"]
hidden = { min = 8, max = 11 }
lr = { min = 1e-4, max = 1e-1, scale = \"log\" }
dropout = { min = 0, max = 0.5 }
seed = [0, 1]
[random]
seed = 3
";

#[test]
fn random_cells_are_within_their_ranges_and_repeated_by_their_seed() {
    let plan = parse(&format!("{RANDOM}trials = 200")).unwrap();
    assert_eq!(plan.runs().len(), 400);
    let values = |flag: &str| plan.runs().iter().map(|flags| flags[flag].as_str()).collect::<Vec<_>>();
    let numbers = |flag: &str| values(flag).iter().map(|value| value.parse().unwrap()).collect::<Vec<f64>>();
    assert_eq!(values("hidden").into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["10", "11", "8", "9"]));
    assert_eq!(values("model").into_iter().collect::<BTreeSet<_>>().len(), 2);
    let lrs = numbers("lr");
    assert!(lrs.iter().all(|lr| (1e-4..=1e-1).contains(lr)));
    // Each of the three decades has about a third of the draws.
    for decade in [1e-4, 1e-3, 1e-2] {
        let n_draws = lrs.iter().filter(|lr| (decade..decade * 10.0).contains(*lr)).count();
        assert!((90..=180).contains(&n_draws), "{decade}: {n_draws}");
    }
    let n_small = numbers("dropout").iter().filter(|dropout| **dropout < 0.25).count();
    assert!((150..=250).contains(&n_small), "{n_small}");
    // More trials keep the earlier cells; another seed draws others.
    let fewer = parse(&format!("{RANDOM}trials = 20")).unwrap();
    assert_eq!(fewer.runs(), &plan.runs()[..40]);
    let other = parse(&format!("{}trials = 20", RANDOM.replace("seed = 3", "seed = 4"))).unwrap();
    assert_ne!(fewer.runs(), other.runs());
    // Cells are distinct, as far as there are any.
    let lists = "[sweep]\nhidden = [8, 16]\nlayers = { min = 1, max = 2 }\n[random]\n";
    let all = parse(&format!("{lists}trials = 4")).unwrap();
    assert_eq!(all.runs().iter().collect::<BTreeSet<_>>().len(), 4);
    let error = parse(&format!("{lists}trials = 5")).unwrap_err().to_string();
    assert!(error.contains("`trials` is 5, and only 4 different cells were found"), "{error}");
}

#[test]
fn whole_ranges_around_zero_have_one_zero() {
    for min in [0, -1] {
        let text = format!("[sweep]\nlayers = {{ min = {min}, max = 1 }}\n[random]\ntrials = {}", 2 - min);
        let plan = parse(&text).unwrap();
        let drawn: BTreeSet<String> = plan.runs().iter().map(|flags| flags["layers"].clone()).collect();
        let expected: BTreeSet<String> = (min..=1).map(|value| value.to_string()).collect();
        assert_eq!(drawn, expected);
        let error = parse(&text.replace("trials = ", "trials = 1")).unwrap_err().to_string();
        assert!(error.contains(&format!("only {} different cells", 2 - min)), "{error}");
    }
}

#[test]
fn bad_files_are_rejected_with_what_to_write() {
    for (text, expected) in [
        ("lr = 0.1", "sweep.toml has no table `sweep` with lists of values: add one"),
        ("sweep = 3", "has no table `sweep`"),
        ("[sweep]", "has no table `sweep`"),
        ("[sweep]\nlr = 0.1", "`sweep.lr` is 0.1, expected a list of values, such as [0.01, 0.003]"),
        ("[sweep]\nlr = []", "`sweep.lr` is an empty list, expected at least one value"),
        ("[sweep]\nlr = [0.1, 0.10]", "`sweep.lr` has the value 0.1 twice: remove one"),
        ("[sweep]\nlr = [[[1]]]", "`sweep.lr` has the value [[1]], expected values or lists of values"),
        ("[sweep]\nlr = { min = 1, max = 2 }", "`sweep.lr` is a range, which a grid cannot have"),
        ("[sweep]\nseed = [-1]", "`sweep.seed` has the value -1, expected whole numbers from 0"),
        ("lr = 0.1\n[sweep]\nlr = [0.2]", "`sweep.lr` is a flag of all runs, too: remove one of them"),
        (
            "out = \"a\"\n[sweep]\nlr = [0.2]",
            "--out is not supported in a sweep: the sweep names the folders of its runs; remove it",
        ),
        (
            "[sweep]\nmaster = [\"a:1\"]",
            "--master is not supported in a sweep: its runs are single processes",
        ),
        ("[search]\ntrials = 1\n[sweep]\nlr = [0.2]", "`search` is a table, expected a value or a list"),
        (
            "[sweep]\nlr = [0.2]\n[random]\ntrials = 0",
            "`random`: `trials` is 0, expected a whole number from 1",
        ),
        (
            "[sweep]\nlr = [0.2]\n[random]\ntrials = -1",
            "`random`: `trials` is -1, expected a whole number from 1",
        ),
        (
            "[sweep]\nlr = [0.2]\n[random]\ntrials = 1\nseed = 0.5",
            "`random`: `seed` is 0.5, expected a whole number from 0",
        ),
        ("random = 3\n[sweep]\nlr = [0.2]", "`random`: it is 3, expected a table with the number of cells"),
        (
            "[sweep]\nlr = [0.2]\n[random]\nseed = 1",
            "`random`: it has no `trials`, expected the number of cells",
        ),
        (
            "[sweep]\nlr = [0.2]\n[random]\ntrial = 1",
            "`random`: it has the key `trial`, expected trials and seed (did you mean `trials`?)",
        ),
        ("seed = 1.5\n[sweep]\nlr = [0.2]", "sweep.toml: `seed` is 1.5, expected a whole number from 0"),
        (
            "[sweep]\nlr = { min = 2, max = 1 }\n[random]\ntrials = 1",
            "a range from 2 to 1, expected min below max",
        ),
        ("[sweep]\nlr = { min = 0, max = 1, scale = \"log\" }\n[random]\ntrials = 1", "expected min above 0"),
        (
            "[sweep]\nlr = { mni = 0, max = 1 }\n[random]\ntrials = 1",
            "has the key `mni`, expected min, max and scale",
        ),
        ("[sweep]\nlr = { min = 0 }\n[random]\ntrials = 1", "is no range such as"),
        (
            "[sweep]\nseed = { min = 0, max = 9 }\n[random]\ntrials = 1",
            "is a range, expected a list of seeds",
        ),
        ("[sweep]\nlr = [0.2]\n[random]\ntrials = 20000", "has 20000 runs, expected at most 10000"),
        ("[sweep\nlr = [0.2]", "is not a table of flags and values"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("sweep.toml") && error.contains(expected), "{text:?}: {error}");
    }
    let seeds: Vec<String> = (0..200).map(|seed| seed.to_string()).collect();
    let text = format!("[sweep]\nseed = [{0}]\nhidden = [{0}]", seeds.join(", "));
    assert!(parse(&text).unwrap_err().to_string().contains("has 40000 runs, expected at most 10000"));
    let error = Plan::read("none/sweep.toml".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("none/sweep.toml: "), "{error}");
}

#[test]
fn cores_are_divided_among_runs_and_ranks() {
    let share = |common: &str, parallel, n_cores| {
        let plan = parse(&format!("{common}\n[sweep]\nlr = [0.1, 0.2, 0.3, 0.4]")).unwrap();
        let share = CoreShare::new(&plan, parallel, n_cores);
        (share.parallel, share.threads_per_rank(&plan.runs()[0]))
    };
    assert_eq!(share("", None, 2), (2, Some(1)));
    // No more than there are runs.
    assert_eq!(share("", None, 64), (4, Some(16)));
    assert_eq!(share("", Some(2), 64), (2, Some(32)));
    assert_eq!(share("", Some(4), 2), (4, Some(1)));
    assert_eq!(share("ranks = 2", None, 4), (2, Some(1)));
    assert_eq!(share("threads-per-rank = 3", None, 8), (2, None));
    assert_eq!(share("device = \"cuda\"", None, 8), (1, Some(8)));
    assert_eq!(share("ranks = \"auto\"", None, 8), (1, None));
    // The pool of a process is not above its cores, and not above `RAYON_NUM_THREADS` in the environment.
    let cores = CoreShare { parallel: 2, cores_per_run: 4 };
    let pools = [None, Some("3"), Some("8"), Some("0"), Some("x")].map(|given| cores.pool_threads(given));
    assert_eq!(pools, [4, 3, 4, 4, 4]);
}
