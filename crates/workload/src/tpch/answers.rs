//! Answers of queries, and whether two of them are the same.

use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// A row, with its values as the server writes them: numbers that differ in a digit, or in how many they have, differ.
pub type AnswerRow = Vec<Option<String>>;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Names of its columns.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<AnswerRow>,
}

impl Answer {
    /// Asks a server.
    ///
    /// # Errors
    /// What it says.
    pub async fn of(client: &Client, query: &str) -> Result<Self, Error> {
        let mut answer = Self { columns: Vec::new(), rows: Vec::new() };
        for message in client.simple_query(query).await? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    answer.columns = columns.iter().map(|column| column.name().to_owned()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    answer.rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
                }
                _ => {}
            }
        }
        Ok(answer)
    }

    /// How this answer differs from another one, whose order matters in some columns only; none if it does not.
    pub fn difference(&self, other: &Self, ordered_by: &[usize]) -> Option<String> {
        if self.columns != other.columns {
            return Some(format!("columns {:?} instead of {:?}", self.columns, other.columns));
        }
        if self.rows.len() != other.rows.len() {
            return Some(format!("{} rows instead of {}", self.rows.len(), other.rows.len()));
        }
        let key = |row: &AnswerRow| -> AnswerRow {
            ordered_by.iter().map(|at| row.get(*at).cloned().flatten()).collect()
        };
        let (keys, others): (Vec<_>, Vec<_>) =
            (self.rows.iter().map(key).collect(), other.rows.iter().map(key).collect());
        first_difference(&keys, &others).or_else(|| {
            let (mut rows, mut others) = (self.rows.clone(), other.rows.clone());
            rows.sort_unstable();
            others.sort_unstable();
            first_difference(&rows, &others)
        })
    }
}

fn first_difference(rows: &[AnswerRow], others: &[AnswerRow]) -> Option<String> {
    let (row, other) = rows.iter().zip(others).find(|(row, other)| row != other)?;
    Some(format!("{} instead of {}", shown(row), shown(other)))
}

fn shown(row: &AnswerRow) -> String {
    let values: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
    format!("({})", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[&[&str]]) -> Answer {
        let row = |row: &&[&str]| row.iter().map(|value| Some((*value).to_owned())).collect();
        Answer { columns: vec!["a".into(), "b".into()], rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn order_counts_where_the_query_says_so() {
        let good = answer(&[&["1", "x"], &["1", "y"], &["2", "z"]]);
        let swapped = answer(&[&["1", "y"], &["1", "x"], &["2", "z"]]);
        assert_eq!(swapped.difference(&good, &[0]), None);
        assert_eq!(swapped.difference(&good, &[0, 1]).unwrap(), "(1, y) instead of (1, x)");
    }

    #[test]
    fn every_difference_is_found() {
        let good = answer(&[&["1", "2.50"]]);
        let nothing = Answer { columns: good.columns.clone(), rows: vec![vec![Some("1".into()), None]] };
        let renamed = Answer { columns: vec!["a".into(), "c".into()], ..good.clone() };
        for (other, found) in [
            (answer(&[&["1", "2.5"]]), "(1, 2.5) instead of (1, 2.50)"),
            (answer(&[]), "0 rows instead of 1"),
            (nothing, "(1, NULL) instead of (1, 2.50)"),
            (renamed, "columns [\"a\", \"c\"] instead of [\"a\", \"b\"]"),
        ] {
            assert_eq!(other.difference(&good, &[]).unwrap(), found);
        }
        assert_eq!(good.difference(&good.clone(), &[0]), None);
    }
}
