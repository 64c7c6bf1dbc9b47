//! Tests of the folder of a sweep: what it records, and which other plans may continue it.

use std::fs;
use std::path::Path;

use kiln_sweep::{Error, Sweep};

use crate::plan::parse;

const PLAN: &str = "epochs = 5\n[sweep]\nlr = [0.1, 0.2]\nseed = [0]";

fn open(text: &str, folder: &Path) -> Result<Sweep, Error> {
    Sweep::open(parse(text).unwrap(), folder)
}

fn names(sweep: &Sweep) -> Vec<String> {
    let name = |run: &kiln_sweep::SweepRun| format!("{} lr={}", run.name, run.flags["lr"]);
    sweep.runs().iter().map(name).collect()
}

#[test]
fn added_values_and_seeds_keep_the_folders_of_earlier_runs() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    drop(open(PLAN, &folder).unwrap());
    let added = PLAN.replace("[0.1, 0.2]", "[0.05, 0.10, 0.2]").replace("seed = [0]", "seed = [1, 0]");
    let expected = [
        "cell-003-seed-1 lr=0.05",
        "cell-003-seed-0 lr=0.05",
        "cell-001-seed-1 lr=0.1",
        "cell-001-seed-0 lr=0.1",
        "cell-002-seed-1 lr=0.2",
        "cell-002-seed-0 lr=0.2",
    ];
    assert_eq!(names(&Sweep::preview(parse(&added).unwrap(), &folder).unwrap()), expected);
    assert_eq!(names(&open(&added, &folder).unwrap()), expected);
    assert_eq!(names(&open(&added, &folder).unwrap()), expected);
}

#[test]
fn a_changed_plan_is_an_error_that_names_the_difference() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    drop(open(PLAN, &folder).unwrap());
    for (from, to, expected) in [
        ("epochs = 5", "epochs = 6", "--epochs was 5 and is 6 now"),
        ("epochs = 5", "", "--epochs was 5 and is not set now"),
        ("epochs = 5", "epochs = 5\nhidden = 8", "--hidden was not set and is 8 now"),
        ("[0.1, 0.2]", "[0.1, 0.3]", "--lr was 0.1 or 0.2 and is 0.1 or 0.3 now"),
        ("seed = [0]", "seed = [1]", "--seed was 0 and is 1 now"),
    ] {
        let error = open(&PLAN.replace(from, to), &folder).unwrap_err();
        let said = error.to_string();
        assert!(
            error.is_usage() && said.contains(expected) && said.contains("another folder with --out"),
            "{said}"
        );
    }
    let random = root.path().join("random");
    let text = "[sweep]\nlr = [1, 2, 3]\nhidden = [4, 5, 6]\n[random]\ntrials = 6\nseed = 1";
    drop(open(text, &random).unwrap());
    let record = fs::read_to_string(random.join("sweep.json")).unwrap();
    assert!(record.contains("\"settings\": {\n      \"hidden\": ["), "{record}");
    for (from, to, expected) in [
        ("seed = 1", "seed = 2", "random: random.seed was 1 and is 2 now; restore"),
        ("trials = 6", "trials = 5", "random: random.trials was 6 and is 5 now; restore"),
        ("[1, 2, 3]", "[3, 2, 1]", "random: sweep.lr was 1 or 2 or 3 and is 3 or 2 or 1 now; restore"),
        (
            "[4, 5, 6]",
            "{ min = 4, max = 9 }",
            "random: sweep.hidden was 4 or 5 or 6 and is 4 to 9 now; restore",
        ),
        ("[4, 5, 6]", "[4, 5, 6]\nlayers = [1, 2]", "sweep.layers was not set and is 1 or 2 now"),
        ("[sweep]", "epochs = 3\n[sweep]", "random: --epochs was not set and is 3 now; restore"),
        (
            "[1, 2, 3]\nhidden = [4, 5, 6]\n[random]\ntrials = 6\nseed = 1",
            "[1]\nhidden = [4, 5, 6]",
            "random: the cells were drawn and are a grid now; restore",
        ),
    ] {
        let said = open(&text.replace(from, to), &random).unwrap_err().to_string();
        assert!(
            said.contains(expected) && said.contains("(more trials and seeds may be added)"),
            "{to}: {said}"
        );
    }
    let added = text.replace("trials = 6", "trials = 8\n").replace("[random]", "seed = [0, 1]\n[random]");
    assert_eq!(open(&added, &random).unwrap().runs().len(), 16);
    // The record has the added trials, too.
    let said = open(&added.replace("trials = 8", "trials = 7"), &random).unwrap_err().to_string();
    assert!(said.contains("random.trials was 8 and is 7 now"), "{said}");
}

#[test]
fn long_lists_are_shortened_and_a_moved_start_is_named() {
    let root = tempfile::tempdir().unwrap();
    let list =
        |values: std::ops::Range<u32>| values.map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("[sweep]\nhidden = [{}]", list(1..8));
    drop(open(&text, root.path()).unwrap());
    let said = open(&text.replace(&list(1..8), &list(2..8)), root.path()).unwrap_err().to_string();
    let expected = "--hidden was 1 or 2 or 3 or 4 or 5 or 2 more and is 2 or 3 or 4 or 5 or 6 or 1 more now";
    assert!(said.contains(expected), "{said}");
    // A sweep that is started from elsewhere does not find its data.
    let folder = root.path().join("moved");
    let sets = root.path().join("sets/papers");
    fs::create_dir_all(&sets).unwrap();
    let text = format!("data = '{}'\n[sweep]\nlr = [0.1]", sets.display());
    drop(open(&text, &folder).unwrap());
    let said = open(&text.replace(sets.to_str().unwrap(), "sets/papers"), &folder).unwrap_err().to_string();
    let expected = format!("and is sets/papers now (found from the folder {})", root.path().display());
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn other_folders_and_damaged_records_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let said = open(PLAN, root.path().join("new").as_path()).map(|sweep| names(&sweep).len()).unwrap();
    assert_eq!(said, 2);
    let folder = root.path().join("held");
    let held = open(PLAN, &folder).unwrap();
    let error = open(PLAN, &folder).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(held);
    let error = open(PLAN, root.path()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("is not empty and has no sweep"), "{error}");
    // A file that was not written completely is no sweep yet.
    let killed = root.path().join("killed");
    fs::create_dir(&killed).unwrap();
    fs::write(killed.join("sweep.json.unfinished"), "{").unwrap();
    drop(open(PLAN, &killed).unwrap());
    let path = folder.join("sweep.json");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        ("\"version\": 1", "\"version\": 2", "it has version 2 of the format, expected 1"),
        ("\"runs\"", "\"run\"", "unknown field `run`"),
        ("\"runs\"", "\"random\": {\"trials\": 1}, \"runs\"", "missing field `seed`"),
        ("\"cell\": 2", "\"cells\": 2", "unknown field `cells`"),
        (
            "\"name\": \"cell-001-seed-0\"",
            "\"name\": \"../../home\"",
            "should have the name `cell-001-seed-0`",
        ),
        ("\"flags\": {", "\"flags\": 3, \"x\": {", "invalid type"),
    ] {
        fs::write(&path, text.replace(from, to)).unwrap();
        let error = open(PLAN, &folder).unwrap_err().to_string();
        assert!(error.contains("sweep.json: ") && error.contains(expected), "{from}: {error}");
    }
}
