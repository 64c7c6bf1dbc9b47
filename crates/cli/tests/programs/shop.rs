//! A shop in RelBench's layout: three commands from its folder to predictions of a task table, with the best possible score. The tables
//! are those of `fixtures/shop/generate.py`, without the entries of RelBench in the metadata of the files.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use kiln::data::{Dataset, TimeKind};
use kiln::store::csv;
use kiln::tables::{OutputColumn, RowWriter};
use serde_json::Value;

use crate::fraud::{draw, run};
use crate::predict::text;

const N_CUSTOMERS: u64 = 2_000;
const N_PRODUCTS: u64 = 100;
const N_ORDERS: u64 = 12_000;
const FIRST_TIME: u64 = 1_767_225_600;
const DAY: u64 = 86_400;

/// The name, the number of rows and the days of each part of a task.
const PARTS: [(&str, u64, [u64; 2]); 3] =
    [("train", 4_000, [300, 400]), ("val", 1_000, [400, 420]), ("test", 10_000, [420, 600])];

const TRAINING: &str = "--rule most-recent --layers 2 --fanouts 1,1 --hidden 16 --batch-size 256 --epochs 6 --lr 0.01 \
    --metric roc-auc";

/// The orders of the shop: the customer, the time, and whether the product is green.
struct Orders(Vec<(u64, u64, bool)>);

/// A row of a task table.
struct Row {
    customer: u64,
    time: u64,
    /// The probability of a loyal customer in percent: the best possible score.
    percent: u64,
    is_loyal: bool,
    next_is_green: bool,
}

impl Orders {
    fn generate() -> Self {
        let order = |row: u64| {
            let product = draw(row, 5) % N_PRODUCTS;
            let time = FIRST_TIME + draw(row, 6) % (600 * DAY);
            (draw(row, 4) % N_CUSTOMERS, time, draw(product, 1) % 2 == 1)
        };
        Self((0..N_ORDERS).map(order).collect())
    }

    fn row(&self, row: u64, [start, end]: [u64; 2]) -> Row {
        let customer = draw(row, 9) % N_CUSTOMERS;
        let time = FIRST_TIME + start * DAY + draw(row, 8) % ((end - start) * DAY);
        let of_customer = || self.0.iter().filter(|(of, ..)| *of == customer);
        let last = of_customer().filter(|(_, at, _)| *at < time).max_by_key(|(_, at, _)| *at);
        let next = of_customer().filter(|(_, at, _)| time <= *at).min_by_key(|(_, at, _)| *at);
        let percent = last.map_or(50, |(_, _, is_green)| if *is_green { 85 } else { 15 });
        Row {
            customer,
            time,
            percent,
            is_loyal: draw(row, 10) % 100 < percent,
            next_is_green: next.map_or(draw(row, 11) % 2 == 1, |(_, _, is_green)| *is_green),
        }
    }
}

fn write(path: &Path, columns: &[(&str, OutputColumn<'_>)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = RowWriter::create(path).unwrap();
    writer.write(columns).unwrap();
    writer.finish().unwrap();
}

fn write_database(db: &Path) {
    let numbers =
        |n: u64, value: &dyn Fn(u64) -> u64| (0..n).map(|row| value(row) as u32).collect::<Vec<_>>();
    let seasons = ["winter", "spring", "summer", "autumn"];
    let columns = [("season_id", OutputColumn::U32(&[0, 1, 2, 3])), ("name", OutputColumn::Text(&seasons))];
    write(&db.join("seasons.parquet"), &columns);
    let kinds: Vec<&str> =
        (0..N_PRODUCTS).map(|row| ["grey", "green"][(draw(row, 1) % 2) as usize]).collect();
    let prices: Vec<f32> = (0..N_PRODUCTS).map(|row| (draw(row, 2) % 1_000) as f32 / 10.0).collect();
    let columns = [
        ("product_id", OutputColumn::U32(&numbers(N_PRODUCTS, &|row| row))),
        ("season_id", OutputColumn::U32(&numbers(N_PRODUCTS, &|row| draw(row, 0) % 4))),
        ("kind", OutputColumn::Text(&kinds)),
        ("price", OutputColumn::F32(&prices)),
    ];
    write(&db.join("products.parquet"), &columns);
    let columns = [
        ("customer_id", OutputColumn::U32(&numbers(N_CUSTOMERS, &|row| row))),
        ("age", OutputColumn::U32(&numbers(N_CUSTOMERS, &|row| 18 + draw(row, 3) % 60))),
    ];
    write(&db.join("customers.parquet"), &columns);
    let columns = [
        ("order_id", OutputColumn::U32(&numbers(N_ORDERS, &|row| row))),
        ("customer_id", OutputColumn::U32(&numbers(N_ORDERS, &|row| draw(row, 4) % N_CUSTOMERS))),
        ("product_id", OutputColumn::U32(&numbers(N_ORDERS, &|row| draw(row, 5) % N_PRODUCTS))),
        ("time", OutputColumn::U32(&numbers(N_ORDERS, &|row| FIRST_TIME + draw(row, 6) % (600 * DAY)))),
        ("amount", OutputColumn::U32(&numbers(N_ORDERS, &|row| 1 + draw(row, 7) % 9))),
    ];
    write(&db.join("orders.parquet"), &columns);
}

/// Writes the task tables, and returns the rows for test.
fn write_tasks(tasks: &Path) -> Vec<Row> {
    let orders = Orders::generate();
    let mut first = 0;
    let mut rows: Vec<Row> = Vec::new();
    for (part, n_rows, days) in PARTS {
        rows = (first..first + n_rows).map(|row| orders.row(row, days)).collect();
        first += n_rows;
        let column =
            |value: &dyn Fn(&Row) -> u64| rows.iter().map(|row| value(row) as u32).collect::<Vec<_>>();
        let times = column(&|row| row.time);
        let customers = column(&|row| row.customer);
        for (task, target) in [
            ("loyal", column(&|row| row.is_loyal.into())),
            ("future", column(&|row| row.next_is_green.into())),
        ] {
            let columns = [
                ("time", OutputColumn::U32(&times)),
                ("customer_id", OutputColumn::U32(&customers)),
                (task, OutputColumn::U32(&target)),
            ];
            write(&tasks.join(task).join(format!("{part}.parquet")), &columns);
        }
    }
    rows
}

/// Returns the area under the ROC curve of scores from 0 to 100.
fn roc_auc(scored: impl Iterator<Item = (u64, bool)>) -> f64 {
    let mut counts = [[0.0; 2]; 101];
    scored.for_each(|(score, label)| counts[score as usize][usize::from(label)] += 1.0);
    let (mut area, mut n_below, mut n_positive) = (0.0, 0.0, 0.0);
    for [negative, positive] in counts {
        area += positive * (n_below + negative / 2.0);
        n_below += negative;
        n_positive += positive;
    }
    area / n_below / n_positive
}

fn test_auc(run: &Path) -> f64 {
    let summary: Value = serde_json::from_str(&text(&run.join("summary.json"))).unwrap();
    summary["test_metrics"]["roc-auc"].as_f64().unwrap()
}

#[test]
fn three_commands_from_a_relational_folder_to_the_best_possible_predictions() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write_database(&root.join("shop/db"));
    let rows = write_tasks(&root.join("shop/tasks"));
    run(root, "data spec shop --out shop.yaml");
    let printed = run(root, "data import shop.yaml --out set");
    assert!(printed.contains("split of loyal: 4000 train, 1000 val, 10000 test"), "{printed}");
    let data = Dataset::open(root.join("set")).unwrap();
    assert_eq!(data.graph.types().names(), ["customer", "order", "product", "season"]);
    // A node is an order from its time on.
    assert!(data.times.node_times(1).is_some() && data.times.nodes.iter().flatten().count() == 1);
    run(root, &format!("train --data set --task-table loyal {TRAINING} --out run"));
    let best = roc_auc(rows.iter().map(|row| (row.percent, row.is_loyal)));
    let found = test_auc(&root.join("run"));
    assert!(0.8 < best && best - 0.02 <= found, "{found}, the best possible is {best}");
    check_predictions(&root.join("run"), &rows);
    let model: Value = serde_json::from_str(&text(&root.join("run/model.json"))).unwrap();
    assert!(model.to_string().contains("\"task_table\":\"loyal\""), "{model}");
    // The past knows nothing of the next order.
    run(root, &format!("train --data set --task-table future {TRAINING} --out future"));
    let found = test_auc(&root.join("future"));
    assert!((found - 0.5).abs() <= 0.02, "{found}");
    predict_nodes_of_a_run_on_rows(root);
}

/// Returns the message of a command that fails.
fn failure(folder: &Path, command: &str) -> String {
    let mut kiln = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let output = kiln.args(command.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(!output.status.success(), "{command}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that each row for test has its key, its time and its target.
fn check_predictions(run: &Path, rows: &[Row]) {
    let predictions = text(&run.join("test_predictions.csv"));
    let mut lines = csv::lines(&predictions);
    assert_eq!(lines.next(), Some("item,node,name,time,label,predicted"));
    let mut n_lines = 0;
    for (row, line) in rows.iter().zip(lines) {
        let fields: Vec<&str> = csv::fields(line).collect();
        assert_eq!(fields[0].parse(), Ok(5_000 + n_lines));
        let time = TimeKind::Date.text(row.time as i64 * 1_000_000).to_string();
        assert_eq!(fields[2..5], [row.customer.to_string(), time, u32::from(row.is_loyal).to_string()]);
        n_lines += 1;
    }
    assert_eq!(n_lines, 10_000);
}

/// Predicts customers at a time, which the model of a task table needs.
fn predict_nodes_of_a_run_on_rows(root: &Path) {
    let error = failure(root, "predict --run run --data set --out without --nodes all");
    assert!(error.contains("trained on the task table `loyal`") && error.contains("(--at)"), "{error}");
    run(root, "predict --run run --data set --out at --nodes all --at 2027-06-01");
    let lines = csv::lines(&text(&root.join("at/predictions.csv"))).count();
    assert_eq!(lines as u64, 1 + N_CUSTOMERS);
    let error = failure(root, &format!("train --data set --task-table loyal --messages all {TRAINING}"));
    assert!(error.contains("sampled at their own times: remove --messages"), "{error}");
    let error = failure(root, &format!("train --data set --task-table loyl {TRAINING}"));
    assert!(
        error.contains("shop has no task table `loyl`: it has future, loyal (did you mean `loyal`?)"),
        "{error}"
    );
}
