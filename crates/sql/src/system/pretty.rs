//! How PostgreSQL shows expressions where it is asked for pretty ones: with fewer parentheses.

/// Leaves out the parentheses around names that are cast: `lower((name)::text)` becomes `lower(name::text)`.
pub(super) fn cast_operands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['(', '\'', '"']) {
        let (before, here) = rest.split_at(at);
        out.push_str(before);
        // A name before the parenthesis makes it a call.
        let called = out.ends_with(|c: char| c == '"' || c == '_' || c.is_alphanumeric());
        let taken = if !here.starts_with('(') {
            let quoted = quoted_length(here);
            out.push_str(here.get(..quoted).unwrap_or_default());
            quoted
        } else if let Some(name) = cast_name(here).filter(|_| !called) {
            out.push_str(name);
            name.len() + "()".len()
        } else {
            out.push('(');
            1
        };
        rest = here.get(taken..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Leaves out parentheses around the whole of an expression.
pub(super) fn outermost(text: &str) -> &str {
    let Some(within) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return text };
    let (mut depth, mut rest) = (0_usize, within);
    while let Some(at) = rest.find(['(', ')', '\'', '"']) {
        let here = rest.get(at..).unwrap_or_default();
        let taken = match here.as_bytes().first() {
            Some(b'(') => {
                depth += 1;
                1
            }
            // The first parenthesis ends before the last one does.
            Some(b')') if depth == 0 => return text,
            Some(b')') => {
                depth -= 1;
                1
            }
            _ => quoted_length(here),
        };
        rest = here.get(taken..).unwrap_or_default();
    }
    within
}

/// The length of the literal or quoted name that a text begins with. A doubled quote begins another, which is the same
/// here.
fn quoted_length(text: &str) -> usize {
    let Some(quote) = text.chars().next() else { return 0 };
    text.get(1..).and_then(|inner| inner.find(quote)).map_or(text.len(), |end| end + 2)
}

/// The name in `(name)::`, which a text begins with.
fn cast_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('(')?;
    let length = match inner.starts_with('"') {
        true => quoted_length(inner),
        false => inner.find(|c: char| !(c == '_' || c.is_alphanumeric()))?,
    };
    let (name, behind) = inner.split_at_checked(length)?;
    (length > 0 && behind.starts_with(")::")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{cast_operands, outermost};

    #[test]
    fn parentheses_go_that_are_around_everything() {
        assert_eq!(outermost("(a > 0)"), "a > 0");
        assert_eq!(outermost("(a) + (b)"), "(a) + (b)");
        assert_eq!(outermost("((a = ')') OR (b))"), "(a = ')') OR (b)");
    }

    #[test]
    fn only_names_lose_their_parentheses() {
        for (text, pretty) in [
            ("lower((name)::text)", "lower(name::text)"),
            ("((\"A b\")::text)", "(\"A b\"::text)"),
            ("(f(a))::text || f(a)::text", "(f(a))::text || f(a)::text"),
            ("((a + b))::int", "((a + b))::int"),
            ("'(a)::' || (a)::text", "'(a)::' || a::text"),
            ("'it''s (a)::'", "'it''s (a)::'"),
            ("'", "'"),
        ] {
            assert_eq!(cast_operands(text), pretty);
        }
    }
}
