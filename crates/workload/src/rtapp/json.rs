//! JSON as rt-app and workgen read it, with line numbers.
//!
//! It accepts more than JSON: `/* */` and `//` comments, trailing commas, the same key several times in one object (the
//! order is kept), and a key without a value (`"suspend",`). jsonc-parser's scanner produces the tokens. Its own parser
//! refuses a key without a value, so the grammar is implemented here.

use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};

use crate::WorkloadError;

/// A value, and where it begins.
#[derive(Debug)]
pub(super) struct Located {
    /// Line, counted from 1.
    pub(super) line: usize,
    /// The value.
    pub(super) value: Value,
}

/// A JSON value.
#[derive(Debug)]
pub(super) enum Value {
    Object(Vec<Member>),
    Array(Vec<Located>),
    Text(String),
    Integer(i64),
    /// A number that is not an integer, or is too large for one, as text.
    OtherNumber(String),
    Bool(bool),
    Null,
    /// The key has no value.
    Absent,
}

/// A key of an object, with its value.
#[derive(Debug)]
pub(super) struct Member {
    /// The key.
    pub(super) key: String,
    /// Line of the key.
    pub(super) line: usize,
    /// Its value.
    pub(super) node: Located,
}

impl Value {
    /// The kind of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Object(_) => "an object",
            Value::Array(_) => "an array",
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::OtherNumber(_) => "a number that is not an integer",
            Value::Bool(_) => "a boolean",
            Value::Null => "null",
            Value::Absent => "missing",
        }
    }
}

/// Limit of nesting, which bounds recursion. rt-app files need six levels.
const MAX_DEPTH: usize = 32;

/// Parses a whole file.
pub(super) fn parse(text: &str, file: &str) -> Result<Located, WorkloadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = ScannerOptions {
        allow_single_quoted_strings: true,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let mut parser = Parser {
        file,
        scanner: Scanner::new(text, &options),
        text,
        token: None,
        line: 1,
        counted_to: 0,
    };
    parser.advance()?;
    let node = parser.value(0)?;
    match parser.token {
        None => Ok(node),
        Some(_) => Err(parser.unexpected("the end of the file", "remove what follows the object")),
    }
}

struct Parser<'a> {
    file: &'a str,
    scanner: Scanner<'a>,
    text: &'a str,
    /// The current token. `None` at the end.
    token: Option<Token<'a>>,
    /// Line of the current token.
    line: usize,
    /// Position up to which line breaks have been counted.
    counted_to: usize,
}

impl<'a> Parser<'a> {
    /// Moves to the next token that is not a comment.
    fn advance(&mut self) -> Result<(), WorkloadError> {
        loop {
            let scanned = self.scanner.scan();
            let start = self.scanner.token_start();
            let passed = self.text.as_bytes().get(self.counted_to..start).unwrap_or_default();
            self.line += passed.iter().filter(|byte| **byte == b'\n').count();
            self.counted_to = self.counted_to.max(start);
            match scanned {
                Ok(Some(Token::CommentLine(_) | Token::CommentBlock(_))) => {}
                Ok(token) => {
                    self.token = token;
                    return Ok(());
                }
                Err(error) => {
                    let problem = error.kind().to_string();
                    return Err(self.syntax(problem, "correct the text there"));
                }
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Located, WorkloadError> {
        if depth > MAX_DEPTH {
            let problem = format!("more than {MAX_DEPTH} levels of nesting");
            return Err(self.syntax(problem, "an rt-app file has six levels at most"));
        }
        let line = self.line;
        let value = match self.token.clone() {
            Some(Token::OpenBrace) => return self.object(depth),
            Some(Token::OpenBracket) => return self.array(depth),
            Some(Token::String(text)) => Value::Text(text.into_owned()),
            Some(Token::Boolean(value)) => Value::Bool(value),
            Some(Token::Number(digits)) => match digits.parse() {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::OtherNumber(digits.to_string()),
            },
            Some(Token::Null) => Value::Null,
            _ => return Err(self.unexpected("a value", "write a number, a string or an object")),
        };
        self.advance()?;
        Ok(Located { line, value })
    }

    fn object(&mut self, depth: usize) -> Result<Located, WorkloadError> {
        let line = self.line;
        let mut members = Vec::new();
        self.advance()?;
        loop {
            match self.token.clone() {
                Some(Token::CloseBrace) => break,
                Some(Token::String(key)) => members.push(self.member(key.into_owned(), depth)?),
                _ => {
                    let remedy = "write a key in quotes, or close the object with }";
                    return Err(self.unexpected("a key", remedy));
                }
            }
            match self.token {
                Some(Token::Comma) => self.advance()?,
                Some(Token::CloseBrace) => {}
                _ => return Err(self.unexpected("',' or '}'", "put a comma between keys")),
            }
        }
        self.advance()?;
        Ok(Located { line, value: Value::Object(members) })
    }

    fn member(&mut self, key: String, depth: usize) -> Result<Member, WorkloadError> {
        let line = self.line;
        self.advance()?;
        let node = match self.token {
            Some(Token::Colon) => {
                self.advance()?;
                self.value(depth + 1)?
            }
            Some(Token::Comma | Token::CloseBrace) => Located { line, value: Value::Absent },
            _ => return Err(self.unexpected("':'", "put a colon between key and value")),
        };
        Ok(Member { key, line, node })
    }

    fn array(&mut self, depth: usize) -> Result<Located, WorkloadError> {
        let line = self.line;
        let mut items = Vec::new();
        self.advance()?;
        while !matches!(self.token, Some(Token::CloseBracket)) {
            items.push(self.value(depth + 1)?);
            match self.token {
                Some(Token::Comma) => self.advance()?,
                Some(Token::CloseBracket) => {}
                _ => return Err(self.unexpected("',' or ']'", "put a comma between values")),
            }
        }
        self.advance()?;
        Ok(Located { line, value: Value::Array(items) })
    }

    fn unexpected(&self, expected: &str, remedy: &'static str) -> WorkloadError {
        let found = match &self.token {
            Some(token) => format!("'{}'", token.as_str().escape_debug()),
            None => "the end of the file".to_string(),
        };
        self.syntax(format!("expected {expected}, found {found}"), remedy)
    }

    fn syntax(&self, problem: String, remedy: &'static str) -> WorkloadError {
        WorkloadError::Syntax { file: self.file.to_string(), line: self.line, problem, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Vec<Member> {
        match parse(text, "f").unwrap().value {
            Value::Object(members) => members,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_skipped() {
        let members = members("/* a\n * b */ { // c\n\"run\" : 10, \"cpus\" : [ 1, 2, ], }");
        assert_eq!(members.len(), 2);
        assert_eq!((members[0].key.as_str(), members[0].line), ("run", 3));
    }

    #[test]
    fn equal_keys_stay_apart_and_in_order() {
        let keys: Vec<(String, usize)> = members("{\"run\":1,\n\"sleep\":2,\n\"run\":3}")
            .into_iter()
            .map(|m| (m.key, m.line))
            .collect();
        let expected = [("run", 1), ("sleep", 2), ("run", 3)].map(|(k, l)| (k.to_string(), l));
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_key_may_lack_its_value() {
        let members = members("{\"suspend\", \"run\" : 1, \"yield\"}");
        assert!(matches!(members[0].node.value, Value::Absent));
        assert!(matches!(members[2].node.value, Value::Absent));
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let error = parse(&"[".repeat(100_000), "f").unwrap_err().to_string();
        assert!(error.starts_with("f:1: ") && error.contains("32 levels"), "{error}");
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("{\n\"run\" : 1\n\"sleep\" : 2}", "f").unwrap_err().to_string();
        assert!(error.starts_with("f:3: ") && error.contains("comma between keys"), "{error}");
    }
}
