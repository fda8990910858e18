//! One column of a Parquet file, read in pieces and given out row by row.

use super::render::{Meaning, Value};
use crate::error::{Error, Result};
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

/// A column of the table: what its values mean, and how levels say which of them are there.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Its name.
    pub name: String,
    /// What its values, or its elements, mean.
    pub meaning: Meaning,
    /// Definition level of a value that is there.
    defined: i16,
    /// For a list: definition level of an element, be it NULL; one less is an empty list.
    element: Option<i16>,
    /// The type of PostgreSQL for it.
    pub sql_type: String,
}

impl Leaf {
    /// The columns of a file.
    ///
    /// # Errors
    /// If one has no counterpart.
    pub fn all(schema: &SchemaDescriptor) -> Result<Vec<Self>> {
        let roots = schema.root_schema().get_fields();
        if roots.len() != schema.num_columns() {
            let nested = roots.iter().find(|root| leaves(root) != 1);
            let name = nested.map_or("", |root| root.name());
            return Err(nested_column(name));
        }
        roots.iter().zip(schema.columns()).map(|(root, column)| Self::new(root, column)).collect()
    }

    fn new(root: &Type, column: &ColumnDescriptor) -> Result<Self> {
        let meaning = Meaning::of(column)?;
        let element = element_level(root)?;
        let mut sql_type = meaning.sql_type(column.physical_type());
        if element.is_some() {
            sql_type.push_str("[]");
        }
        Ok(Self { name: root.name().to_owned(), meaning, defined: column.max_def_level(), element, sql_type })
    }
}

fn nested_column(name: &str) -> Error {
    Error::new(format!("column {name} is nested: only plain values and lists of them can be imported"))
}

fn leaves(field: &Type) -> usize {
    if field.is_primitive() { 1 } else { field.get_fields().iter().map(|field| leaves(field)).sum() }
}

/// For a list the definition level of its elements; none for a plain column.
fn element_level(root: &Type) -> Result<Option<i16>> {
    let info = root.get_basic_info();
    let repetition = |field: &Type| {
        let info = field.get_basic_info();
        if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }
    };
    if root.is_primitive() {
        return Ok((repetition(root) == Repetition::REPEATED).then_some(1));
    }
    let is_list =
        info.logical_type() == Some(LogicalType::List) || info.converted_type() == ConvertedType::LIST;
    let [inner] = root.get_fields() else { return Err(nested_column(root.name())) };
    let shallow = inner.is_primitive()
        || inner
            .get_fields()
            .iter()
            .all(|field| field.is_primitive() && repetition(field) != Repetition::REPEATED);
    if !is_list || !shallow || repetition(inner) != Repetition::REPEATED {
        return Err(nested_column(root.name()));
    }
    Ok(Some(if repetition(root) == Repetition::OPTIONAL { 2 } else { 1 }))
}

/// Values that were read and not yet given out.
enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I96(Vec<Int96>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl Values {
    fn get(&self, at: usize) -> Option<Value<'_>> {
        match self {
            Self::Bool(values) => values.get(at).map(|value| Value::Bool(*value)),
            Self::I32(values) => values.get(at).map(|value| Value::I32(*value)),
            Self::I64(values) => values.get(at).map(|value| Value::I64(*value)),
            Self::I96(values) => values.get(at).map(Value::I96),
            Self::F32(values) => values.get(at).map(|value| Value::F32(*value)),
            Self::F64(values) => values.get(at).map(|value| Value::F64(*value)),
            Self::Bytes(values) => values.get(at).map(|value| Value::Bytes(value.data())),
            Self::Fixed(values) => values.get(at).map(|value| Value::Bytes(value.data())),
        }
    }
}

/// One column of one row group.
pub struct Cursor<'l> {
    leaf: &'l Leaf,
    reader: ColumnReader,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Values,
    /// Levels and values given out.
    level: usize,
    value: usize,
    text: Vec<u8>,
}

impl<'l> Cursor<'l> {
    /// A column at its start.
    pub fn new(leaf: &'l Leaf, reader: ColumnReader) -> Self {
        let values = match &reader {
            ColumnReader::BoolColumnReader(_) => Values::Bool(Vec::new()),
            ColumnReader::Int32ColumnReader(_) => Values::I32(Vec::new()),
            ColumnReader::Int64ColumnReader(_) => Values::I64(Vec::new()),
            ColumnReader::Int96ColumnReader(_) => Values::I96(Vec::new()),
            ColumnReader::FloatColumnReader(_) => Values::F32(Vec::new()),
            ColumnReader::DoubleColumnReader(_) => Values::F64(Vec::new()),
            ColumnReader::ByteArrayColumnReader(_) => Values::Bytes(Vec::new()),
            ColumnReader::FixedLenByteArrayColumnReader(_) => Values::Fixed(Vec::new()),
        };
        let (definitions, repetitions) = (Vec::new(), Vec::new());
        Self { leaf, reader, definitions, repetitions, values, level: 0, value: 0, text: Vec::new() }
    }

    /// Reads the next rows, at most so many, and says how many.
    ///
    /// # Errors
    /// If the file is malformed.
    pub fn read(&mut self, rows: usize) -> Result<usize> {
        self.definitions.clear();
        self.repetitions.clear();
        (self.level, self.value) = (0, 0);
        let (definitions, repetitions) = (&mut self.definitions, &mut self.repetitions);
        macro_rules! read {
            ($($reader:ident / $values:ident),*) => {
                match (&mut self.reader, &mut self.values) {
                    $((ColumnReader::$reader(reader), Values::$values(values)) => {
                        values.clear();
                        reader.read_records(rows, Some(definitions), Some(repetitions), values)?
                    })*
                    _ => return Err(Error::new("malformed Parquet: a column changes its type")),
                }
            };
        }
        let (read, _, _) = read!(
            BoolColumnReader / Bool,
            Int32ColumnReader / I32,
            Int64ColumnReader / I64,
            Int96ColumnReader / I96,
            FloatColumnReader / F32,
            DoubleColumnReader / F64,
            ByteArrayColumnReader / Bytes,
            FixedLenByteArrayColumnReader / Fixed
        );
        Ok(read)
    }

    /// Writes the field of the next row in COPY's text format.
    ///
    /// # Errors
    /// If the file is malformed.
    pub fn push_field(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.text.clear();
        let is_there = match self.leaf.element {
            None => self.push_plain(),
            Some(element) => self.push_list(element),
        };
        let is_there = is_there.map_err(|error| error.at(format_args!("column {}", self.leaf.name)))?;
        if is_there {
            escape(&self.text, out)
        } else {
            out.extend_from_slice(b"\\N")
        }
        Ok(())
    }

    /// The definition level that comes next; that of a value where there are none.
    fn next_level(&mut self) -> Result<i16> {
        let level = match self.leaf.defined {
            0 => Some(0),
            _ => self.definitions.get(self.level).copied(),
        };
        self.level += 1;
        level.ok_or_else(|| Error::new("malformed Parquet: levels are missing"))
    }

    fn push_plain(&mut self) -> Result<bool> {
        if self.next_level()? < self.leaf.defined {
            return Ok(false);
        }
        self.push_value()?;
        Ok(true)
    }

    fn push_value(&mut self) -> Result<()> {
        let value =
            self.values.get(self.value).ok_or_else(|| Error::new("malformed Parquet: values are missing"))?;
        self.value += 1;
        self.leaf.meaning.push(value, &mut self.text)
    }

    /// A list as an array: `{1,NULL,"x"}`.
    fn push_list(&mut self, element: i16) -> Result<bool> {
        let first = self.next_level()?;
        if first < element {
            self.text.extend_from_slice(b"{}");
            return Ok(first == element - 1);
        }
        self.text.push(b'{');
        self.push_element(first)?;
        while self.repetitions.get(self.level).is_some_and(|repetition| *repetition > 0) {
            self.text.push(b',');
            let level = self.next_level()?;
            self.push_element(level)?;
        }
        self.text.push(b'}');
        Ok(true)
    }

    fn push_element(&mut self, level: i16) -> Result<()> {
        if level < self.leaf.defined {
            self.text.extend_from_slice(b"NULL");
            return Ok(());
        }
        let array = std::mem::take(&mut self.text);
        self.push_value()?;
        let value = std::mem::replace(&mut self.text, array);
        self.text.push(b'"');
        for byte in value {
            if matches!(byte, b'"' | b'\\') {
                self.text.push(b'\\');
            }
            self.text.push(byte);
        }
        self.text.push(b'"');
        Ok(())
    }
}

/// Writes text so that COPY reads the same.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => out.push(*byte),
        }
    }
}
