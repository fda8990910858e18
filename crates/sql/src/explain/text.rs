//! Nodes as text or JSON.

use super::node::{Actual, Node};
use super::options::{ExplainFormat, ExplainOptions};
use serde_json::{Map, Value, json};

/// What concerns the statement as a whole.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Time to plan, in milliseconds.
    pub planning_ms: Option<f64>,
    /// Time to run, in milliseconds.
    pub execution_ms: Option<f64>,
    /// Further facts, such as the number of requests to the key-value store.
    pub facts: Vec<(String, String)>,
}

/// The lines of the result; a JSON document is one of them.
pub fn render(node: &Node, options: &ExplainOptions, summary: &Summary) -> Vec<String> {
    match options.format {
        ExplainFormat::Text => {
            let mut lines = Vec::new();
            write_node(node, 0, "", options, &mut lines);
            for (name, value) in &summary.facts {
                lines.push(format!("{name}: {value}"));
            }
            if options.summary {
                if let Some(time) = summary.planning_ms {
                    lines.push(format!("Planning Time: {time:.3} ms"));
                }
                if let Some(time) = summary.execution_ms {
                    lines.push(format!("Execution Time: {time:.3} ms"));
                }
            }
            lines
        }
        ExplainFormat::Json => vec![document(node, options, summary)],
    }
}

fn write_node(node: &Node, indent: usize, arrow: &str, options: &ExplainOptions, lines: &mut Vec<String>) {
    let mut line = format!("{}{arrow}{}", " ".repeat(indent), node.title);
    if options.costs {
        let (startup, cost, width) = (node.startup, node.cost, node.width);
        line.push_str(&format!("  (cost={startup:.2}..{cost:.2} rows={} width={width})", shown_rows(node)));
    }
    if options.analyze {
        line.push_str(&actual_text(node.actual, options));
    }
    lines.push(line);
    let inner = indent + if arrow.is_empty() { 2 } else { arrow.len() + 2 };
    for (name, value) in &node.details {
        lines.push(format!("{}{name}: {value}", " ".repeat(inner)));
        if *name == "Filter"
            && let Some(removed) = node.actual.map(|actual| actual.removed).filter(|removed| *removed > 0)
        {
            lines.push(format!("{}Rows Removed by Filter: {removed}", " ".repeat(inner)));
        }
    }
    for (label, subplan) in &node.subplans {
        lines.push(format!("{}{label}", " ".repeat(inner)));
        write_node(subplan, inner + 2, "->  ", options, lines);
    }
    for child in &node.children {
        write_node(child, inner, "->  ", options, lines);
    }
}

/// Rows as they are shown: one at least, unless it is certain that there are none.
fn shown_rows(node: &Node) -> u64 {
    if node.rows > 0.0 { node.rows.round().max(1.0) as u64 } else { 0 }
}

fn hundredths(cost: f64) -> f64 {
    (cost * 100.0).round() / 100.0
}

fn actual_text(actual: Option<Actual>, options: &ExplainOptions) -> String {
    match actual {
        None | Some(Actual { loops: 0, .. }) => " (never executed)".to_string(),
        Some(actual) => {
            let loops = actual.loops.max(1);
            let rows = actual.rows / loops;
            if options.timing {
                let time = actual.time_ms / loops as f64;
                format!(" (actual time=0.000..{time:.3} rows={rows} loops={loops})")
            } else {
                format!(" (actual rows={rows} loops={loops})")
            }
        }
    }
}

fn document(node: &Node, options: &ExplainOptions, summary: &Summary) -> String {
    let mut statement = Map::new();
    statement.insert("Plan".to_string(), node_value(node, options));
    for (name, value) in &summary.facts {
        statement.insert(name.clone(), Value::String(value.clone()));
    }
    if options.summary {
        if let Some(time) = summary.planning_ms {
            statement.insert("Planning Time".to_string(), json!(time));
        }
        if let Some(time) = summary.execution_ms {
            statement.insert("Execution Time".to_string(), json!(time));
        }
    }
    let document = Value::Array(vec![Value::Object(statement)]);
    serde_json::to_string_pretty(&document).unwrap_or_else(|_| document.to_string())
}

fn node_value(node: &Node, options: &ExplainOptions) -> Value {
    let mut object = Map::new();
    object.insert("Node Type".to_string(), json!(node.kind));
    if let Some((_, relation)) = node.title.rsplit_once(" on ") {
        object.insert("Relation Name".to_string(), json!(relation));
    }
    if options.costs {
        object.insert("Startup Cost".to_string(), json!(hundredths(node.startup)));
        object.insert("Total Cost".to_string(), json!(hundredths(node.cost)));
        object.insert("Plan Rows".to_string(), json!(shown_rows(node)));
        object.insert("Plan Width".to_string(), json!(node.width));
    }
    if let (true, Some(actual)) = (options.analyze, node.actual) {
        let loops = actual.loops.max(1);
        if options.timing {
            object.insert("Actual Total Time".to_string(), json!(actual.time_ms / loops as f64));
        }
        object.insert("Actual Rows".to_string(), json!(actual.rows / loops));
        object.insert("Actual Loops".to_string(), json!(actual.loops));
    }
    for (name, value) in &node.details {
        let value = match *name {
            "Output" | "Sort Key" | "Group Key" => {
                Value::Array(value.split(", ").map(|part| json!(part)).collect())
            }
            _ => json!(value),
        };
        object.insert((*name).to_string(), value);
    }
    let mut plans = Vec::new();
    for (label, subplan) in &node.subplans {
        let mut value = node_value(subplan, options);
        if let Value::Object(inner) = &mut value {
            inner.insert("Subplan Name".to_string(), json!(label));
        }
        plans.push(value);
    }
    plans.extend(node.children.iter().map(|child| node_value(child, options)));
    if !plans.is_empty() {
        object.insert("Plans".to_string(), Value::Array(plans));
    }
    Value::Object(object)
}
