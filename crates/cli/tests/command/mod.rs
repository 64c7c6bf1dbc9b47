use super::*;

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

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
    let mut command = command();
    command.build();
    let mut text = String::new();
    add_help(&mut command, "kiln", &mut text);
    kiln_testkit::check_golden(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help.txt"), &text);
}
