//! Results as a picture: bars with their range, a panel for each quantity, as an SVG file that needs nothing else.

use std::fmt::Write;

use super::samples::Samples;

/// A picture.
pub struct Plot<'a> {
    /// What was measured.
    pub title: &'a str,
    /// On what.
    pub subtitle: &'a str,
    /// Whose bars they are: ours, and the peer's where there is one.
    pub engines: [Option<&'a str>; 2],
    /// One below the other.
    pub panels: Vec<Panel>,
}

/// Bars over one axis.
pub struct Panel {
    /// What they measure.
    pub title: String,
    /// The axis's name, with the unit.
    pub axis: String,
    /// From above.
    pub rows: Vec<Row>,
}

/// The bars of one measurement.
pub struct Row {
    /// Its name.
    pub label: String,
    /// Of each engine.
    pub bars: [Option<Bar>; 2],
    /// What the machine allows.
    pub limit: Option<f64>,
}

/// A median and a range.
#[derive(Clone, Copy)]
pub struct Bar {
    least: f64,
    median: f64,
    most: f64,
}

impl Bar {
    /// Of samples, in units of `unit`.
    pub fn new(samples: &Samples, unit: f64) -> Bar {
        Bar { least: samples.least() / unit, median: samples.median() / unit, most: samples.most() / unit }
    }
}

const WIDTH: f64 = 860.0;
/// Where bars begin, and how long the longest may be; names stand left, numbers right.
const LEFT: f64 = 150.0;
const LONG: f64 = 580.0;
const HEAD: f64 = 96.0;
const BAR: f64 = 15.0;
const GAP: f64 = 14.0;
/// Height of a panel besides its bars: its title above, its axis below.
const ABOVE: f64 = 34.0;
const BELOW: f64 = 56.0;
/// Blue and orange: told apart by every kind of sight, and in grey.
const COLOURS: [&str; 2] = ["#1f6fb4", "#f0a23b"];
const TEXT: &str = "#222222";
const FAINT: &str = "#666666";
const GRID: &str = "#dddddd";

/// The picture.
pub fn svg(plot: &Plot<'_>) -> String {
    let height = HEAD + plot.panels.iter().map(|p| ABOVE + bars_height(p) + BELOW).sum::<f64>();
    let mut s = String::new();
    let _ = writeln!(
        s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\">"
    );
    let _ = writeln!(s, "<title>{}</title>", escaped(plot.title));
    let _ = writeln!(s, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>");
    text(&mut s, [24.0, 34.0], &Style { size: 19.0, bold: true, ..Style::default() }, plot.title);
    text(&mut s, [24.0, 56.0], &Style { size: 13.0, colour: FAINT, ..Style::default() }, plot.subtitle);
    legend(&mut s, plot);
    let mut y = HEAD;
    for panel in &plot.panels {
        draw(&mut s, panel, y);
        y += ABOVE + bars_height(panel) + BELOW;
    }
    s.push_str("</svg>\n");
    s
}

fn legend(s: &mut String, plot: &Plot<'_>) {
    let mut x = 24.0;
    let style = Style { size: 13.0, ..Style::default() };
    // A letter is about half as wide as it is high.
    let width = |name: &str| 7.0 * name.chars().count() as f64;
    for (name, colour) in plot.engines.iter().zip(COLOURS) {
        let Some(name) = name else { continue };
        rect(s, [x, 70.0, 14.0, 12.0], colour);
        text(s, [x + 20.0, 81.0], &style, name);
        x += 48.0 + width(name);
    }
    line(s, [x, 76.0, x + 14.0, 76.0], TEXT, 1.5);
    line(s, [x, 72.0, x, 80.0], TEXT, 1.5);
    line(s, [x + 14.0, 72.0, x + 14.0, 80.0], TEXT, 1.5);
    text(s, [x + 20.0, 81.0], &style, "least to most");
    x += 48.0 + width("least to most");
    if plot.panels.iter().flat_map(|p| &p.rows).any(|r| r.limit.is_some()) {
        dashed(s, [x + 7.0, 69.0, x + 7.0, 83.0]);
        text(s, [x + 20.0, 81.0], &style, "limit of the machine");
    }
}

fn draw(s: &mut String, panel: &Panel, top: f64) {
    text(s, [24.0, top + 18.0], &Style { size: 14.0, bold: true, ..Style::default() }, &panel.title);
    let (top, bottom) = (top + ABOVE, top + ABOVE + bars_height(panel));
    let numbers = panel.rows.iter().flat_map(|r| {
        r.bars.iter().flatten().flat_map(|b| [b.median, b.most]).chain(r.limit).filter(|v| v.is_finite())
    });
    let ticks = ticks(numbers.fold(0.0, f64::max));
    let scale = LONG / ticks.last().copied().unwrap_or(1.0);
    let small = Style { size: 12.0, colour: FAINT, ..Style::default() };
    for tick in &ticks {
        let x = LEFT + tick * scale;
        line(s, [x, top, x, bottom], GRID, 1.0);
        text(s, [x, bottom + 16.0], &Style { anchor: "middle", ..small }, &number(*tick));
    }
    text(s, [LEFT + LONG / 2.0, bottom + 34.0], &Style { anchor: "middle", ..small }, &panel.axis);
    let mut y = top;
    for row in &panel.rows {
        let height = row_height(row);
        let label = Style { anchor: "end", size: 13.0, ..Style::default() };
        text(s, [LEFT - 10.0, y + (height - GAP) / 2.0 + GAP / 2.0 + 4.5], &label, &row.label);
        let mut at = y + GAP / 2.0;
        for (bar, colour) in row.bars.iter().zip(COLOURS) {
            let Some(bar) = bar else { continue };
            rect(s, [LEFT, at, bar.median * scale, BAR - 2.0], colour);
            let middle = at + BAR / 2.0 - 1.0;
            let (from, to) = (LEFT + bar.least * scale, LEFT + bar.most * scale);
            line(s, [from, middle, to, middle], TEXT, 1.5);
            for end in [from, to] {
                line(s, [end, middle - 4.0, end, middle + 4.0], TEXT, 1.5);
            }
            let beside = Style { size: 12.0, ..Style::default() };
            let limit = row.limit.map_or(0.0, |l| LEFT + l * scale);
            // Where the number would lie on the limit's line, it goes behind it.
            let x = if (to..to + 56.0).contains(&limit) { limit + 6.0 } else { to + 6.0 };
            text(s, [x, middle + 4.5], &beside, &number(bar.median));
            at += BAR;
        }
        if let Some(limit) = row.limit {
            let x = LEFT + limit * scale;
            dashed(s, [x, y + GAP / 2.0 - 3.0, x, at + 1.0]);
        }
        y += height;
    }
    line(s, [LEFT, top, LEFT, bottom], TEXT, 1.0);
    line(s, [LEFT, bottom, LEFT + LONG, bottom], TEXT, 1.0);
}

fn row_height(row: &Row) -> f64 {
    GAP + BAR * row.bars.iter().flatten().count() as f64
}

fn bars_height(panel: &Panel) -> f64 {
    panel.rows.iter().map(row_height).sum()
}

/// Round numbers from 0 to the first that is not below `most`, about five of them.
fn ticks(most: f64) -> Vec<f64> {
    if !(most > 0.0 && most.is_finite()) {
        return vec![0.0, 1.0];
    }
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough * 0.999);
    let step = step.unwrap_or(rough);
    let count = (most / step - 1e-9).ceil();
    (0..=count as usize).map(|i| i as f64 * step).collect()
}

/// A number to three digits or to the whole.
fn number(v: f64) -> String {
    let digits = match v.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{v:.digits$}");
    // `2.50` on an axis is `2.5`.
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// How a text looks.
#[derive(Clone, Copy)]
struct Style {
    size: f64,
    bold: bool,
    colour: &'static str,
    anchor: &'static str,
}

impl Default for Style {
    fn default() -> Self {
        Style { size: 12.0, bold: false, colour: TEXT, anchor: "start" }
    }
}

fn text(s: &mut String, [x, y]: [f64; 2], style: &Style, text: &str) {
    let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        s,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\"{weight}>{}</text>",
        style.size,
        style.colour,
        style.anchor,
        escaped(text)
    );
}

fn rect(s: &mut String, [x, y, width, height]: [f64; 4], colour: &str) {
    let _ = writeln!(
        s,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
        width.max(0.0)
    );
}

fn line(s: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: f64) {
    let _ = writeln!(
        s,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
    );
}

/// The mark of a limit.
fn dashed(s: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        s,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#b3261e\" stroke-width=\"2\" \
         stroke-dasharray=\"4 2\"/>"
    );
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    let mut s = String::new();
    for c in text.chars() {
        match c {
            '&' => s.push_str("&amp;"),
            '<' => s.push_str("&lt;"),
            '>' => s.push_str("&gt;"),
            '"' => s.push_str("&quot;"),
            // XML has no place for them, not even escaped.
            c if c.is_control() => s.push(' '),
            c => s.push(c),
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_greatest_number() {
        assert_eq!(ticks(97.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.3).last().map(|t| (t * 1000.0).round()), Some(300.0));
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN), [0.0, 1.0]);
        for most in [1.0, 3.3, 12.0, 480.0, 7777.0, 1e6] {
            let ticks = ticks(most);
            assert!((3..=7).contains(&ticks.len()) && *ticks.last().unwrap() >= most, "{most}: {ticks:?}");
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(["0", "1234", "56.8", "2.5", "0.125"], [0.0, 1234.4, 56.78, 2.5, 0.125].map(number)[..]);
    }

    #[test]
    fn a_picture_has_what_a_reader_needs() {
        let bar = |m: f64| Some(Bar::new(&Samples::new(vec![m * 0.9, m, m * 1.1]), 1.0));
        let panel = |rows| Panel { title: "Prompt".into(), axis: "tokens/s".into(), rows };
        let rows = vec![
            Row { label: "pp512".into(), bars: [bar(100.0), bar(50.0)], limit: Some(180.0) },
            Row { label: "pp2048".into(), bars: [bar(90.0), None], limit: None },
        ];
        let plot = Plot {
            title: "a <model> & its speed",
            subtitle: "2 threads",
            engines: [Some("cera"), Some("llama.cpp")],
            panels: vec![panel(rows)],
        };
        let svg = svg(&plot);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for part in ["a &lt;model&gt; &amp; its speed", "2 threads", "cera", "llama.cpp", "pp512", "tokens/s"]
        {
            assert!(svg.contains(part), "no {part}");
        }
        // Bars are in proportion to the medians.
        let widths: Vec<f64> = svg
            .lines()
            .filter(|l| l.starts_with("<rect x=\"150.0\""))
            .map(|l| l.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
    }
}
