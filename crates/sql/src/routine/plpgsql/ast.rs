//! What a PL/pgSQL body says.

use super::super::statements::Sql;
use sql_types::SqlState;
use sqlparser::ast::DataType;

/// `[DECLARE …] BEGIN … [EXCEPTION …] END`
#[derive(Debug, Default)]
pub struct Block {
    pub label: Option<String>,
    pub declarations: Vec<Declaration>,
    pub body: Vec<Stmt>,
    pub handlers: Vec<Handler>,
}

/// A variable.
#[derive(Debug)]
pub struct Declaration {
    pub name: String,
    pub ty: VariableType,
    pub constant: bool,
    pub not_null: bool,
    pub default: Option<Sql>,
}

/// The type of a variable.
#[derive(Debug)]
pub enum VariableType {
    /// By name.
    Named(Box<DataType>),
    /// `name%TYPE`: of a variable, or of a column.
    Like(Vec<String>),
    /// `table%ROWTYPE`
    Row(Vec<String>),
    /// RECORD
    Record,
    /// Another name for a variable.
    Alias(String),
}

/// WHEN … THEN …
#[derive(Debug)]
pub struct Handler {
    /// `None` is OTHERS.
    pub conditions: Vec<Option<SqlState>>,
    pub body: Vec<Stmt>,
}

/// What is assigned to: a variable, perhaps with its block, or a field of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Target(pub Vec<String>);

/// `INTO [STRICT] …`
#[derive(Debug)]
pub struct Into {
    pub strict: bool,
    pub targets: Vec<Target>,
}

/// `'format', arguments…` and what follows USING.
#[derive(Debug, Default)]
pub struct Raise {
    /// `None` for EXCEPTION; else the severity.
    pub severity: Option<&'static str>,
    /// The parts of the message, between which the arguments come.
    pub message: Option<Vec<String>>,
    pub arguments: Vec<Sql>,
    pub code: Option<SqlState>,
    /// A condition that was given by name.
    pub condition: Option<String>,
    pub using: Vec<(String, Sql)>,
}

/// What a loop goes through.
#[derive(Debug)]
pub enum Source {
    /// The rows of a statement.
    Query(Sql),
    /// Those of EXECUTE … USING.
    Execute(Sql, Vec<Sql>),
}

/// A statement.
#[derive(Debug)]
pub enum Stmt {
    Block(Block),
    Assign(Target, Sql),
    If(Vec<(Sql, Vec<Stmt>)>, Vec<Stmt>),
    /// A CASE with an operand is one without, over a variable of no name.
    Case {
        operand: Option<Sql>,
        branches: Vec<(Vec<Sql>, Vec<Stmt>)>,
        otherwise: Option<Vec<Stmt>>,
    },
    Loop(Option<String>, Vec<Stmt>),
    While(Option<String>, Sql, Vec<Stmt>),
    ForInteger {
        label: Option<String>,
        variable: String,
        from: Sql,
        to: Sql,
        by: Option<Sql>,
        reverse: bool,
        body: Vec<Stmt>,
    },
    ForRows {
        label: Option<String>,
        targets: Vec<Target>,
        source: Source,
        body: Vec<Stmt>,
    },
    ForEach {
        label: Option<String>,
        target: Target,
        array: Sql,
        body: Vec<Stmt>,
    },
    /// EXIT, or CONTINUE.
    Leave {
        exit: bool,
        label: Option<String>,
        when: Option<Sql>,
    },
    Return(Option<Sql>),
    /// RETURN NEXT
    ReturnNext(Option<Sql>),
    /// RETURN QUERY
    ReturnQuery(Source),
    Raise(Raise),
    /// RAISE without anything: the error being handled again.
    RaiseAgain,
    Assert(Sql, Option<Sql>),
    Sql(Sql, Option<Into>),
    Perform(Sql),
    Execute {
        query: Sql,
        into: Option<Into>,
        using: Vec<Sql>,
    },
    /// GET DIAGNOSTICS, or GET STACKED DIAGNOSTICS.
    Diagnostics(Vec<(Target, String)>),
    Null,
}
