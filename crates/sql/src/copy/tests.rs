//! COPY in all formats, with chunks split anywhere.

use super::*;
use bytes::BytesMut;
use sql_types::functions::EvalContext;
use sql_types::{Datum, Row, SqlError, Type};

fn columns() -> Vec<CopyColumn> {
    [("id", Type::INT4), ("name", Type::TEXT), ("big", Type::INT8)]
        .map(|(name, ty)| CopyColumn { name: name.into(), ty: ty.into() })
        .to_vec()
}

fn options(list: &[(&str, &str)]) -> CopyOptions {
    let list: Vec<(String, OptionValue)> =
        list.iter().map(|(name, value)| (name.to_string(), OptionValue::Text(value.to_string()))).collect();
    CopyOptions::from_list(&list, &["id", "name", "big"], true).unwrap()
}

fn decode_in(data: &[u8], options: &CopyOptions, chunk: usize) -> Result<Vec<Row>, SqlError> {
    let cx = EvalContext::plain();
    let mut decoder = CopyDecoder::new("t", columns(), options.clone());
    let mut rows = Vec::new();
    for part in data.chunks(chunk) {
        decoder.decode(part, &cx, &mut rows)?;
    }
    decoder.finish(&cx, &mut rows)?;
    Ok(rows)
}

/// Decodes with every chunk size, which must make no difference.
fn decode(data: &[u8], options: &CopyOptions) -> Result<Vec<String>, SqlError> {
    let whole = decode_in(data, options, data.len().max(1)).map(|rows| shown(&rows));
    for chunk in 1..data.len().max(2) {
        assert_eq!(decode_in(data, options, chunk).map(|rows| shown(&rows)), whole, "in chunks of {chunk}");
    }
    whole
}

fn shown(rows: &[Row]) -> Vec<String> {
    let value = |datum: &Datum| match datum {
        Datum::Null => "NULL".to_string(),
        Datum::Int4(value) => value.to_string(),
        Datum::Int8(value) => value.to_string(),
        Datum::Text(value) => format!("{value:?}"),
        other => format!("{other:?}"),
    };
    rows.iter().map(|row| row.iter().map(value).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn text_unescapes_and_knows_null() {
    let data = b"1\ta\\tb\\\\c\\n\t10\n-2\t\\N\t\\N\n3\t\t-5\n4\t\\x41\\102\\q\t7\n\\.\nignored";
    let rows = decode(data, &CopyOptions::default()).unwrap();
    assert_eq!(rows, ["1 \"a\\tb\\\\c\\n\" 10", "-2 NULL NULL", "3 \"\" -5", "4 \"ABq\" 7"]);
}

#[test]
fn text_lines_may_end_with_carriage_return_or_not_at_all() {
    let rows = decode("1\tä\t1\r\n2\tb\t2".as_bytes(), &CopyOptions::default()).unwrap();
    assert_eq!(rows, ["1 \"ä\" 1", "2 \"b\" 2"]);
}

#[test]
fn an_escaped_newline_belongs_to_the_value() {
    let rows = decode(b"1\ta\\\nb\t1\n", &CopyOptions::default()).unwrap();
    assert_eq!(rows, ["1 \"a\\nb\" 1"]);
}

#[test]
fn csv_quotes_span_lines_and_protect_from_null() {
    let csv = options(&[("format", "csv"), ("header", "true")]);
    let data = b"id,name,big\n1,\"a,\"\"b\"\"\nc\",5\n2,,6\n3,\"\",7\n4,x\"y,z\"w,8\n5,e,\n";
    let rows = decode(data, &csv).unwrap();
    assert_eq!(rows, ["1 \"a,\\\"b\\\"\\nc\" 5", "2 NULL 6", "3 \"\" 7", "4 \"xy,zw\" 8", "5 \"e\" NULL"]);
}

#[test]
fn csv_escape_may_differ_from_quote() {
    let csv = options(&[("format", "csv"), ("quote", "'"), ("escape", "\\"), ("delimiter", ";")]);
    let rows = decode(b"1;'a\\'b\\\\';2\n", &csv).unwrap();
    assert_eq!(rows, ["1 \"a'b\\\\\" 2"]);
}

#[test]
fn errors_name_line_and_column() {
    let context = |data: &[u8]| {
        let error = decode(data, &CopyOptions::default()).unwrap_err();
        (error.code.as_str(), error.message.clone(), error.extra().unwrap().context.clone().unwrap())
    };
    let (code, message, place) = context(b"1\ta\t1\n2\tb\n");
    assert_eq!((code, message.as_str()), ("22P04", "missing data for column \"big\""));
    assert_eq!(place, "COPY t, line 2: \"2\tb\"");
    let (code, message, place) = context(b"1\ta\t1\t9\n");
    assert_eq!((code, message.as_str()), ("22P04", "extra data after last expected column"));
    assert_eq!(place, "COPY t, line 1: \"1\ta\t1\t9\"");
    let (code, _, place) = context(b"1\ta\t1\nx\ta\t1\n");
    assert_eq!((code, place.as_str()), ("22P02", "COPY t, line 2, column id: \"x\""));
    let (code, message, place) = context(b"1\t\xff\xfe\t1\n");
    assert_eq!((code, place.as_str()), ("22021", "COPY t, line 1"));
    assert!(message.contains("0xff"), "{message}");
}

#[test]
fn an_unterminated_quote_is_an_error() {
    let csv = options(&[("format", "csv")]);
    let error = decode(b"1,\"a,1\n", &csv).unwrap_err();
    assert_eq!(error.message, "unterminated CSV quoted field");
}

#[test]
fn header_can_be_matched() {
    let matching = options(&[("format", "csv"), ("header", "match")]);
    assert_eq!(decode(b"id,name,big\n1,a,2\n", &matching).unwrap(), ["1 \"a\" 2"]);
    let error = decode(b"id,nam,big\n", &matching).unwrap_err();
    assert_eq!(error.message, "column name mismatch in header line field 2: got \"nam\", expected \"name\"");
}

#[test]
fn what_is_encoded_is_decoded_again() {
    let rows: Vec<Row> = vec![
        vec![Datum::Int4(1), Datum::text("tab\there, \"quoted\"\\\r\n\\."), Datum::Int8(-7)],
        vec![Datum::Int4(-3), Datum::text(""), Datum::Null],
        vec![Datum::Null, Datum::text("\\N"), Datum::Int8(i64::MAX)],
    ];
    for list in
        [&[][..], &[("format", "csv")], &[("format", "csv"), ("header", "1")], &[("format", "binary")]]
    {
        let options = options(list);
        let mut encoder = CopyEncoder::new(columns(), options.clone());
        let mut data = BytesMut::new();
        encoder.start(&mut data);
        for row in &rows {
            encoder.row(row, &EvalContext::plain().text, &mut data).unwrap();
        }
        encoder.finish(&mut data);
        assert_eq!(decode(&data, &options).unwrap(), shown(&rows), "{list:?}");
    }
}

#[test]
fn damaged_binary_data_is_refused() {
    let binary = options(&[("format", "binary")]);
    assert!(decode(b"not a copy file at all", &binary).is_err());
    let mut data = binary::SIGNATURE.to_vec();
    data.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(decode(&data, &binary).unwrap_err().message, "row field count is 2, expected 3");
    data.truncate(data.len() - 2);
    data.extend([0, 3, 0xff, 0xff, 0xff, 0xf0]);
    assert_eq!(decode(&data, &binary).unwrap_err().message, "invalid field size");
}

#[test]
fn options_are_checked() {
    let refused = |list: &[(&str, &str)]| {
        let list: Vec<(String, OptionValue)> = list
            .iter()
            .map(|(name, value)| (name.to_string(), OptionValue::Text(value.to_string())))
            .collect();
        CopyOptions::from_list(&list, &["a"], true).unwrap_err().message
    };
    assert_eq!(refused(&[("delimiter", "ab")]), "COPY delimiter must be a single one-byte character");
    assert_eq!(refused(&[("delimiter", "a")]), "COPY delimiter cannot be \"a\"");
    assert_eq!(refused(&[("quote", "'")]), "COPY quote available only in CSV mode");
    assert_eq!(refused(&[("format", "csv"), ("quote", ",")]), "COPY delimiter and quote must be different");
    assert_eq!(refused(&[("format", "xml")]), "COPY format \"xml\" not recognized");
    assert_eq!(refused(&[("nul", "x")]), "option \"nul\" not recognized");
    assert_eq!(refused(&[("format", "csv"), ("format", "csv")]), "conflicting or redundant options");
}

#[test]
fn arbitrary_bytes_never_panic_and_chunks_make_no_difference() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let mut rng = StdRng::seed_from_u64(7);
    let alphabet = b"01a,\t\n\r\\\"N.x\xc3\xa4\xff\0";
    let mut header = binary::SIGNATURE.to_vec();
    header.extend([0; 8]);
    for round in 0..3000 {
        let (list, start): (&[(&str, &str)], &[u8]) = match round % 4 {
            0 => (&[], b""),
            1 => (&[("format", "csv")], b""),
            2 => (&[("format", "csv"), ("escape", "\\"), ("header", "true")], b""),
            _ => (&[("format", "binary")], &header),
        };
        let options = options(list);
        let mut data = start.to_vec();
        for _ in 0..rng.random_range(0..60) {
            let any = round % 4 == 3;
            data.push(if any {
                rng.random_range(0..8)
            } else {
                alphabet[rng.random_range(0..alphabet.len())]
            });
        }
        let whole = decode_in(&data, &options, data.len().max(1)).map(|rows| shown(&rows));
        let parts = decode_in(&data, &options, rng.random_range(1..9)).map(|rows| shown(&rows));
        assert_eq!(parts, whole, "{data:?}");
    }
}
