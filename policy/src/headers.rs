//! The headers as text: which functions they define, and copies of the headers in which a user's rule replaces some.
//!
//! A user's rule is a C file that defines functions of the headers under their names. In a copy of the headers these
//! functions are only declared, and the file is included after all headers. So calls inside the headers reach the
//! replacement too. If a definition does not fit its declaration, the compiler reports an error.

include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// The additional header in a copy of the headers. It includes all headers, and then the user's file.
const OWN: &str = "own_rule.h";

/// A function of a C file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The function's name.
    pub name: String,
    /// The text of the comment right before it; may be empty.
    pub comment: String,
    /// Its text from the first word to the parenthesis that closes its parameters.
    pub signature: String,
    /// Byte offsets of its definition, without the comment.
    pub span: std::ops::Range<usize>,
    /// Byte offset of the brace that opens its body.
    pub body: usize,
    /// Number of its first line; the file's first line is 1.
    pub line: usize,
}

/// Something in a file that a rule must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// A variable that outlives a call, with the number of its line.
    State(usize),
    /// A float, which neither the kernel nor BPF has.
    Float(usize),
}

/// All functions of all headers, each with the name of its header, such as `sis_util.h`.
pub fn all() -> Vec<(&'static str, Function)> {
    let of = |(header, text): &(&'static str, &'static str)| {
        let header = *header;
        functions(text).into_iter().map(move |function| (header, function)).collect::<Vec<_>>()
    };
    HEADERS.iter().flat_map(of).collect()
}

/// The functions that `text` defines at the top level.
pub fn functions(text: &str) -> Vec<Function> {
    scan(text).0
}

/// What a rule must not have, in `text`. A rule computes with integers, and only from its arguments, so that runs can
/// be repeated.
pub fn forbidden(text: &str) -> Vec<Forbidden> {
    scan(text).1
}

/// A copy of the headers, as file names with their text, in which the file at `path` defines the functions `names`.
pub fn with_replaced(names: &[&str], path: &str) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = HEADERS
        .iter()
        .map(|(header, text)| ((*header).to_owned(), declared(text, names)))
        .collect();
    let mut own = String::from("#ifndef ROOST_OWN_RULE_H\n#define ROOST_OWN_RULE_H\n");
    for (header, _) in HEADERS {
        own += &format!("#include \"{header}\"\n");
    }
    own += &format!("#include \"{path}\"\n#endif\n");
    headers.push((OWN.to_owned(), own));
    headers
}

/// `text` without the bodies of the functions `names`; line numbers stay the same. If `text` has one of these
/// functions, it includes the user's file at its end.
fn declared(text: &str, names: &[&str]) -> String {
    let mut out = String::new();
    let mut from = 0;
    for function in functions(text) {
        if names.contains(&function.name.as_str()) {
            let declaration = text[from..function.body].trim_end();
            out += declaration;
            out += ";";
            let rest = &text[from + declaration.len()..function.span.end];
            out.extend(rest.chars().filter(|&c| c == '\n'));
            from = function.span.end;
        }
    }
    out += &text[from..];
    if let (1.., Some(end)) = (from, out.rfind("#endif")) {
        out.insert_str(end, &format!("#include \"{OWN}\"\n"));
    }
    out
}

/// A scan of a C file. It knows enough of the grammar to find definitions of functions.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// How deep braces are nested here.
    depth: usize,
    /// Where the current declaration begins, and the comment right before it.
    start: usize,
    comment: std::ops::Range<usize>,
    functions: Vec<Function>,
    forbidden: Vec<Forbidden>,
}

fn scan(text: &str) -> (Vec<Function>, Vec<Forbidden>) {
    let mut scan = Scan {
        text,
        at: 0,
        depth: 0,
        start: 0,
        comment: 0..0,
        functions: Vec::new(),
        forbidden: Vec::new(),
    };
    while let Some(next) = text[scan.at..].chars().next() {
        scan.step(next);
    }
    (scan.functions, scan.forbidden)
}

impl Scan<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Skips to the end of a comment or line: past `end`, which is looked for from `skip` bytes on.
    fn pass(&mut self, skip: usize, end: &str) {
        let from = (self.at + skip).min(self.text.len());
        let found = self.text[from..].find(end).map(|length| from + length + end.len());
        self.at = found.unwrap_or(self.text.len());
    }

    fn step(&mut self, next: char) {
        let begins_line = self.text[..self.at].trim_end_matches([' ', '\t']).ends_with('\n')
            || self.text[..self.at].trim().is_empty();
        match next {
            '/' if self.rest().starts_with("/*") => self.comment("*/", 2),
            '/' if self.rest().starts_with("//") => self.comment("\n", 2),
            '"' | '\'' => self.literal(next),
            '#' if begins_line => self.directive(),
            '{' => self.open(),
            '}' => {
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
                if self.depth == 0 {
                    self.close();
                }
            }
            ';' if self.depth == 0 => {
                self.check_declaration();
                self.at += 1;
                self.begin();
            }
            'a'..='z' | 'A'..='Z' | '_' => self.word(),
            _ => self.at += next.len_utf8(),
        }
    }

    /// The next declaration begins here.
    fn begin(&mut self) {
        self.start = self.at;
        self.comment = self.at..self.at;
    }

    fn comment(&mut self, end: &str, skip: usize) {
        let from = self.at;
        self.pass(skip, end);
        if self.depth == 0 && self.text[self.start..from].trim().is_empty() {
            // Comments on successive lines belong together.
            let follows = self.text[self.comment.end..from].trim().is_empty();
            let apart = self.text[self.comment.end..from].contains("\n\n");
            let joined = !self.comment.is_empty() && follows && !apart;
            self.comment = if joined { self.comment.start..self.at } else { from..self.at };
            self.start = self.at;
        }
    }

    fn literal(&mut self, quote: char) {
        let mut escaped = false;
        let inner = self.rest()[1..].char_indices();
        for (index, c) in inner {
            if c == quote && !escaped {
                self.at += index + 2;
                return;
            }
            escaped = c == '\\' && !escaped;
        }
        self.at = self.text.len();
    }

    /// A directive ends with its line, unless a backslash continues it.
    fn directive(&mut self) {
        loop {
            let line = self.rest().split('\n').next().unwrap_or_default();
            let continues = line.trim_end().ends_with('\\');
            self.pass(0, "\n");
            if !continues || self.at >= self.text.len() {
                break;
            }
        }
        if self.depth == 0 {
            self.begin();
        }
    }

    fn word(&mut self) {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let word = &rest[..end.unwrap_or(rest.len())];
        let length = word.len();
        let is_constant = rest[length..].trim_start().starts_with("const ");
        let line = || self.line(self.at);
        match word {
            "static" if self.depth > 0 && !is_constant => {
                self.forbidden.push(Forbidden::State(line()));
            }
            "float" | "double" => self.forbidden.push(Forbidden::Float(line())),
            _ => {}
        }
        self.at += length;
    }

    fn open(&mut self) {
        if self.depth == 0 {
            let declaration = &self.text[self.start..self.at];
            if let Some(name) = defined(declaration) {
                let start = self.start + declaration.len() - declaration.trim_start().len();
                self.functions.push(Function {
                    name,
                    comment: self.text[self.comment.clone()].to_owned(),
                    signature: declaration.trim().to_owned(),
                    span: start..self.at,
                    body: self.at,
                    line: self.line(start),
                });
            }
        }
        self.depth += 1;
        self.at += 1;
    }

    /// The outermost brace was closed here.
    fn close(&mut self) {
        let is_function = self.functions.last().is_some_and(|last| last.span.start >= self.start);
        if is_function {
            if let Some(last) = self.functions.last_mut() {
                last.span.end = self.at;
            }
            self.begin();
        }
    }

    /// A variable of the file that is no constant is state.
    fn check_declaration(&mut self) {
        let declaration = self.text[self.start..self.at].trim();
        let words: Vec<&str> = declaration
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let is_type = ["struct", "enum", "union", "typedef"].contains(words.first().unwrap_or(&""));
        let has_value = declaration.contains('=');
        let is_variable = has_value || !declaration.contains('(') && words.len() > 1;
        if is_variable && !is_type && !words.contains(&"const") {
            let start = self.start
                + (self.text[self.start..].len() - self.text[self.start..].trim_start().len());
            self.forbidden.push(Forbidden::State(self.line(start)));
        }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }
}

/// The name of the function that a declaration before a brace defines; `None` if it defines something else.
fn defined(declaration: &str) -> Option<String> {
    if !declaration.trim_end().ends_with(')') || declaration.contains('=') {
        return None;
    }
    let mut rest = declaration;
    while let Some(open) = rest.find('(') {
        let before = rest[..open].trim_end();
        let start = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |index| index + 1);
        let name = &before[start..];
        if !name.is_empty() && name != "__attribute__" {
            return Some(name.to_owned());
        }
        // Skips the attribute's parentheses.
        let mut depth = 0;
        let end = rest[open..].char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0
        });
        rest = &rest[open + end?.0 + 1..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        functions(text).into_iter().map(|function| function.name).collect()
    }

    /// The scan finds every function for which `bindings.c` has a symbol, and finds only functions.
    #[test]
    fn the_headers_functions_are_found() {
        let all: Vec<String> = all().into_iter().map(|(_, function)| function.name).collect();
        for symbol in names(BINDINGS) {
            let name = symbol.replace("policy_", "roost_");
            assert!(all.contains(&name), "{name} is in {all:?}");
        }
        assert!(all.iter().all(|name| name.starts_with("roost_")), "{all:?}");
        let by_prefix: usize =
            HEADERS.iter().map(|(_, text)| text.matches("\nstatic __always_inline").count()).sum();
        assert_eq!(all.len(), by_prefix, "all functions begin with the same words");
    }

    #[test]
    fn comments_strings_and_macros_are_no_functions() {
        let text = "/* u32 a(void) { } */\n// u32 b(void) { }\n#define C(x) { x } \\\n\tu32 d(void) { }\n\
                    static const u32 e[2] = { 1, 2 };\nstruct f { int g; };\nenum h { I };\n\
                    /* Does j. */\nstatic __attribute__((noinline)) u32 j(u32 k)\n{\n\tif (k) { return '{'; }\n\
                    \treturn sizeof(\"}\\\"}\");\n}\nu32 l(void);\nu32 m(void) { return 0; }\n";
        assert_eq!(names(text), ["j", "m"]);
        let [j, m] = &functions(text)[..] else { panic!() };
        assert_eq!((j.comment.as_str(), j.line, m.line), ("/* Does j. */", 9, 15));
        assert_eq!(j.signature, "static __attribute__((noinline)) u32 j(u32 k)");
        assert!(text[j.span.clone()].ends_with("\");\n}"));
    }

    #[test]
    fn a_replaced_function_is_declared_where_it_was_and_lines_stay() {
        let (header, text) = HEADERS.iter().find(|(_, text)| text.contains("over_limit(")).unwrap();
        let headers = with_replaced(&["roost_numa_over_limit"], "/tmp/mine.h");
        let (_, declared) = headers.iter().find(|(name, _)| name == header).unwrap();
        assert!(!names(declared).contains(&"roost_numa_over_limit".to_owned()));
        assert_eq!(names(declared).len() + 1, names(text).len());
        let line =
            |text: &str| text.lines().position(|line| line.contains("u64 roost_numa_filter("));
        assert_eq!(line(declared), line(text));
        assert!(declared.contains("u32 imb_numa_nr);\n"));
        assert!(declared.trim_end().ends_with("#include \"own_rule.h\"\n#endif"), "{declared}");
        let (_, own) = headers.last().unwrap();
        assert!(own.contains("#include \"/tmp/mine.h\"\n#endif"));
        let others = headers.iter().filter(|(_, text)| text.contains(OWN)).count();
        assert_eq!(others, 1, "only a header with a replaced function includes the file");
    }

    #[test]
    fn what_outlives_a_call_and_floats_are_found() {
        let lines = |text| -> Vec<usize> {
            let line = |forbidden: &Forbidden| match forbidden {
                Forbidden::State(line) | Forbidden::Float(line) => *line,
            };
            forbidden(text).iter().map(line).collect()
        };
        assert_eq!(
            lines(
                "static const u32 a[] = { 1 };\nu32 f(u32 x) { static const u32 b = 1; return b; }"
            ),
            []
        );
        assert_eq!(lines("u32 f(u32 x)\n{\n\tstatic u32 calls;\n\treturn ++calls;\n}\n"), [3]);
        assert_eq!(
            lines("\nstatic u32 calls;\nu32 b = 3;\nstruct s { u32 c; };\nu32 g(u32);\n"),
            [2, 3]
        );
        assert_eq!(lines("u32 f(u32 x)\n{\n\treturn x * (double)2; /* float */\n}\n"), [3]);
        assert!(HEADERS.iter().all(|(_, text)| forbidden(text).is_empty()));
    }
}
