//! Reads llama.cpp's grammars ("GBNF"). The syntax is described in its `grammars/README.md`.

use std::collections::HashMap;

use super::MAX_DEPTH;

/// The most times that something may be repeated, as in llama.cpp.
const MAX_TIMES: u32 = 2000;

/// The most rules: they are gone through again and again.
const MAX_RULES: usize = 4000;

/// A grammar: its rules, of which one is the first.
#[derive(Debug)]
pub(super) struct Rules {
    pub bodies: Vec<Expr>,
    pub root: usize,
}

/// What a rule is made of.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expr {
    /// One of several; one at least.
    Any(Vec<Expr>),
    /// All in order; nothing at all where there are none.
    All(Vec<Expr>),
    /// One character of a class.
    Class(Class),
    /// A rule, by number.
    Rule(usize),
    /// So many times, without an upper bound where there is none.
    Repeat(Box<Expr>, u32, Option<u32>),
    /// A special token, by `<name>` or `<[id]>`.
    Token(String),
}

/// Characters: those within the ranges, or the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Class {
    pub negated: bool,
    pub ranges: Vec<(char, char)>,
}

/// Reads the rules.
///
/// # Errors
/// Says what is wrong and on which line.
pub(super) fn parse(text: &str) -> Result<Rules, String> {
    let mut parser = Parser { text, at: 0, names: HashMap::new(), bodies: Vec::new(), depth: 0 };
    parser.space(true);
    while parser.peek().is_some() {
        parser.rule()?;
        parser.space(true);
        if parser.bodies.len() > MAX_RULES {
            return Err(format!("it has more than {MAX_RULES} rules"));
        }
    }
    let Parser { names, bodies, .. } = parser;
    let root = *names.get("root").ok_or("it has no rule `root`, with which answers begin")?;
    let mut by_number: Vec<(&str, usize)> = names.iter().map(|(name, &i)| (*name, i)).collect();
    by_number.sort_unstable_by_key(|(_, i)| *i);
    let mut rules = Vec::with_capacity(bodies.len());
    for ((name, _), body) in by_number.into_iter().zip(bodies) {
        rules.push(body.ok_or_else(|| format!("the rule `{name}` is used and not defined"))?);
    }
    Ok(Rules { bodies: rules, root })
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    names: HashMap<&'t str, usize>,
    bodies: Vec<Option<Expr>>,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, what: &str) -> bool {
        let is = self.rest().starts_with(what);
        if is {
            self.at += what.len();
        }
        is
    }

    fn fault(&self, why: impl std::fmt::Display) -> String {
        let line = self.text.get(..self.at).unwrap_or_default().matches('\n').count() + 1;
        format!("line {line}: {why}")
    }

    fn expect(&mut self, what: &str) -> Result<(), String> {
        if self.take(what) {
            return Ok(());
        }
        let found = self.peek().map_or("its end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        Err(self.fault(format_args!("`{what}` is expected, {found} found")))
    }

    /// Passes over spaces and comments, and over line ends where these mean nothing.
    fn space(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some('#') => {
                    let comment = self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
                    self.at += comment;
                }
                Some(' ' | '\t') => self.at += 1,
                Some('\n' | '\r') if lines => self.at += 1,
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<&'t str, String> {
        let rest = self.rest();
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let name = rest.get(..end).filter(|n| !n.is_empty());
        let name = name.ok_or_else(|| self.fault("the name of a rule is expected"))?;
        self.at += end;
        Ok(name)
    }

    /// The number of a rule, which may be defined later.
    fn number(&mut self, name: &'t str) -> usize {
        let next = self.bodies.len();
        let number = *self.names.entry(name).or_insert(next);
        if number == next {
            self.bodies.push(None);
        }
        number
    }

    fn rule(&mut self) -> Result<(), String> {
        let name = self.name()?;
        self.space(false);
        self.expect("::=")?;
        self.space(true);
        let body = self.alternatives(false)?;
        match self.peek() {
            None | Some('\n' | '\r') => {}
            Some(c) => {
                return Err(self.fault(format_args!("`{}` has no meaning here", c.escape_debug())));
            }
        }
        let number = self.number(name);
        match self.bodies.get_mut(number) {
            Some(place @ None) => *place = Some(body),
            _ => return Err(self.fault(format_args!("the rule `{name}` is defined twice"))),
        }
        Ok(())
    }

    fn alternatives(&mut self, nested: bool) -> Result<Expr, String> {
        let mut any = vec![self.sequence(nested)?];
        loop {
            // A line that begins with `|` goes on with the rule before it.
            let before = self.at;
            self.space(true);
            if !self.take("|") {
                if !nested {
                    self.at = before;
                }
                break;
            }
            self.space(true);
            any.push(self.sequence(nested)?);
        }
        Ok(one_or(any, Expr::Any))
    }

    fn sequence(&mut self, nested: bool) -> Result<Expr, String> {
        let mut all: Vec<Expr> = Vec::new();
        // Whether the last part is what stands in brackets.
        let mut grouped = false;
        loop {
            let was_group = self.peek() == Some('(');
            match self.peek() {
                Some('"') => all.push(self.literal()?),
                Some('[') => all.push(Expr::Class(self.class()?)),
                Some('.') => {
                    self.at += 1;
                    all.push(Expr::Class(Class { negated: true, ranges: Vec::new() }));
                }
                Some('<') => all.push(self.token()?),
                Some('!') => return Err(self.fault("`!` before a token is not taken")),
                Some('(') => {
                    self.at += 1;
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(self.fault(format_args!("groups are nested more than {MAX_DEPTH} deep")));
                    }
                    self.space(true);
                    let group = self.alternatives(true)?;
                    self.depth -= 1;
                    self.expect(")")?;
                    all.push(group);
                }
                Some('*' | '+' | '?' | '{') => {
                    let (least, most) = self.times()?;
                    let last = match all.pop() {
                        Some(Expr::Repeat(..)) if !grouped => {
                            return Err(self.fault("of two repetitions in a row the first needs brackets"));
                        }
                        Some(last) => last,
                        None => return Err(self.fault("there is nothing before it to repeat")),
                    };
                    all.push(repeated(last, least, most));
                }
                Some(c) if is_name(c) => {
                    let name = self.name()?;
                    all.push(Expr::Rule(self.number(name)));
                }
                _ => return Ok(one_or(all, Expr::All)),
            }
            grouped = was_group;
            self.space(nested);
        }
    }

    fn times(&mut self) -> Result<(u32, Option<u32>), String> {
        match self.next() {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => self.space(true),
        }
        let least = self.count()?;
        self.space(true);
        let most = if self.take(",") {
            self.space(true);
            self.count()?
        } else {
            Some(least.ok_or_else(|| self.fault("a number of times is expected"))?)
        };
        self.space(true);
        self.expect("}")?;
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least) {
            return Err(self.fault("the second number of times is below the first"));
        }
        Ok((least, most))
    }

    /// A number of times; `None` where none stands here.
    fn count(&mut self) -> Result<Option<u32>, String> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let Some(digits) = rest.get(..end).filter(|d| !d.is_empty()) else { return Ok(None) };
        self.at += end;
        match digits.parse() {
            Ok(times) if times <= MAX_TIMES => Ok(Some(times)),
            _ => Err(self.fault(format_args!("{digits} times, and at most {MAX_TIMES} are taken"))),
        }
    }

    fn literal(&mut self) -> Result<Expr, String> {
        self.at += 1;
        let mut all = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.fault("a text does not end")),
                Some('"') => {
                    self.at += 1;
                    // One part, so that a repetition behind it is of all of it.
                    return Ok(one_or(all, Expr::All));
                }
                Some(_) => {
                    let c = self.character()?;
                    all.push(Expr::Class(Class { negated: false, ranges: vec![(c, c)] }));
                }
            }
        }
    }

    fn class(&mut self) -> Result<Class, String> {
        self.at += 1;
        let negated = self.take("^");
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.fault("a class of characters does not end")),
                Some(']') => {
                    self.at += 1;
                    break;
                }
                Some(_) => {
                    let first = self.character()?;
                    let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
                    let last = if is_range {
                        self.at += 1;
                        self.character()?
                    } else {
                        first
                    };
                    if last < first {
                        return Err(self.fault("a range of characters ends before it begins"));
                    }
                    ranges.push((first, last));
                }
            }
        }
        if ranges.is_empty() && !negated {
            return Err(self.fault("a class of no characters matches nothing"));
        }
        Ok(Class { negated, ranges })
    }

    fn character(&mut self) -> Result<char, String> {
        match self.next() {
            Some('\\') => {}
            Some(c) => return Ok(c),
            None => return Err(self.fault("a character is expected")),
        }
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(self.fault("an escape that is not known")),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let c = code.and_then(char::from_u32);
        let c =
            c.ok_or_else(|| self.fault(format_args!("{digits} digits of a character's code are expected")))?;
        self.at += digits;
        Ok(c)
    }

    fn token(&mut self) -> Result<Expr, String> {
        let end = self.rest().find(['>', '\n']).filter(|&end| self.rest().as_bytes().get(end) == Some(&b'>'));
        let name = end.and_then(|end| self.rest().get(..=end));
        let name = name.filter(|n| n.len() > 2 && !n.contains(char::is_whitespace));
        let name = name.ok_or_else(|| self.fault("the name of a token does not end"))?;
        self.at += name.len();
        Ok(Expr::Token(name.to_owned()))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn one_or(mut parts: Vec<Expr>, several: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => several(parts),
    }
}

fn repeated(what: Expr, least: u32, most: Option<u32>) -> Expr {
    match (least, most) {
        (1, Some(1)) => what,
        (_, Some(0)) => Expr::All(Vec::new()),
        _ => Expr::Repeat(Box::new(what), least, most),
    }
}
