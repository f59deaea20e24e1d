//! Other engines' own programs of measurement, run on the same file with the same threads: llama-bench and
//! llama-batched-bench, of llama.cpp and of ik_llama.cpp.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::case::{Case, Kind};
use super::process::{Fault, printed, seconds_to_line};

/// What every program is run on.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The file.
    pub model: &'a Path,
    /// The threads.
    pub threads: usize,
}

/// A llama-bench.
pub struct LlamaBench {
    program: PathBuf,
    args: Vec<String>,
    depth: DepthFlag,
    /// The words that leave out its warm-up.
    cold: &'static [&'static str],
}

/// How a llama-bench is told of tokens that are in the cache before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DepthFlag {
    /// llama.cpp: `-d DEPTH`, for prompts and generations.
    Depth,
    /// ik_llama.cpp: `-gp DEPTH,TOKENS`, for generations alone.
    GenerationAfterPrompt,
    /// Older ones: not at all.
    None,
}

/// One result of a llama-bench.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    prompt: usize,
    tokens: usize,
    depth: usize,
    /// Tokens a second.
    speeds: Vec<f64>,
}

/// Speeds of some cases, in tokens a second; `None` for what the program cannot measure.
pub type Speeds = Vec<Option<f64>>;

impl LlamaBench {
    /// Asks the program which flags it has.
    pub fn new(program: &Path, args: &[String]) -> Result<LlamaBench, Fault> {
        let help = printed(Command::new(program).arg("--help"))?;
        let help = help.out + &help.err;
        let has = |flag: &str| help.split([' ', ',', '\n', '\t']).any(|word| word == flag);
        if !has("--n-gen") || !has("--output") {
            let why = "its help names neither --n-gen nor --output, as a llama-bench's does".into();
            return Err(Fault::Answer { program: program.display().to_string(), why });
        }
        let depth = match () {
            () if has("--n-depth") => DepthFlag::Depth,
            () if has("-gp") => DepthFlag::GenerationAfterPrompt,
            () => DepthFlag::None,
        };
        let cold: &[&str] = match () {
            () if has("--no-warmup") => &["--no-warmup"],
            () if has("--warmup") => &["--warmup", "0"],
            () => &[],
        };
        Ok(LlamaBench { program: program.into(), args: args.to_vec(), depth, cold })
    }

    /// Runs cases of one depth and one sequence, once each after its own warm-up.
    pub fn speeds(&self, job: Job<'_>, cases: &[Case]) -> Result<Speeds, Fault> {
        let depth = cases.first().map_or(0, |c| c.depth);
        let list = |kind: Kind| -> Vec<String> {
            cases.iter().filter(|c| c.kind == kind).map(|c| c.tokens.to_string()).collect()
        };
        let or_none = |list: Vec<String>| if list.is_empty() { "0".to_owned() } else { list.join(",") };
        let (prompts, tokens) = (list(Kind::Prompt), list(Kind::Generation { sequences: 1 }));
        let mut command = self.command(job);
        match self.depth {
            _ if depth == 0 => {
                command.args(["-p", &or_none(prompts), "-n", &or_none(tokens)]);
            }
            DepthFlag::Depth => {
                let depth = depth.to_string();
                command.args(["-p", &or_none(prompts), "-n", &or_none(tokens), "-d", &depth]);
            }
            DepthFlag::GenerationAfterPrompt if !tokens.is_empty() => {
                command.args(["-p", "0", "-n", "0"]);
                for tokens in tokens {
                    command.args(["-gp", &format!("{depth},{tokens}")]);
                }
            }
            DepthFlag::GenerationAfterPrompt | DepthFlag::None => return Ok(vec![None; cases.len()]),
        }
        let printed = printed(command.args(&self.args))?;
        let rows = rows(&printed.out).map_err(|why| self.fault(why))?;
        cases.iter().map(|case| self.speed(case, &rows)).collect()
    }

    /// Seconds from the program's start to the end of a prompt of so many tokens, without its warm-up; `None` where
    /// that cannot be left out. The first token is known then.
    pub fn first_token(&self, job: Job<'_>, prompt: usize) -> Result<Option<f64>, Fault> {
        if self.cold.is_empty() {
            return Ok(None);
        }
        let mut command = self.command(job);
        command.args(["-p", &prompt.to_string(), "-n", "0"]).args(self.cold).args(&self.args);
        // A result is printed as soon as it is there, this field last; then the program tidies up.
        seconds_to_line(&mut command, &|line| line.contains("\"samples_ts\"")).map(Some)
    }

    fn command(&self, job: Job<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(job.model).args(["-t", &job.threads.to_string(), "-r", "1", "-o", "json"]);
        command
    }

    fn speed(&self, case: &Case, rows: &[Row]) -> Result<Option<f64>, Fault> {
        let is_it = |row: &&Row| match (case.kind, self.depth) {
            (Kind::Prompt, _) => (row.prompt, row.tokens, row.depth) == (case.tokens, 0, case.depth),
            (_, DepthFlag::GenerationAfterPrompt) => (row.prompt, row.tokens) == (case.depth, case.tokens),
            _ => (row.prompt, row.tokens, row.depth) == (0, case.tokens, case.depth),
        };
        let found: Vec<&Row> = rows.iter().filter(is_it).collect();
        match found[..] {
            [] if case.kind == Kind::Prompt && case.depth > 0 && self.depth != DepthFlag::Depth => Ok(None),
            [row] if !row.speeds.is_empty() => {
                Ok(Some(super::samples::Samples::new(row.speeds.clone()).median()))
            }
            _ => Err(self.fault(format!("{} results of {}", found.len(), case.label()))),
        }
    }

    fn fault(&self, why: String) -> Fault {
        Fault::Answer { program: self.program.display().to_string(), why }
    }
}

/// The results in what a llama-bench printed with `-o json`. Lines of other parts of the program may stand between.
fn rows(out: &str) -> Result<Vec<Row>, String> {
    let json: String =
        out.lines().filter(|l| l.trim_start().starts_with(['[', ']', '{', '}', ',', '"'])).collect();
    let rows: Vec<Value> = serde_json::from_str(&json).map_err(|e| format!("no results in JSON: {e}"))?;
    let row = |row: &Value| {
        let number = |key: &str| row.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let speeds = row.get("samples_ts")?.as_array()?.iter().filter_map(Value::as_f64).collect();
        let depth = number("n_depth").unwrap_or(0);
        Some(Row { prompt: number("n_prompt")?, tokens: number("n_gen")?, depth, speeds })
    };
    rows.iter()
        .map(|r| row(r).ok_or_else(|| "a result lacks n_prompt, n_gen or samples_ts".to_owned()))
        .collect()
}

/// A llama-batched-bench.
pub struct BatchedBench {
    program: PathBuf,
    args: Vec<String>,
}

/// Positions of a sequence's cache come in multiples of this.
const CACHE_STEP: usize = 256;

impl BatchedBench {
    /// Nothing is asked yet: the program does nothing without a model.
    pub fn new(program: &Path, args: &[String]) -> BatchedBench {
        BatchedBench { program: program.into(), args: args.to_vec() }
    }

    /// Runs generations of one depth, of several sequences each.
    pub fn speeds(&self, job: Job<'_>, cases: &[Case]) -> Result<Speeds, Fault> {
        let depth = cases.first().map_or(0, |c| c.depth);
        let sorted = |of: fn(&Case) -> usize| {
            let mut list: Vec<usize> = cases.iter().map(of).collect();
            list.sort_unstable();
            list.dedup();
            list
        };
        let (tokens, sequences) = (sorted(|c| c.tokens), sorted(Case::sequences));
        let (Some(longest), Some(most)) = (tokens.last(), sequences.last()) else { return Ok(vec![]) };
        let context = most * (depth + longest).next_multiple_of(CACHE_STEP);
        let joined = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(job.model).args(["-t", &job.threads.to_string(), "-c", &context.to_string()]);
        command.args(["-npp", &depth.to_string(), "-ntg", &joined(&tokens), "-npl", &joined(&sequences)]);
        let printed = printed(command.args(&self.args))?;
        // ik_llama.cpp's prints its table on standard error.
        let speeds =
            [&printed.out, &printed.err].into_iter().find_map(|text| table(text)).unwrap_or_default();
        let speed = |case: &Case| {
            let found = speeds.iter().find(|(n, b, _)| (*n, *b) == (case.tokens, case.sequences()));
            found.map(|(.., speed)| Some(*speed)).ok_or_else(|| Fault::Answer {
                program: self.program.display().to_string(),
                why: format!("no result of {}", case.label()),
            })
        };
        cases.iter().map(speed).collect()
    }
}

/// The rows of a llama-batched-bench's table: tokens, sequences, tokens a second of all together. `None` where there
/// is no table.
fn table(text: &str) -> Option<Vec<(usize, usize, f64)>> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(inside.split('|').map(|c| c.trim().to_owned()).collect())
    };
    let mut lines = text.lines().filter_map(cells);
    let head = lines.find(|cells| cells.iter().any(|c| c == "S_TG t/s"))?;
    let at = |name: &str| head.iter().position(|c| c == name);
    let (tokens, sequences, speed) = (at("TG")?, at("B")?, at("S_TG t/s")?);
    let row = |cells: Vec<String>| {
        Some((
            cells.get(tokens)?.parse().ok()?,
            cells.get(sequences)?.parse().ok()?,
            cells.get(speed)?.parse().ok()?,
        ))
    };
    Some(lines.filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_both_kinds_of_llama_bench_are_read() {
        let llama = "[\n  {\n    \"n_prompt\": 512,\n    \"n_gen\": 0,\n    \"n_depth\": 64,\n\
            \x20   \"samples_ts\": [ 1.5, 2.5 ]\n  },\n  {\n    \"n_prompt\": 0,\n    \"n_gen\": 8,\n\
            \x20   \"n_depth\": 0,\n    \"samples_ts\": [ 3 ]\n  }\n]\n";
        let row = |prompt, tokens, depth, speeds| Row { prompt, tokens, depth, speeds };
        assert_eq!(rows(llama).unwrap(), [row(512, 0, 64, vec![1.5, 2.5]), row(0, 8, 0, vec![3.0])]);
        // ik_llama.cpp's has no depth, and parts of it print lines of their own.
        let ik = "[\n= Repacked 3 tensors\n  {\n    \"n_prompt\": 4,\n    \"n_gen\": 2,\n\
            \x20   \"test\": \"tg2@pp4\",\n    \"samples_ts\": [ 11.902 ]\n  }\n]\n";
        assert_eq!(rows(ik).unwrap(), [row(4, 2, 0, vec![11.902])]);
        assert!(rows("error: no model\n").unwrap_err().contains("JSON"));
        assert!(rows("[\n{\n\"n_prompt\": 1\n}\n]").unwrap_err().contains("n_gen"));
    }

    #[test]
    fn a_table_of_batches_is_read_whatever_stands_around_it() {
        let text = "llama_batched_bench: n_kv_max = 1024\n\n\
            |    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n\
            |-------|--------|------|--------|----------|----------|----------|----------|----------|----------|\n\
            |     0 |      2 |    1 |      2 |    0.000 |     -nan |    1.759 |     1.14 |    1.759 |     1.14 |\n\
            |     0 |      2 |    8 |      4 |    0.000 |     0.00 |    0.847 |     4.72 |    0.847 |     4.72 |\n\nbye\n";
        assert_eq!(table(text), Some(vec![(2, 1, 1.14), (2, 8, 4.72)]));
        assert_eq!(table("| a | b |\n"), None);
    }
}
