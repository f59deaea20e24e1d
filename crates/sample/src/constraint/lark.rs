//! From GBNF to the Lark grammars that llguidance reads.
//!
//! GBNF knows characters alone, while Lark's texts are cut into lexemes first, the longest that goes. The two agree in two
//! cases, and each grammar is put into one of them:
//!
//! - rules that never come back to themselves are a regular expression: then the whole answer is one lexeme, which is
//!   fast;
//! - else each character is a lexeme. So no lexeme can swallow what another one needs.

use std::fmt::Write;

use super::gbnf::{Class, Expr, Rules};

/// Writes the rules in Lark's syntax.
///
/// # Errors
/// Where a rule can never come to an end.
pub(super) fn from_gbnf(rules: &Rules) -> Result<String, String> {
    let reachable = reachable(rules);
    if !ends(rules).get(rules.root).copied().unwrap_or(false) {
        return Err("no answer satisfies it: its rules have no end".into());
    }
    let tokens = rules.bodies.iter().zip(&reachable).any(|(body, used)| *used && has_token(body));
    let regular = !tokens && !recursive(rules, &reachable);
    let mut out = String::new();
    let name = |number: usize| if regular { format!("R{number}") } else { format!("r{number}") };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "start: {}", name(rules.root));
    for (number, body) in rules.bodies.iter().enumerate() {
        if reachable.get(number) == Some(&true) {
            let _ = write!(out, "{}: ", name(number));
            expression(&mut out, body, &name);
            out.push('\n');
        }
    }
    Ok(out)
}

fn expression(out: &mut String, expr: &Expr, name: &impl Fn(usize) -> String) {
    match expr {
        Expr::Any(parts) | Expr::All(parts) => {
            let between = if matches!(expr, Expr::Any(_)) { " | " } else { " " };
            out.push('(');
            for (i, part) in parts.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { between });
                expression(out, part, name);
            }
            out.push_str(if parts.is_empty() { "\"\")" } else { ")" });
        }
        Expr::Class(class) => write_class(out, class),
        Expr::Rule(number) => out.push_str(&name(*number)),
        Expr::Token(token) => out.push_str(token),
        Expr::Repeat(part, least, most) => {
            out.push('(');
            expression(out, part, name);
            out.push(')');
            let _ = match (least, most) {
                (0, None) => write!(out, "*"),
                (1, None) => write!(out, "+"),
                (0, Some(1)) => write!(out, "?"),
                (least, None) => write!(out, "{{{least},}}"),
                (least, Some(most)) => write!(out, "{{{least},{most}}}"),
            };
        }
    }
}

/// A class as a regular expression, all in codes but for letters and digits.
fn write_class(out: &mut String, class: &Class) {
    out.push_str("/[");
    if class.ranges.is_empty() {
        out.push_str(r"\x{0}-\x{10FFFF}");
    } else if class.negated {
        out.push('^');
    }
    for &(first, last) in &class.ranges {
        write_char(out, first);
        if first != last {
            out.push('-');
            write_char(out, last);
        }
    }
    out.push_str("]/");
}

fn write_char(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() {
        out.push(c);
    } else {
        let _ = write!(out, r"\x{{{:X}}}", u32::from(c));
    }
}

fn has_token(expr: &Expr) -> bool {
    match expr {
        Expr::Token(_) => true,
        Expr::Any(parts) | Expr::All(parts) => parts.iter().any(has_token),
        Expr::Repeat(part, ..) => has_token(part),
        Expr::Class(_) | Expr::Rule(_) => false,
    }
}

/// The rules that an expression names.
fn named(expr: &Expr, out: &mut Vec<usize>) {
    match expr {
        Expr::Rule(number) => out.push(*number),
        Expr::Any(parts) | Expr::All(parts) => parts.iter().for_each(|part| named(part, out)),
        Expr::Repeat(part, ..) => named(part, out),
        Expr::Class(_) | Expr::Token(_) => {}
    }
}

/// Which rules the first one needs.
fn reachable(rules: &Rules) -> Vec<bool> {
    let mut seen = vec![false; rules.bodies.len()];
    let mut left = vec![rules.root];
    while let Some(number) = left.pop() {
        if let Some(place @ false) = seen.get_mut(number) {
            *place = true;
            rules.bodies.get(number).into_iter().for_each(|body| named(body, &mut left));
        }
    }
    seen
}

/// Whether a rule that is needed comes back to itself.
fn recursive(rules: &Rules, reachable: &[bool]) -> bool {
    // Rules go once all that they name have gone; those in a circle never do.
    let mut names: Vec<Vec<usize>> = Vec::new();
    for body in &rules.bodies {
        let mut list = Vec::new();
        named(body, &mut list);
        names.push(list);
    }
    let mut gone: Vec<bool> = reachable.iter().map(|used| !used).collect();
    let mut went = true;
    while went {
        went = false;
        for (number, list) in names.iter().enumerate() {
            let ready = list.iter().all(|n| gone.get(*n).copied().unwrap_or(true));
            if let Some(place @ false) = gone.get_mut(number)
                && ready
            {
                *place = true;
                went = true;
            }
        }
    }
    gone.contains(&false)
}

/// Which rules some text satisfies.
fn ends(rules: &Rules) -> Vec<bool> {
    let mut known = vec![false; rules.bodies.len()];
    loop {
        let before = known.clone();
        for (place, body) in known.iter_mut().zip(&rules.bodies) {
            *place |= can_end(body, &before);
        }
        if known == before {
            return known;
        }
    }
}

fn can_end(expr: &Expr, known: &[bool]) -> bool {
    match expr {
        Expr::Class(_) | Expr::Token(_) => true,
        Expr::Rule(number) => known.get(*number).copied().unwrap_or(false),
        Expr::Any(parts) => parts.iter().any(|part| can_end(part, known)),
        Expr::All(parts) => parts.iter().all(|part| can_end(part, known)),
        Expr::Repeat(part, least, _) => *least == 0 || can_end(part, known),
    }
}
