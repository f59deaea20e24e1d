//! Results for people, for programs and for a picture.

use std::io::{self, Write};

use cera_cpu::Limits;
use serde_json::{Value, json};

use super::case::{Bound, Case, Kind};
use super::plot::{self, Bar, Panel, Plot, Row};
use super::samples::Samples;
use super::start;

/// What all results have in common.
pub struct About {
    /// The model's name.
    pub model: String,
    /// Bytes of its weights.
    pub weight_bytes: usize,
    /// What it runs on.
    pub backend: &'static str,
    /// Threads of both engines.
    pub threads: usize,
    /// Our instructions.
    pub tier: Option<&'static str>,
    /// The processor's name.
    pub processor: Option<String>,
    /// The most rows of our steps.
    pub chunk: usize,
    /// The machine's limits, where the model runs on the processor.
    pub limits: Option<Limits>,
    /// Who else is measured.
    pub peer: Option<String>,
}

/// The results of a case, in tokens a second.
pub struct Outcome {
    /// What was measured.
    pub case: Case,
    /// Ours.
    pub ours: Samples,
    /// The peer's, where it can measure the case.
    pub peer: Option<Samples>,
    /// What the machine allows.
    pub bound: Option<Bound>,
}

/// Seconds from the start of a process to the first token.
pub struct FirstToken {
    /// Ours.
    pub ours: Samples,
    /// The peer's.
    pub peer: Option<Samples>,
}

impl Outcome {
    /// Tokens a second that the machine allows.
    fn limit(&self) -> Option<f64> {
        self.bound.map(|b| self.case.all_tokens() as f64 / b.seconds)
    }

    /// How much of that is reached.
    fn fraction(&self) -> Option<f64> {
        self.limit().map(|limit| self.ours.median() / limit)
    }
}

/// What is said before the results.
pub fn head(out: &mut impl Write, about: &About) -> io::Result<()> {
    let About { model, backend, threads, .. } = about;
    let tier = about.tier.map_or(String::new(), |t| format!(" {t}"));
    let bytes = about.weight_bytes as f64 / 1e6;
    writeln!(out, "{model}, {bytes:.1} MB of weights, {backend}{tier}, {threads} threads")?;
    if let Some(l) = &about.limits {
        let [read, int8, float] = [&l.read_gb_per_second, &l.int8_tops, &l.f32_tflops].map(|r| r.all.best);
        writeln!(out, "limits: {read:.1} GB/s read, {int8:.3} TOPS int8, {float:.3} TFLOPS f32")?;
    }
    if let Some(peer) = &about.peer {
        writeln!(out, "against {peer}")?;
    }
    Ok(())
}

/// The first line of a table.
pub fn columns(out: &mut impl Write, about: &About, quantity: &str) -> io::Result<()> {
    write!(out, "{:<20} {quantity:>10} {:>10} {:>10}", "test", "least", "most")?;
    if about.limits.is_some() {
        write!(out, "  {:<16}", "of the limit")?;
    }
    if about.peer.is_some() {
        write!(out, " {:>10} {:>10} {:>10} {:>7}", "peer", "least", "most", "ratio")?;
    }
    writeln!(out)
}

/// A case's line.
pub fn line(out: &mut impl Write, about: &About, o: &Outcome) -> io::Result<()> {
    let label = o.case.label();
    let [median, least, most] = [o.ours.median(), o.ours.least(), o.ours.most()];
    write!(out, "{label:<20} {median:>10.2} {least:>10.2} {most:>10.2}")?;
    if about.limits.is_some() {
        let of_limit = match (o.fraction(), o.bound) {
            (Some(f), Some(b)) => format!("{:.0} % of {}", 100.0 * f, b.name()),
            _ => String::new(),
        };
        write!(out, "  {of_limit:<16}")?;
    }
    if about.peer.is_some() {
        peer(out, o.peer.as_ref(), 2, |p| o.ours.median() / p.median())?;
    }
    writeln!(out)
}

/// The line of the first token; seconds, so the ratio is the other way round.
pub fn first_token_line(out: &mut impl Write, about: &About, o: &FirstToken) -> io::Result<()> {
    let label = format!("{} + 1 tokens", start::PROMPT);
    let [median, least, most] = [o.ours.median(), o.ours.least(), o.ours.most()];
    write!(out, "{label:<20} {median:>10.3} {least:>10.3} {most:>10.3}")?;
    if about.limits.is_some() {
        write!(out, "  {:<16}", "")?;
    }
    if about.peer.is_some() {
        peer(out, o.peer.as_ref(), 3, |p| p.median() / o.ours.median())?;
    }
    writeln!(out)
}

fn peer(
    out: &mut impl Write,
    samples: Option<&Samples>,
    digits: usize,
    ratio: impl Fn(&Samples) -> f64,
) -> io::Result<()> {
    match samples {
        Some(p) => {
            let [median, least, most, ratio] = [p.median(), p.least(), p.most(), ratio(p)];
            write!(out, " {median:>10.digits$} {least:>10.digits$} {most:>10.digits$} {ratio:>7.2}")
        }
        None => write!(out, " {:>10} {:>10} {:>10} {:>7}", "-", "-", "-", "-"),
    }
}

/// What every object of `--json` begins with.
fn common(about: &About) -> Value {
    json!({
        "model": about.model,
        "weight_bytes": about.weight_bytes,
        "backend": about.backend,
        "threads": about.threads,
        "cpu_tier": about.tier,
        "chunk": about.chunk,
    })
}

/// A case as JSON.
pub fn object(about: &About, o: &Outcome) -> Value {
    let mut object = common(about);
    object["test"] = o.case.label().into();
    object["tokens"] = o.case.tokens.into();
    object["sequences"] = o.case.sequences().into();
    object["depth"] = o.case.depth.into();
    object["tokens_per_second"] = o.ours.median().into();
    object["least"] = o.ours.least().into();
    object["most"] = o.ours.most().into();
    object["samples"] = o.ours.all().into();
    object["limit"] = match (&about.limits, o.bound, o.limit(), o.fraction()) {
        (Some(l), Some(bound), Some(limit), Some(fraction)) => json!({
            "bound": bound.name(),
            "tokens_per_second": limit,
            "fraction": fraction,
            "bytes": bound.bytes,
            "operations": bound.operations,
            "read_gb_per_second": l.read_gb_per_second.all.best,
            "int8_tops": l.int8_tops.all.best,
            "f32_tflops": l.f32_tflops.all.best,
        }),
        _ => Value::Null,
    };
    object["peer"] = match &o.peer {
        Some(p) => json!({
            "name": about.peer,
            "tokens_per_second": p.median(),
            "least": p.least(),
            "most": p.most(),
            "samples": p.all(),
            "ratio": o.ours.median() / p.median(),
        }),
        None => Value::Null,
    };
    object
}

/// The first token as JSON.
pub fn first_token_object(about: &About, o: &FirstToken) -> Value {
    let mut object = common(about);
    object["test"] = "first_token".into();
    object["prompt"] = start::PROMPT.into();
    object["seconds"] = o.ours.median().into();
    object["least"] = o.ours.least().into();
    object["most"] = o.ours.most().into();
    object["samples"] = o.ours.all().into();
    object["peer"] = match &o.peer {
        Some(p) => json!({
            "name": about.peer,
            "seconds": p.median(),
            "least": p.least(),
            "most": p.most(),
            "samples": p.all(),
            "ratio": p.median() / o.ours.median(),
        }),
        None => Value::Null,
    };
    object
}

/// All results as a picture.
pub fn picture(about: &About, outcomes: &[Outcome], first: Option<&FirstToken>) -> String {
    let row = |o: &Outcome| Row {
        label: o.case.label(),
        bars: [Some(Bar::new(&o.ours, 1.0)), o.peer.as_ref().map(|p| Bar::new(p, 1.0))],
        limit: o.limit(),
    };
    let panel = |title: &str, axis: &str, of: fn(&Kind) -> bool| Panel {
        title: title.into(),
        axis: axis.into(),
        rows: outcomes.iter().filter(|o| of(&o.case.kind)).map(row).collect(),
    };
    let mut panels = vec![
        panel("Reading a prompt", "tokens a second", |k| *k == Kind::Prompt),
        panel("Generating, one sequence", "tokens a second", |k| *k == Kind::Generation { sequences: 1 }),
        panel(
            "Generating, several sequences side by side",
            "tokens a second, of all together",
            |k| matches!(k, Kind::Generation { sequences } if *sequences != 1),
        ),
    ];
    panels.extend(first.map(|f| Panel {
        title: "From the start of the process to the first token".into(),
        axis: "milliseconds (less is better)".into(),
        rows: vec![Row {
            label: format!("{} + 1 tokens", start::PROMPT),
            bars: [Some(Bar::new(&f.ours, 1e-3)), f.peer.as_ref().map(|p| Bar::new(p, 1e-3))],
            limit: None,
        }],
    }));
    panels.retain(|p| !p.rows.is_empty());
    let threads = match about.threads {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let rounds = outcomes.first().map(|o| &o.ours).or(first.map(|f| &f.ours)).map_or(0, |s| s.all().len());
    let parts = [about.processor.clone(), Some(threads), Some(format!("medians of {rounds}"))];
    let subtitle = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    plot::svg(&Plot {
        title: &about.model,
        subtitle: &subtitle,
        engines: [Some("cera"), about.peer.as_deref()],
        panels,
    })
}
