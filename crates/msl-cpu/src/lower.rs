//! From MSL to C++: attributes go, `threadgroup` variables become storage of the threadgroup, and each kernel gets a
//! launcher that hands it its arguments. Lines keep their numbers, so that the compiler's messages name the MSL text.

use crate::Error;
use crate::tokens::{Token, matching, tokens};

/// Where a parameter of a kernel comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// `[[buffer(i)]]`.
    Buffer(usize),
    /// A position or a size, by the name of its attribute.
    Builtin(String),
}

/// A kernel, or an instance of a template of kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// The name that hosts know it by.
    pub name: String,
    /// The C++ expression that names the function, with template arguments.
    function: String,
    /// Its parameters in order.
    pub parameters: Vec<Binding>,
}

impl Kernel {
    /// How many buffers a launch must bring.
    pub fn buffers(&self) -> usize {
        let end = |b: &Binding| if let Binding::Buffer(i) = b { i + 1 } else { 0 };
        self.parameters.iter().map(end).max().unwrap_or(0)
    }
}

/// What the C++ is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The shim's fibers.
    Cpu,
    /// clang's target `nvptx64`.
    Nvptx,
}

/// The names by which MSL gives a kernel its positions and sizes, and the same for the CPU and for NVIDIA's GPUs. There, `t` is
/// the thread's index and `n` the threadgroup's size.
const BUILTINS: [(&str, &str, &str); 11] = [
    (
        "thread_position_in_threadgroup",
        "msl::uint3_t{t % n.x, t / n.x % n.y, t / n.x / n.y}",
        "msl::thread()",
    ),
    ("threadgroup_position_in_grid", "g.position", "msl::group()"),
    (
        "thread_position_in_grid",
        "msl::uint3_t{g.position.x * n.x + t % n.x, g.position.y * n.y + t / n.x % n.y, g.position.z * n.z + t / n.x / n.y}",
        "msl::thread_in_grid()",
    ),
    ("threads_per_threadgroup", "n", "msl::threads()"),
    ("threadgroups_per_grid", "g.launch->grid", "msl::groups()"),
    (
        "threads_per_grid",
        "msl::uint3_t{g.launch->grid.x * n.x, g.launch->grid.y * n.y, g.launch->grid.z * n.z}",
        "msl::threads_in_grid()",
    ),
    ("thread_index_in_threadgroup", "msl::uint3_t{t, 0, 0}", "msl::uint3_t{msl::index(), 0, 0}"),
    ("thread_index_in_simdgroup", "msl::uint3_t{t % 32, 0, 0}", "msl::uint3_t{msl::lane(), 0, 0}"),
    ("simdgroup_index_in_threadgroup", "msl::uint3_t{t / 32, 0, 0}", "msl::uint3_t{msl::index() / 32, 0, 0}"),
    ("threads_per_simdgroup", "msl::uint3_t{32, 0, 0}", "msl::uint3_t{32, 0, 0}"),
    (
        "simdgroups_per_threadgroup",
        "msl::uint3_t{(n.x * n.y * n.z + 31) / 32, 0, 0}",
        "msl::uint3_t{msl::simds(), 0, 0}",
    ),
];

/// The kernels of an MSL text, and the C++ it becomes. `file` is the name that messages give it.
///
/// # Errors
/// [`Error::Source`]: an attribute that is not known, or a text that ends too early.
pub fn lower(source: &str, file: &str, target: Target) -> Result<(Vec<Kernel>, String), Error> {
    let tokens = tokens(source);
    let kernels = kernels(&tokens)?;
    let mut cpp =
        format!("#include <metal_stdlib>\ntemplate <class T> using msl_t = T;\n#line 1 \"{file}\"\n");
    let mut at = 0;
    for edit in edits(source, &tokens, target)? {
        cpp += &source[at..edit.start];
        cpp += &edit.text;
        // What is replaced keeps its lines.
        cpp.extend(source[edit.start..edit.end].matches('\n'));
        at = edit.end;
    }
    cpp += &source[at..];
    cpp += "\n#line 1 \"launchers\"\n";
    for word in ["device", "constant", "threadgroup", "thread", "kernel"] {
        cpp += &format!("#undef {word}\n");
    }
    match target {
        Target::Cpu => cpp += &launchers(&kernels)?,
        Target::Nvptx => cpp += &entries(&kernels)?,
    }
    Ok((kernels, cpp))
}

fn fault(why: impl Into<String>) -> Error {
    Error::Source(why.into())
}

/// A function that is a kernel, or a template of kernels.
struct Function<'a> {
    name: &'a str,
    parameters: Vec<Binding>,
}

fn kernels(tokens: &[Token<'_>]) -> Result<Vec<Kernel>, Error> {
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
    let mut functions: Vec<Function<'_>> = Vec::new();
    let mut out = Vec::new();
    for i in 0..tokens.len() {
        // `template [[host_name("x")]] kernel TYPE function<ARGUMENTS>;`
        if text(i) == "[[" && text(i + 1) == "host_name" {
            let name = text(i + 3).trim_matches('"').to_owned();
            let end = (i..tokens.len()).find(|&k| text(k) == ";").unwrap_or(tokens.len());
            let named = |k: usize| functions.iter().find(|f| f.name == text(k));
            let base = (i..end).rev().find(|&k| named(k).is_some() && text(k + 1) == "<");
            let Some((base, function)) = base.and_then(|k| Some((k, named(k)?))) else {
                return Err(fault(format!("kernel {name} is an instance of no template above it")));
            };
            let close = matching(tokens, base + 1, "<", ">");
            let words: Vec<&str> = tokens[base..=close].iter().map(|t| t.text).collect();
            out.push(Kernel { name, function: words.join(" "), parameters: function.parameters.clone() });
        }
        if text(i) != "kernel" || text(i + 1) != "void" || text(i + 3) != "(" {
            continue;
        }
        let name = text(i + 2);
        let parameters = parameters(name, tokens, i + 3)?;
        let template = i > 0 && text(i - 1) == ">";
        if !template {
            out.push(Kernel { name: name.into(), function: name.into(), parameters: parameters.clone() });
        }
        functions.push(Function { name, parameters });
    }
    Ok(out)
}

/// The parameters between the bracket at `open` and its other half.
fn parameters(kernel: &str, tokens: &[Token<'_>], open: usize) -> Result<Vec<Binding>, Error> {
    let close = matching(tokens, open, "(", ")");
    let mut out = Vec::new();
    let mut k = open + 1;
    while k < close {
        if tokens[k].text == "[[" {
            let end = matching(tokens, k, "[[", "]]");
            let words: Vec<&str> = tokens[k + 1..end].iter().map(|t| t.text).collect();
            out.push(match words[..] {
                ["buffer", "(", index, ")"] => Binding::Buffer(
                    index.parse().map_err(|_| fault(format!("{kernel}: buffer({index}) is no number")))?,
                ),
                [name] if BUILTINS.iter().any(|(known, ..)| *known == name) => Binding::Builtin(name.into()),
                _ => return Err(fault(format!("{kernel}: the attribute {} is not known", words.concat()))),
            });
            k = end;
        }
        k += 1;
    }
    let commas = tokens[open..close].iter().filter(|t| t.text == ",").count();
    if out.len() != commas + 1 {
        return Err(fault(format!("{kernel}: a parameter has no attribute")));
    }
    Ok(out)
}

/// A piece of text and what stands in its place.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

fn edits(source: &str, tokens: &[Token<'_>], target: Target) -> Result<Vec<Edit>, Error> {
    let mut out = Vec::new();
    let mut storages = 0;
    let mut i = 0;
    while i < tokens.len() {
        let t = tokens[i];
        if t.text == "[[" {
            let close = matching(tokens, i, "[[", "]]");
            out.push(Edit { start: t.start, end: tokens[close].end(), text: String::new() });
            i = close + 1;
            continue;
        }
        let statement = i > 0 && matches!(tokens[i - 1].text, ";" | "{" | "}" | ")");
        if t.text == "threadgroup" && statement {
            let Some(end) = (i..tokens.len()).find(|&k| tokens[k].text == ";") else {
                return Err(fault("a threadgroup variable without an end"));
            };
            if let Some(text) = storage(source, &tokens[i + 1..=end], storages, target) {
                storages += 1;
                out.push(Edit { start: t.start, end: tokens[end].start, text });
                i = end;
            }
        }
        i += 1;
    }
    Ok(out)
}

/// What declares a variable in threadgroup memory; `None` where the statement declares a pointer to such memory.
/// `body` is what follows the word, with the semicolon.
fn storage(source: &str, body: &[Token<'_>], number: usize, target: Target) -> Option<String> {
    let end = body.len() - 1;
    let dims = body.iter().position(|t| t.text == "[").unwrap_or(end);
    if dims == 0 || body[..dims].iter().any(|t| matches!(t.text, "*" | "&" | "=" | "(" | ",")) {
        return None;
    }
    let name = body[dims - 1];
    let ty = source[body[0].start..name.start].trim();
    let sizes = &source[body[dims].start..body[end].start];
    let name = name.text;
    Some(match target {
        Target::Nvptx => {
            format!("__attribute__((loader_uninitialized)) static threadgroup {ty} {name}{sizes}")
        }
        Target::Cpu => format!(
            "threadgroup auto &{name} = *(threadgroup msl_t<{ty}{sizes}> *)msl::threadgroup_storage<msl_t<{ty}{sizes}>, {number}>()"
        ),
    })
}

fn builtin(name: &str, target: Target) -> Result<&'static str, Error> {
    let known = BUILTINS.iter().find(|(known, ..)| *known == name);
    let (_, cpu, nvptx) = known.ok_or_else(|| fault(format!("the attribute {name} is not known")))?;
    Ok(if target == Target::Cpu { cpu } else { nvptx })
}

/// One function with C's calling convention for each kernel: PTX entries take buffers as pointers, and what kernels
/// take as `constant T &` by value.
fn entries(kernels: &[Kernel]) -> Result<String, Error> {
    let mut cpp = String::new();
    for k in kernels {
        let mut parameters = Vec::new();
        let mut arguments = Vec::new();
        for (j, p) in k.parameters.iter().enumerate() {
            let ty = format!("metal::argument_types<decltype({})>::at<{j}>", k.function);
            arguments.push(match p {
                Binding::Buffer(b) => {
                    parameters.push((*b, format!("metal::by_value<{ty}>::type p{b}")));
                    format!("metal::by_value<{ty}>::get(p{b})")
                }
                Binding::Builtin(name) => format!("metal::position<{ty}>({})", builtin(name, Target::Nvptx)?),
            });
        }
        parameters.sort();
        let parameters: Vec<_> = parameters.into_iter().map(|p| p.1).collect();
        cpp += &format!(
            "extern \"C\" __attribute__((nvptx_kernel)) void {}({}) {{\n  {}({});\n}}\n",
            entry_name(&k.name),
            parameters.join(", "),
            k.function,
            arguments.join(", ")
        );
    }
    Ok(cpp)
}

/// The name of a kernel's entry in PTX; C++ has the kernel's own already.
pub fn entry_name(kernel: &str) -> String {
    format!("msl_{kernel}")
}

/// One launcher for each kernel, the table of them, and the two functions that the library exports.
fn launchers(kernels: &[Kernel]) -> Result<String, Error> {
    let mut cpp = String::from("namespace msl_launchers {\n");
    for (i, k) in kernels.iter().enumerate() {
        let argument = |(j, p): (usize, &Binding)| {
            Ok(match p {
                Binding::Buffer(b) => {
                    format!("metal::buffer_argument<A::at<{j}>>::get(g.launch->buffers[{b}])")
                }
                Binding::Builtin(name) => {
                    format!("metal::position<A::at<{j}>>({})", builtin(name, Target::Cpu)?)
                }
            })
        };
        let arguments: Result<Vec<String>, Error> = k.parameters.iter().enumerate().map(argument).collect();
        cpp += &format!(
            "void launch{i}(msl::Group &g, unsigned t) {{\n  \
             const msl::uint3_t n = g.launch->threads; (void)n; (void)t;\n  \
             typedef metal::argument_types<decltype({})> A;\n  {}({});\n}}\n",
            k.function,
            k.function,
            arguments?.join(", ")
        );
    }
    cpp += "const msl::Kernel table[] = {\n";
    for (i, k) in kernels.iter().enumerate() {
        cpp += &format!("  {{\"{}\", launch{i}}},\n", k.name);
    }
    Ok(cpp + EXPORTS)
}

const EXPORTS: &str = r#"};
}
struct msl_dispatch {
  unsigned kernel;
  void *const *buffers;
  unsigned grid[3], threads[3];
  unsigned long seed;
};
extern "C" __attribute__((visibility("default"))) int msl_run(const msl_dispatch *d, char *error, size_t size) {
  const msl::Kernel &k = msl_launchers::table[d->kernel];
  const msl::Launch launch{k.body, d->buffers, {d->grid[0], d->grid[1], d->grid[2]}, {d->threads[0], d->threads[1], d->threads[2]}, d->seed};
  const std::string why = msl::run(launch);
  if (why.empty()) return 0;
  snprintf(error, size, "%s", why.c_str());
  return 1;
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "struct P { uint n; };
template <uint N>
kernel void scale(device float *x [[buffer(0)]], constant P &p [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
    threadgroup float part[8][N];
    threadgroup float *q = part[0];
    x[i] *= N;
}
template [[host_name(\"scale_2\")]] kernel decltype(scale<2>) scale<2>;
kernel void plain(device float *x [[buffer(0)]], uint2 i [[threadgroup_position_in_grid]]) { x[i.x] = 0; }
";

    #[test]
    fn kernels_and_instances_are_found() {
        let (kernels, cpp) = lower(TEXT, "a.metal", Target::Cpu).unwrap();
        let names: Vec<_> =
            kernels.iter().map(|k| (k.name.as_str(), k.buffers(), k.function.as_str())).collect();
        assert_eq!(names, [("scale_2", 2, "scale < 2 >"), ("plain", 1, "plain")]);
        assert!(!cpp.contains("[["), "{cpp}");
        // A variable has storage, a pointer has none; lines stay where they are.
        assert_eq!(cpp.matches("threadgroup_storage").count(), 1);
        let line = |text: &str, what: &str| text.lines().position(|l| l.contains(what));
        let start = line(&cpp, "struct P").unwrap();
        assert_eq!(line(&cpp, "x[i] *= N").map(|l| l - start), line(TEXT, "x[i] *= N"));
    }

    #[test]
    fn ptx_entries_take_structs_by_value() {
        let (_, cpp) = lower(TEXT, "a.metal", Target::Nvptx).unwrap();
        assert!(cpp.contains("void msl_scale_2(metal::by_value<"), "{cpp}");
        assert!(cpp.contains("loader_uninitialized)) static threadgroup float part[8][N];"), "{cpp}");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let refusal = |text: &str| lower(text, "a", Target::Cpu).unwrap_err().to_string();
        let why = refusal("kernel void f(uint i [[thread_at_noon]]) {}");
        assert!(why.contains("thread_at_noon") && why.contains('f'), "{why}");
        assert!(
            refusal("kernel void f(device float *x, uint i [[thread_index_in_simdgroup]]) {}")
                .contains("no attribute")
        );
        assert!(refusal("template [[host_name(\"g\")]] kernel decltype(f<1>) f<1>;").contains("kernel g"));
    }
}
