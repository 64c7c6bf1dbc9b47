use super::*;

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

/// The width of the help in columns, as where there is no terminal.
#[cfg(feature = "tables")]
const WIDTH: usize = 100;

/// Appends the help of a command and of its subcommands.
#[cfg(feature = "tables")]
fn add_help(command: &mut clap::Command, name: &str, text: &mut String) {
    text.push_str(&format!("==> {name}\n{}\n", command.render_long_help()));
    for subcommand in command.get_subcommands_mut().filter(|subcommand| subcommand.get_name() != "help") {
        let name = format!("{name} {}", subcommand.get_name());
        add_help(subcommand, &name, text);
    }
}

#[cfg(feature = "tables")]
#[test]
fn the_help_of_all_commands_is_frozen() {
    // The width of a terminal must not change the text.
    let mut command = command().term_width(WIDTH);
    command.build();
    let mut text = String::new();
    add_help(&mut command, "kiln", &mut text);
    kiln_testkit::check_golden(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help.txt"), &text);
}

/// The commands with many flags.
#[cfg(feature = "tables")]
const LONG_COMMANDS: [&[&str]; 4] = [&["train"], &["predict"], &["data", "import"], &["data", "partition"]];

#[cfg(feature = "tables")]
#[test]
fn the_short_help_fits_one_screen_and_its_flags_exist() {
    for path in LONG_COMMANDS {
        let mut args = vec!["kiln"];
        args.extend(path);
        args.push("-h");
        let help = command()
            .term_width(WIDTH)
            .try_get_matches_from(args)
            .expect_err("-h should print the help")
            .to_string();
        let widest = help.lines().map(|line| line.chars().count()).max();
        let n_lines = help.lines().count();
        assert!(n_lines <= 50 && widest <= Some(WIDTH), "{path:?}: {n_lines} lines of {widest:?} columns");
        assert!(
            help.contains("see more with '--help'") && help.contains("See --help for all flags"),
            "{help}"
        );
    }
    for (path, flags) in usage::FIRST_FLAGS {
        let mut command = command();
        for name in path {
            command = command.find_subcommand(name).expect("the command should exist").clone();
        }
        for flag in flags.split_whitespace() {
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(flag)), "{path:?} --{flag}");
        }
    }
}
