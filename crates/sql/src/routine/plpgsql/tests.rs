//! What the parser makes of bodies.

use super::ast::{Stmt, VariableType};
use super::parse::{MOST_NESTING, parse};
use sql_types::SqlState;

fn fails(body: &str) -> (&'static str, String) {
    let error = parse(body).unwrap_err();
    (error.code.0, error.message)
}

#[test]
fn statements_are_told_apart() {
    let body = "declare r record; x t.c%type; y t%rowtype; z numeric(3, 1) := 1; begin
        x := 1; r.a = 2; select 1 into x; insert into t select 1 returning a into strict x, r.a;
        if x = 1 then null; elsif case when x = 2 then true end then null; else null; end if;
        for i in reverse 10..1 by 2 loop exit when i = 3; end loop;
        for r in select * from t loop continue; end loop;
        for r in execute 'select 1' using 1, 2 loop null; end loop;
        foreach x in array array[1, 2] loop null; end loop;
        while x < 3 loop null; end loop;
        case x when 1, 2 then null; else null; end case;
        execute 'select 1' into x using 1; perform f(1); get diagnostics x = row_count;
        raise notice '% %%', x using hint = 'h'; raise; assert true; return x;
        begin null; exception when others then null; when division_by_zero or sqlstate '22003' then null; end;
        end";
    let block = parse(body).unwrap();
    assert_eq!(block.declarations.len(), 4);
    assert!(matches!(block.declarations[0].ty, VariableType::Record));
    assert!(matches!(&block.declarations[1].ty, VariableType::Like(parts) if parts == &["t", "c"]));
    assert!(matches!(&block.declarations[2].ty, VariableType::Row(parts) if parts == &["t"]));
    let kinds: Vec<&str> = block
        .body
        .iter()
        .map(|statement| match statement {
            Stmt::Assign(..) => "assign",
            Stmt::Sql(_, into) => match into {
                Some(into) if into.strict => "strict",
                Some(_) => "into",
                None => "sql",
            },
            Stmt::If(branches, _) if branches.len() == 2 => "if",
            Stmt::ForInteger { reverse: true, by: Some(_), .. } => "count",
            Stmt::ForRows { .. } => "rows",
            Stmt::ForEach { .. } => "each",
            Stmt::While(..) => "while",
            Stmt::Case { operand: Some(_), .. } => "case",
            Stmt::Execute { into: Some(_), .. } => "execute",
            Stmt::Perform(_) => "perform",
            Stmt::Diagnostics(_) => "diagnostics",
            Stmt::Raise(raise) if raise.using.len() == 1 && raise.arguments.len() == 1 => "raise",
            Stmt::RaiseAgain => "again",
            Stmt::Assert(..) => "assert",
            Stmt::Return(Some(_)) => "return",
            Stmt::Block(block) if block.handlers.len() == 2 => "block",
            _ => "?",
        })
        .collect();
    let expected = "assign assign into strict if count rows rows each while case execute perform diagnostics \
                    raise again assert return block";
    assert_eq!(kinds.join(" "), expected);
}

#[test]
fn the_into_of_a_statement_is_its_own() {
    let block =
        parse("begin insert into t values (1); with a as (select 1) insert into t select * from a; end");
    let body = block.unwrap().body;
    assert!(body.iter().all(|statement| matches!(statement, Stmt::Sql(_, None))), "{body:?}");
}

#[test]
fn what_is_wrong_is_refused() {
    for (body, code) in [
        ("", "42601"),
        ("begin", "42601"),
        ("begin end end", "42601"),
        ("begin return 1 end", "42601"),
        ("begin if true then end", "42601"),
        ("begin x := ; end", "42601"),
        ("begin loop end loop x; end", "42601"),
        ("<<a>> begin null; end b", "42601"),
        ("declare x int; x text; begin end", "42601"),
        ("declare x int not null; begin end", "42601"),
        ("begin raise notice '%'; end", "42601"),
        ("begin raise no_such_condition; end", "42704"),
        ("begin raise sqlstate 'abc'; end", "42601"),
        ("begin raise notice 'x' using nothing = 1; end", "42601"),
        ("begin null; exception end", "42601"),
        ("begin null; exception when no_such then null; end", "42704"),
        ("begin get stacked diagnostics x = message_text; end", "0Z002"),
        ("begin get diagnostics x = nothing; end", "42601"),
        ("begin commit; end", "0A000"),
        ("begin select 1 into x[1]; end", "0A000"),
        ("declare c cursor for select 1; begin end", "0A000"),
        ("begin open c; end", "0A000"),
    ] {
        assert_eq!(fails(body).0, code, "{body}");
    }
}

#[test]
fn ranges_are_found_between_quotes_and_numbers() {
    for range in ["1..10", "1 .. 10", "a.b..c", "f('..')..2", "\"x..y\"..3"] {
        let block = parse(&format!("begin for i in {range} loop null; end loop; end")).unwrap();
        assert!(matches!(block.body[0], Stmt::ForInteger { .. }), "{range}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("begin {}null;{} end", "begin ".repeat(depth), " end;".repeat(depth));
    assert!(parse(&nested(MOST_NESTING - 1)).is_ok());
    let error = parse(&nested(MOST_NESTING * 50)).unwrap_err();
    assert_eq!(error.code, SqlState::TOO_COMPLEX);
}

/// Bodies made of words of the language in any order, from a generator with a fixed seed.
#[test]
fn words_in_any_order_never_panic() {
    const WORDS: &[&str] = &[
        "begin",
        "end",
        ";",
        "declare",
        "x",
        "int",
        ":=",
        "=",
        "1",
        "..",
        "if",
        "then",
        "elsif",
        "else",
        "loop",
        "while",
        "for",
        "in",
        "exit",
        "when",
        "case",
        "select",
        "into",
        "strict",
        "return",
        "raise",
        "notice",
        "'%'",
        ",",
        "using",
        "exception",
        "others",
        "execute",
        "perform",
        "get",
        "diagnostics",
        "<<",
        ">>",
        "(",
        ")",
        "[",
        "%",
        "type",
        "rowtype",
        ".",
        "insert",
        "update",
        "null",
        "assert",
        "foreach",
        "array",
        "'é",
        "\"",
        "--",
        "/*",
        "$1",
        "alias",
        "not",
        "sqlstate",
        "reverse",
        "by",
        "\n",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let count = next(40);
        let words: Vec<&str> = (0..count).map(|_| WORDS[next(WORDS.len())]).collect();
        let _ = parse(&format!("begin {} end", words.join(" ")));
        let _ = parse(&words.join(" "));
    }
}
