//! Sketch, sample, what is made of rows, and how it is stored.

use super::auto::{Next, Queue, is_much};
use super::*;
use crate::bind::tests::MemoryCatalog;
use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;

fn random() -> StdRng {
    StdRng::seed_from_u64(7)
}

#[test]
fn a_sketch_counts_within_its_error() {
    for count in [0_i64, 1, 10, 100, 3000, 12_000, 50_000, 400_000] {
        let mut sketch = Sketch::default();
        for value in 0..count {
            sketch.add([&Datum::Int8(value)]);
            sketch.add([&Datum::Int8(value)]);
        }
        let error = (sketch.distinct() - count as f64).abs() / (count as f64).max(1.0);
        // Three standard errors.
        assert!(error < 0.049, "{count}: {}", sketch.distinct());
    }
}

#[test]
fn a_sketch_tells_combinations_apart() {
    let mut sketch = Sketch::default();
    for value in 0..100 {
        sketch.add([&Datum::Int4(value / 10), &Datum::Int4(value % 10)]);
    }
    assert!((90.0..110.0).contains(&sketch.distinct()), "{}", sketch.distinct());
}

#[test]
fn a_sample_is_uniform_also_after_it_shrank() {
    let mut random = random();
    let mut taken = [0_u32; 10];
    for _ in 0..2000 {
        let mut sample = Reservoir::new(40);
        for item in 0..100_usize {
            sample.offer(&mut random, || item);
            if item == 60 {
                sample.halve(&mut random);
            }
        }
        assert_eq!(sample.items().len(), 20);
        sample.items().iter().for_each(|item| taken[item / 10] += 1);
    }
    // 4,000 in each tenth; the standard deviation is 57.
    assert!(taken.iter().all(|taken| (3700..4300).contains(taken)), "{taken:?}");
}

/// Statistics of table `t` (`id`, `a`, `b`, `c`, `d`) with rows made from their number.
fn collected(
    rows: i32,
    row: impl Fn(i32) -> [Datum; 4],
) -> (TableStatistics, std::sync::Arc<TableDescriptor>) {
    let table = MemoryCatalog::new().table("t");
    let mut collector = Collector::new(&table, &[1, 2, 3, 4]);
    let mut random = random();
    for number in 0..rows {
        collector.add(&row(number), 50, &mut random);
    }
    (collector.finish(), table)
}

fn int(value: i32) -> Datum {
    Datum::Int4(value)
}

#[test]
fn columns_are_described() {
    let (statistics, table) = collected(50_000, |n| {
        // `a`: half of the rows 7, a fifth NULL, the rest spread. `b`: three values. `c`: follows `a`.
        let a = match n % 10 {
            0..5 => int(7),
            5 | 6 => Datum::Null,
            _ => int(1000 + n % 3000),
        };
        let b = Datum::text(["x", "y", "z"][(n % 3) as usize]);
        [int(n), a, b, Datum::Int8(i64::from(n % 10))]
    });
    assert_eq!((statistics.rows, statistics.bytes), (50_000.0, 2_500_000.0));
    let id = statistics.column(&table, 1).unwrap();
    assert!((48_000.0..=50_000.0).contains(&id.distinct), "{}", id.distinct);
    assert!(id.most_common.is_empty() && id.histogram.len() == TARGET + 1);
    assert_eq!(id.width, 4.0);
    let a = statistics.column(&table, 2).unwrap();
    assert_eq!(a.null_fraction, 0.2);
    assert!(matches!(a.most_common.first(), Some((Datum::Int4(7), share)) if (0.48..0.52).contains(share)));
    assert!(matches!(a.histogram.first(), Some(Datum::Int4(1000..1100))));
    let b = statistics.column(&table, 3).unwrap();
    assert_eq!((b.distinct, b.most_common.len(), b.histogram.len()), (3.0, 3, 0));
    // 7 with the five digits below 5, NULL with two, and 900 values with a digit each.
    let group = statistics.group(&[4, 2]).unwrap();
    assert!((860.0..960.0).contains(&group), "{group}");
}

#[test]
fn small_tables_are_described_exactly() {
    let (statistics, table) =
        collected(300, |n| [int(n), Datum::Null, Datum::text("x".repeat(200)), Datum::Int8(1)]);
    let column = |id| statistics.column(&table, id).unwrap();
    assert_eq!(column(1).distinct, 300.0);
    assert_eq!(column(1).histogram.len(), TARGET + 1);
    assert!(matches!(column(1).histogram[..], [Datum::Int4(0), .., Datum::Int4(299)]));
    assert_eq!((column(2).null_fraction, column(2).distinct), (1.0, 0.0));
    // Too wide to be kept, but counted.
    assert_eq!((column(3).distinct, column(3).width), (1.0, 201.0));
    assert!(column(3).most_common.is_empty());
    assert!(matches!(column(4).most_common[..], [(Datum::Int8(1), share)] if share == 1.0));
    let (empty, table) = collected(0, |_| std::array::from_fn(|_| Datum::Null));
    assert_eq!((empty.rows, empty.column(&table, 1).unwrap().distinct), (0.0, 0.0));
}

#[test]
fn statistics_survive_the_store() {
    let (mut statistics, table) = collected(5_000, |n| {
        [int(n % 700), int(n % 3), Datum::text(format!("v{}", n % 40)), Datum::Int8(i64::from(n))]
    });
    (statistics.version, statistics.analyzed) = (3, Some(17));
    let stored = record::encode(&statistics).unwrap();
    assert_eq!((record::version(&stored), record::rows(&stored)), (3, 5_000.0));
    let cell = StatisticsCell::stored(stored.clone());
    assert_eq!((cell.version(), cell.rows()), (3, Some(5_000.0)));
    let read = cell.get().unwrap();
    assert_eq!(record::encode(&read).unwrap(), stored);
    assert_eq!(read.column(&table, 3).unwrap().most_common.len(), 40);
    // A column that has changed its type since is not known any more.
    let mut changed = (*table).clone();
    changed.columns[2].ty = Type::INT4.into();
    assert!(read.column(&changed, 3).is_none());
}

#[test]
fn damaged_records_count_as_none() {
    let (statistics, _) = collected(10, |n| [int(n), int(n), Datum::Null, Datum::Null]);
    let good = record::encode(&statistics).unwrap();
    for length in 0..good.len() {
        assert!(record::decode(&good[..length]).is_err(), "{length}");
    }
    let mut other = good.to_vec();
    other[0] = 9;
    assert!(record::decode(&other).is_err());
    let text = String::from_utf8_lossy(&good[17..]).replace("\"common\":[[\"", "\"common\":[[\"!");
    let broken = [&good[..17], text.as_bytes()].concat();
    assert!(record::decode(&broken).is_err());
    assert!(StatisticsCell::stored(Bytes::from(broken)).get().is_none());
}

#[test]
fn newer_statistics_of_some_columns_leave_the_others() {
    let (mut all, table) = collected(100, |n| [int(n), int(n % 5), Datum::text("x"), Datum::Int8(1)]);
    let mut collector = Collector::new(&table, &[2]);
    (0..10).for_each(|n| collector.add(&[int(n)], 50, &mut random()));
    all.update(collector.finish());
    assert_eq!(all.rows, 10.0);
    assert_eq!(all.columns.iter().map(|column| column.column).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(all.column(&table, 2).unwrap().distinct, 10.0);
    assert_eq!(all.column(&table, 1).unwrap().distinct, 100.0);
}

#[test]
fn a_cell_counts_changes_and_moves_its_version() {
    let cell = StatisticsCell::default();
    assert_eq!((cell.version(), cell.rows()), (0, None));
    assert!(!cell.note_changes(50) && cell.note_changes(1));
    assert!(!cell.note_changes(1) && cell.is_due(), "once is enough");
    cell.forget_changes(1);
    let holder = cell.clone();
    cell.set(std::sync::Arc::new(TableStatistics { rows: 1000.0, ..TableStatistics::default() }));
    cell.forget_changes(51);
    assert_eq!((holder.version(), holder.changes(), holder.is_due()), (1, 0, false));
    assert!(!holder.note_changes(150) && holder.note_changes(1));
    cell.set(std::sync::Arc::new(TableStatistics { version: 1, ..TableStatistics::default() }));
    assert_eq!(holder.version(), 2);
}

#[test]
fn tables_are_read_one_by_one_and_not_too_often() {
    assert!(!is_much(50, 0.0) && is_much(51, 0.0) && !is_much(1050, 10_000.0) && is_much(1051, 10_000.0));
    let second = Duration::from_secs;
    let mut queue = Queue::default();
    assert!(queue.request(1, second(10)), "a worker starts");
    assert!(!queue.request(2, second(10)) && !queue.request(1, second(10)), "one is enough");
    assert_eq!(queue.next(second(10)), Next::Wait(second(11)));
    assert_eq!(queue.next(second(11)), Next::Read(1));
    assert_eq!(queue.next(second(12)), Next::Read(2));
    queue.request(1, second(13));
    assert_eq!(queue.next(second(13)), Next::Wait(second(71)));
    assert_eq!(queue.next(second(71)), Next::Read(1));
    assert_eq!(queue.next(second(72)), Next::End);
    assert!(queue.request(3, second(80)), "the worker had ended");
}
