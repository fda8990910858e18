//! Errors as PostgreSQL's clients see them: SQLSTATE, message, detail, hint and position.

use std::fmt;

/// Result of an SQL operation.
pub type SqlResult<T> = Result<T, SqlError>;

/// A five-character SQLSTATE of PostgreSQL's appendix A.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! sql_states {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState { $($(#[$doc])* pub const $name: SqlState = SqlState($code);)* }
    };
}

sql_states! {
    /// successful_completion
    SUCCESS = "00000";
    /// warning
    WARNING = "01000";
    /// no_data
    NO_DATA = "02000";
    /// connection_failure
    CONNECTION_FAILURE = "08006";
    /// protocol_violation
    PROTOCOL_VIOLATION = "08P01";
    /// feature_not_supported
    FEATURE_NOT_SUPPORTED = "0A000";
    /// cardinality_violation
    CARDINALITY_VIOLATION = "21000";
    /// string_data_right_truncation
    STRING_TRUNCATION = "22001";
    /// numeric_value_out_of_range
    OUT_OF_RANGE = "22003";
    /// null_value_not_allowed
    NULL_NOT_ALLOWED = "22004";
    /// invalid_datetime_format
    INVALID_DATETIME = "22007";
    /// datetime_field_overflow
    DATETIME_OVERFLOW = "22008";
    /// invalid_time_zone_displacement_value
    INVALID_TIME_ZONE = "22009";
    /// substring_error
    SUBSTRING_ERROR = "22011";
    /// division_by_zero
    DIVISION_BY_ZERO = "22012";
    /// interval_field_overflow
    INTERVAL_OVERFLOW = "22015";
    /// invalid_argument_for_logarithm
    INVALID_LOGARITHM = "2201E";
    /// invalid_argument_for_power_function
    INVALID_POWER = "2201F";
    /// invalid_row_count_in_limit_clause
    INVALID_LIMIT = "2201W";
    /// invalid_row_count_in_result_offset_clause
    INVALID_OFFSET = "2201X";
    /// invalid_regular_expression
    INVALID_REGEX = "2201B";
    /// character_not_in_repertoire
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    /// invalid_parameter_value
    INVALID_PARAMETER = "22023";
    /// invalid_escape_sequence
    INVALID_ESCAPE = "22025";
    /// array_subscript_error
    ARRAY_SUBSCRIPT = "2202E";
    /// sequence_generator_limit_exceeded
    SEQUENCE_LIMIT = "2200H";
    /// invalid_text_representation
    INVALID_TEXT = "22P02";
    /// invalid_binary_representation
    INVALID_BINARY = "22P03";
    /// bad_copy_file_format
    BAD_COPY = "22P04";
    /// untranslatable_character
    UNTRANSLATABLE = "22P05";
    /// invalid_json_text
    INVALID_JSON = "22030";
    /// integrity_constraint_violation
    INTEGRITY_VIOLATION = "23000";
    /// not_null_violation
    NOT_NULL_VIOLATION = "23502";
    /// foreign_key_violation
    FOREIGN_KEY_VIOLATION = "23503";
    /// unique_violation
    UNIQUE_VIOLATION = "23505";
    /// check_violation
    CHECK_VIOLATION = "23514";
    /// invalid_cursor_state
    INVALID_CURSOR_STATE = "24000";
    /// invalid_transaction_state
    INVALID_TRANSACTION_STATE = "25000";
    /// active_sql_transaction
    ACTIVE_TRANSACTION = "25001";
    /// read_only_sql_transaction
    READ_ONLY_TRANSACTION = "25006";
    /// no_active_sql_transaction
    NO_ACTIVE_TRANSACTION = "25P01";
    /// in_failed_sql_transaction
    IN_FAILED_TRANSACTION = "25P02";
    /// idle_in_transaction_session_timeout
    IDLE_IN_TRANSACTION_TIMEOUT = "25P03";
    /// invalid_sql_statement_name
    INVALID_STATEMENT_NAME = "26000";
    /// invalid_authorization_specification
    INVALID_AUTHORIZATION = "28000";
    /// invalid_password
    INVALID_PASSWORD = "28P01";
    /// dependent_objects_still_exist
    DEPENDENT_OBJECTS = "2BP01";
    /// invalid_cursor_name
    INVALID_CURSOR_NAME = "34000";
    /// invalid_savepoint_specification
    INVALID_SAVEPOINT = "3B001";
    /// invalid_catalog_name
    INVALID_CATALOG = "3D000";
    /// invalid_schema_name
    INVALID_SCHEMA = "3F000";
    /// serialization_failure
    SERIALIZATION_FAILURE = "40001";
    /// statement_completion_unknown
    COMPLETION_UNKNOWN = "40003";
    /// deadlock_detected
    DEADLOCK = "40P01";
    /// syntax_error
    SYNTAX_ERROR = "42601";
    /// insufficient_privilege
    INSUFFICIENT_PRIVILEGE = "42501";
    /// cannot_coerce
    CANNOT_COERCE = "42846";
    /// generated_always
    GENERATED_ALWAYS = "428C9";
    /// grouping_error
    GROUPING_ERROR = "42803";
    /// windowing_error
    WINDOWING_ERROR = "42P20";
    /// invalid_recursion
    INVALID_RECURSION = "42P19";
    /// invalid_foreign_key
    INVALID_FOREIGN_KEY = "42830";
    /// invalid_name
    INVALID_NAME = "42602";
    /// name_too_long
    NAME_TOO_LONG = "42622";
    /// reserved_name
    RESERVED_NAME = "42939";
    /// datatype_mismatch
    DATATYPE_MISMATCH = "42804";
    /// indeterminate_datatype
    INDETERMINATE_DATATYPE = "42P18";
    /// collation_mismatch
    COLLATION_MISMATCH = "42P21";
    /// wrong_object_type
    WRONG_OBJECT_TYPE = "42809";
    /// undefined_column
    UNDEFINED_COLUMN = "42703";
    /// undefined_function
    UNDEFINED_FUNCTION = "42883";
    /// undefined_table
    UNDEFINED_TABLE = "42P01";
    /// undefined_parameter
    UNDEFINED_PARAMETER = "42P02";
    /// undefined_object
    UNDEFINED_OBJECT = "42704";
    /// duplicate_column
    DUPLICATE_COLUMN = "42701";
    /// duplicate_cursor
    DUPLICATE_CURSOR = "42P03";
    /// duplicate_database
    DUPLICATE_DATABASE = "42P04";
    /// duplicate_prepared_statement
    DUPLICATE_STATEMENT = "42P05";
    /// duplicate_schema
    DUPLICATE_SCHEMA = "42P06";
    /// duplicate_table
    DUPLICATE_TABLE = "42P07";
    /// duplicate_alias
    DUPLICATE_ALIAS = "42712";
    /// duplicate_object
    DUPLICATE_OBJECT = "42710";
    /// ambiguous_column
    AMBIGUOUS_COLUMN = "42702";
    /// ambiguous_function
    AMBIGUOUS_FUNCTION = "42725";
    /// invalid_column_reference
    INVALID_COLUMN_REFERENCE = "42P10";
    /// invalid_column_definition
    INVALID_COLUMN_DEFINITION = "42611";
    /// invalid_table_definition
    INVALID_TABLE_DEFINITION = "42P16";
    /// invalid_object_definition
    INVALID_OBJECT_DEFINITION = "42P17";
    /// insufficient_resources
    INSUFFICIENT_RESOURCES = "53000";
    /// disk_full
    DISK_FULL = "53100";
    /// out_of_memory
    OUT_OF_MEMORY = "53200";
    /// too_many_connections
    TOO_MANY_CONNECTIONS = "53300";
    /// program_limit_exceeded
    PROGRAM_LIMIT = "54000";
    /// statement_too_complex
    TOO_COMPLEX = "54001";
    /// object_not_in_prerequisite_state
    OBJECT_STATE = "55000";
    /// object_in_use
    OBJECT_IN_USE = "55006";
    /// cant_change_runtime_param
    CANT_CHANGE_PARAM = "55P02";
    /// lock_not_available
    LOCK_NOT_AVAILABLE = "55P03";
    /// query_canceled
    QUERY_CANCELED = "57014";
    /// admin_shutdown
    ADMIN_SHUTDOWN = "57P01";
    /// cannot_connect_now
    CANNOT_CONNECT_NOW = "57P03";
    /// io_error
    IO_ERROR = "58030";
    /// internal_error
    INTERNAL = "XX000";
    /// data_corrupted
    DATA_CORRUPTED = "XX001";
}

impl SqlState {
    /// The five characters.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a statement failed, in the fields of PostgreSQL's ErrorResponse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct SqlError {
    /// SQLSTATE.
    pub code: SqlState,
    /// One line, lower case, no full stop: PostgreSQL's words where it has some.
    pub message: String,
    /// The rarely filled fields.
    pub extra: Option<Box<ErrorExtra>>,
}

/// The optional fields of [`SqlError`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorExtra {
    /// A second sentence with particulars.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1.
    pub position: Option<u32>,
    /// Where it happened (PostgreSQL's CONTEXT field), for COPY.
    pub context: Option<String>,
    /// Name of the schema concerned.
    pub schema: Option<String>,
    /// Name of the table concerned.
    pub table: Option<String>,
    /// Name of the column concerned.
    pub column: Option<String>,
    /// Name of the data type concerned.
    pub data_type: Option<String>,
    /// Name of the constraint concerned.
    pub constraint: Option<String>,
}

impl SqlError {
    /// An error with a code and a message.
    pub fn new(code: SqlState, message: impl Into<String>) -> Self {
        SqlError { code, message: message.into(), extra: None }
    }

    /// `0A000` naming what is not supported.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// `XX000`: a defect of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        SqlError::new(SqlState::INTERNAL, message)
    }

    /// The optional fields, to read.
    pub fn extra(&self) -> Option<&ErrorExtra> {
        self.extra.as_deref()
    }

    /// The optional fields, to fill.
    pub fn extra_mut(&mut self) -> &mut ErrorExtra {
        self.extra.get_or_insert_default()
    }

    /// The same error with a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.extra_mut().hint = Some(hint.into());
        self
    }

    /// The same error with a detail.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.extra_mut().detail = Some(detail.into());
        self
    }

    /// The same error at a position, in characters from 1.
    pub fn at(mut self, position: u32) -> Self {
        self.extra_mut().position = Some(position);
        self
    }
}
