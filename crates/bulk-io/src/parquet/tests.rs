//! Files that are written and read again, whole and damaged.

use super::{FileWriter, Rows, guarded, plan};
use crate::args::Compression;
use crate::error::Result;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;
use tokio_postgres::types::Type;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// The names, the types and the rows of a file.
fn read(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>, Vec<String>)> {
    guarded(|| {
        let rows = Rows::open(file(bytes))?;
        let mut lines = Vec::new();
        rows.each(&mut |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        })?;
        Ok((rows.columns().names(), rows.columns().types(), lines))
    })
}

/// A file of some types, written in several row groups.
fn written(compression: Compression) -> Vec<u8> {
    let numeric = (10 << 16 | 2) + 4;
    let columns = [
        ("i", Type::INT4, -1),
        ("t", Type::TEXT, -1),
        ("b", Type::BOOL, -1),
        ("d", Type::DATE, -1),
        ("u", Type::UUID, -1),
        ("n", Type::NUMERIC, numeric),
    ];
    let plans: Vec<_> = columns.iter().map(|(name, ty, modifier)| plan(name, ty, *modifier)).collect();
    let types = ["integer", "text", "boolean", "date", "uuid", "numeric(10,2)"].map(str::to_owned);
    let mut writer = FileWriter::new(Vec::new(), &plans, &types, compression, Some(4_000)).unwrap();
    for row in 0..100i32 {
        let text = format!("row\t{row}");
        let one: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 2, 0, 1];
        let values: [&[u8]; 6] =
            [&row.to_be_bytes(), text.as_bytes(), &[1], &row.to_be_bytes(), &[7; 16], one];
        for (position, value) in values.into_iter().enumerate() {
            writer.push(position, (row % 10 != 3).then_some(value)).unwrap();
        }
        if writer.is_group_full() {
            writer.end_group().unwrap();
        }
    }
    writer.finish().unwrap()
}

#[test]
fn what_was_written_is_read() {
    for compression in [Compression::None, Compression::Snappy, Compression::Zstd] {
        let (names, types, rows) = read(&written(compression)).unwrap();
        assert_eq!(names, ["i", "t", "b", "d", "u", "n"]);
        assert_eq!(types[5], "numeric(10,2)");
        assert_eq!(rows.len(), 100);
        assert_eq!(rows[2], "2\trow\\t2\tt\t2000-01-03\t07070707-0707-0707-0707-070707070707\t1.00\n");
        assert_eq!(rows[13], "\\N\t\\N\t\\N\t\\N\t\\N\t\\N\n");
    }
}

/// Writes one column of text or numbers with the levels given.
fn list_file(schema: &str, values: &[&str], definitions: &[i16], repetitions: &[i16]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
    column.typed::<ByteArrayType>().write_batch(&values, Some(definitions), Some(repetitions)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn lists_are_arrays() {
    let standard =
        "message m { optional group l (LIST) { repeated group list { optional binary element (UTF8); } } }";
    // NULL, empty, one NULL, two values.
    let (_, types, rows) =
        read(&list_file(standard, &["a\"b", "c,\\"], &[0, 1, 2, 3, 3], &[0, 0, 0, 0, 1])).unwrap();
    assert_eq!(types, ["text[]"]);
    // In COPY's text every backslash is doubled.
    assert_eq!(rows, ["\\N\n", "{}\n", "{NULL}\n", "{\"a\\\\\"b\",\"c,\\\\\\\\\"}\n"]);
    let old = "message m { repeated binary l (UTF8); }";
    let (_, _, rows) = read(&list_file(old, &["x", "y"], &[1, 1, 0], &[0, 1, 0])).unwrap();
    assert_eq!(rows, ["{\"x\",\"y\"}\n", "{}\n"]);
}

#[test]
fn nested_columns_are_refused_by_name() {
    for schema in [
        "message m { required group s { required int32 a; required int32 b; } }",
        "message m { required group s { required int32 a; } }",
        "message m { optional group l (LIST) { repeated group list { optional group element (LIST) { repeated group list { optional int32 element; } } } } }",
    ] {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let error = read(&writer.into_inner().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("column ") && error.contains("nested"), "{error}");
    }
}

#[test]
fn files_of_other_programs_have_types_of_their_own() {
    let schema = "message m { required int32 u (UINT_32); required int32 t (TIME_MILLIS); required int32 d (DECIMAL(5,2)); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for value in [-1, 1_500, -5] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[value], None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    let (_, types, rows) = read(&writer.into_inner().unwrap()).unwrap();
    assert_eq!(types, ["bigint", "time", "numeric(5,2)"]);
    assert_eq!(rows, ["4294967295\t00:00:01.500\t-0.05\n"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn damaged_files_are_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(), cuts in any::<bool>()) {
        let mut bytes = written(Compression::None);
        let position = at.index(bytes.len());
        bytes[position] = byte;
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        // Neither a panic nor an endless loop; what comes of it may be other rows.
        let _ = read(&bytes);
    }
}
