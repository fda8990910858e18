//! Which kind of statement it is, by its first words.

use super::{is_keyword, is_word};
use sqlparser::ast::{self, Ident, TransactionMode};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Kinds of statement, by who runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// SELECT, VALUES, TABLE, WITH … SELECT (also WITH … INSERT and the like).
    Query,
    /// INSERT
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// MERGE
    Merge,
    /// CREATE, ALTER, DROP, TRUNCATE, COMMENT, GRANT, REVOKE, REINDEX…
    Ddl,
    /// BEGIN, START TRANSACTION
    Begin,
    /// COMMIT, END
    Commit,
    /// ROLLBACK, ABORT, ROLLBACK TO
    Rollback,
    /// SAVEPOINT
    Savepoint,
    /// RELEASE
    Release,
    /// SET
    Set,
    /// SHOW
    Show,
    /// RESET
    Reset,
    /// COPY
    Copy,
    /// EXPLAIN
    Explain,
    /// PREPARE
    Prepare,
    /// EXECUTE
    Execute,
    /// DEALLOCATE
    Deallocate,
    /// DECLARE … CURSOR
    Declare,
    /// FETCH
    Fetch,
    /// MOVE: parsed as FETCH.
    Move,
    /// CLOSE
    Close,
    /// LISTEN
    Listen,
    /// NOTIFY
    Notify,
    /// UNLISTEN
    Unlisten,
    /// LOCK
    Lock,
    /// DISCARD
    Discard,
    /// VACUUM: tokens only.
    Vacuum,
    /// ANALYZE
    Analyze,
    /// DO: tokens only.
    Do,
    /// CALL
    Call,
    /// CHECKPOINT, LOAD, CLUSTER: tokens only.
    Utility,
}

impl StatementKind {
    /// Whether the binder makes a plan of it.
    pub fn is_planned(self) -> bool {
        use StatementKind::{Delete, Insert, Merge, Query, Update};
        matches!(self, Query | Insert | Update | Delete | Merge)
    }

    /// Whether it may be passed on as tokens.
    pub(super) fn is_utility(self) -> bool {
        use StatementKind::{Explain, Prepare};
        !self.is_planned() && !matches!(self, Explain | Prepare)
    }
}

/// The kind; `None` if no statement starts like this.
pub(super) fn classify(tokens: &[TokenWithSpan]) -> Option<StatementKind> {
    use StatementKind as Kind;
    let first = &tokens.first()?.token;
    let Token::Word(word) = first else {
        return (*first == Token::LParen).then_some(Kind::Query);
    };
    if word.quote_style.is_some() {
        return None;
    }
    Some(match word.value.to_ascii_lowercase().as_str() {
        "select" | "values" | "table" => Kind::Query,
        "with" => Kind::Query,
        "insert" => Kind::Insert,
        "update" => Kind::Update,
        "delete" => Kind::Delete,
        "merge" => Kind::Merge,
        "create" | "alter" | "drop" | "truncate" | "comment" | "grant" | "revoke" | "reindex" | "refresh"
        | "reassign" | "import" | "security" => Kind::Ddl,
        "begin" | "start" => Kind::Begin,
        "commit" | "end" => Kind::Commit,
        "rollback" | "abort" => Kind::Rollback,
        "savepoint" => Kind::Savepoint,
        "release" => Kind::Release,
        "set" => Kind::Set,
        "show" => Kind::Show,
        "reset" => Kind::Reset,
        "copy" => Kind::Copy,
        "explain" => Kind::Explain,
        "prepare" if tokens.get(1).is_some_and(|token| is_word(&token.token, "transaction")) => Kind::Utility,
        "prepare" => Kind::Prepare,
        "execute" => Kind::Execute,
        "deallocate" => Kind::Deallocate,
        "declare" => Kind::Declare,
        "fetch" => Kind::Fetch,
        "move" => Kind::Move,
        "close" => Kind::Close,
        "listen" => Kind::Listen,
        "notify" => Kind::Notify,
        "unlisten" => Kind::Unlisten,
        "lock" => Kind::Lock,
        "discard" => Kind::Discard,
        "vacuum" => Kind::Vacuum,
        "analyze" | "analyse" => Kind::Analyze,
        "do" => Kind::Do,
        "call" => Kind::Call,
        "checkpoint" | "load" | "cluster" => Kind::Utility,
        _ => return None,
    })
}

/// Statements that are simple enough, or so different in `sqlparser`, to be built here.
pub(super) fn shortcut(kind: StatementKind, tokens: &[TokenWithSpan]) -> Option<ast::Statement> {
    match kind {
        StatementKind::Show => show(tokens),
        StatementKind::Begin => begin(tokens),
        StatementKind::Rollback if is_word(&tokens.first()?.token, "abort") => abort(tokens),
        _ => None,
    }
}

/// The query that a statement of ours is short for.
pub(super) fn short_form(tokens: &[TokenWithSpan]) -> Option<&'static str> {
    let [show, what] = tokens else { return None };
    if !is_word(&show.token, "show") {
        return None;
    }
    let forms = [
        ("locks", "SELECT * FROM pg_dormouse.locks"),
        ("transactions", "SELECT * FROM pg_dormouse.transactions"),
    ];
    forms.into_iter().find(|(word, _)| is_word(&what.token, word)).map(|(_, query)| query)
}

/// `SHOW a.b` or `SHOW TRANSACTION ISOLATION LEVEL`.
fn show(tokens: &[TokenWithSpan]) -> Option<ast::Statement> {
    let mut variable: Vec<Ident> = Vec::new();
    let mut dotted = false;
    for token in tokens.get(1..)? {
        match &token.token {
            Token::Period => dotted = true,
            Token::Word(word) => {
                match variable.last_mut() {
                    Some(last) if dotted => last.value = format!("{}.{}", last.value, word.value),
                    _ => variable.push(Ident {
                        value: word.value.clone(),
                        quote_style: word.quote_style,
                        span: token.span,
                    }),
                }
                dotted = false;
            }
            _ => return None,
        }
    }
    (!variable.is_empty()).then_some(ast::Statement::ShowVariable { variable })
}

/// `BEGIN` without modes, by far the most frequent statement.
fn begin(tokens: &[TokenWithSpan]) -> Option<ast::Statement> {
    let first = &tokens.first()?.token;
    let begin = is_keyword(first, Keyword::BEGIN);
    let plain = match tokens.get(1).map(|token| &token.token) {
        None => begin,
        Some(second) => {
            tokens.len() == 2 && (is_word(second, "transaction") || (begin && is_word(second, "work")))
        }
    };
    plain.then(|| ast::Statement::StartTransaction {
        modes: Vec::<TransactionMode>::new(),
        begin,
        transaction: None,
        modifier: None,
        statements: Vec::new(),
        exception: None,
        has_end_keyword: false,
    })
}

/// `ABORT [WORK | TRANSACTION] [AND [NO] CHAIN]`.
fn abort(tokens: &[TokenWithSpan]) -> Option<ast::Statement> {
    let rest: Vec<String> =
        tokens.iter().skip(1).map(|token| token.token.to_string().to_lowercase()).collect();
    let rest = match rest.first().map(String::as_str) {
        Some("work" | "transaction") => &rest[1..],
        _ => &rest[..],
    };
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["and", "no", "chain"] => Some(ast::Statement::Rollback { chain: false, savepoint: None }),
        ["and", "chain"] => Some(ast::Statement::Rollback { chain: true, savepoint: None }),
        _ => None,
    }
}
