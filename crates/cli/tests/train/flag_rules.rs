use crate::train::TrainArgs;

use super::*;

#[test]
fn the_listed_flags_exist() {
    let all = list_names::<TrainArgs>();
    for name in flag_groups().names() {
        assert!(all.iter().any(|flag| flag == name), "--{name}");
    }
}
