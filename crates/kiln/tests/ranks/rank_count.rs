use super::*;

fn devices(names: &str) -> Devices {
    names.parse().expect("every build should support the CPU")
}

#[test]
fn counts_the_devices_of_a_name() {
    for (names, expected) in [("cpu", 1), ("cpu,cpu", 2)] {
        assert_eq!(device_count(names).expect("every build should support the CPU"), expected);
    }
    for names in ["nonsense", "", "cuda:x"] {
        let error = device_count(names).expect_err("the name should be rejected");
        assert!(matches!(error, Error::Device(_)), "{names}: {error}");
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn rejects_a_device_whose_feature_is_not_built_in() {
    let message = device_count("cuda").expect_err("the build should lack CUDA").to_string();
    assert!(message.contains("needs the feature `cuda`"), "{message}");
}

#[test]
fn parses_a_number_of_ranks_or_auto() {
    for (text, expected) in
        [("auto", RankCount::Auto), ("1", RankCount::Exactly(1)), ("1024", RankCount::Exactly(MAX_RANKS))]
    {
        assert_eq!(text.parse::<RankCount>().expect("the text should be valid"), expected);
        assert_eq!(expected.to_string(), text);
    }
    for text in ["0", "1025", "-1", "many", "", "Auto", "1.5"] {
        let error = text.parse::<RankCount>().expect_err("the text should be rejected");
        let expected = format!("expected a whole number from 1 to 1024, or `auto`, got `{text}`");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn auto_is_one_rank_per_device() {
    let three = devices("cpu,cpu,cpu");
    assert_eq!(RankCount::Auto.on(&devices("cpu")), 1);
    assert_eq!(RankCount::Auto.on(&three), 3);
    assert_eq!(RankCount::Exactly(8).on(&three), 8);
}

#[test]
fn processes_of_a_launcher_are_the_ranks_whatever_the_number_is() {
    let vars = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "n1"),
        ("MASTER_PORT", "29500"),
    ];
    let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned());
    let three = devices("cpu,cpu,cpu");
    for ranks in [RankCount::Auto, RankCount::Exactly(2)] {
        let config = ranks.config_from(&three, var);
        let launch = config.launch_env().expect("the variables are those of torchrun");
        assert_eq!((launch.rank, launch.world_size), (1, 4));
        assert!(ranks.config_from(&three, |_| None).launch_env().is_none());
    }
}
