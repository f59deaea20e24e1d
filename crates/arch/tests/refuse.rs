//! Files whose numbers or tensors do not make a model: each is refused by an error that names the key or the tensor,
//! and both numbers where two disagree.

use cera_arch::{Error, Model, Pooling, Purpose, build_for};
use cera_gguf::{Array, Gguf, Metadata, Value, Writer};
use cera_plan::{ExpertMatrices, GroupScore, Groups, Op, Routing, RowSet, Scoring};
use cera_quant::Type;

/// A model of two blocks, 32 wide, four heads over two of eight elements, 64 between gate and down.
struct File {
    metadata: Metadata,
    tensors: Vec<(String, Type, Vec<u64>)>,
    architecture: &'static str,
}

impl File {
    fn new(architecture: &'static str) -> Self {
        let mut f = File { metadata: Metadata::new(), tensors: vec![], architecture };
        f.metadata.insert("general.architecture", architecture);
        for (key, value) in [
            ("block_count", 2),
            ("context_length", 128),
            ("embedding_length", 32),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            f.set(key, Value::U32(value));
        }
        f.set("attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        f.tensor("token_embd.weight", &[32, 10]);
        f.tensor("output_norm.weight", &[32]);
        let second = match architecture {
            "gpt-oss" | "glm4moe" | "seed_oss" => "post_attention_norm",
            _ => "ffn_norm",
        };
        let norms = ["attn_norm", second];
        let norms = norms.into_iter();
        let (post, head): (&[&str], &[&str]) = match architecture {
            "gemma3" | "gemma-embedding" => {
                (&["post_attention_norm", "post_ffw_norm"], &["attn_q_norm", "attn_k_norm"])
            }
            "gemma2" | "glm4" => (&["post_attention_norm", "post_ffw_norm"], &[]),
            "olmo2" | "exaone4" => {
                (&["post_attention_norm", "post_ffw_norm"], &["attn_q_norm", "attn_k_norm"])
            }
            "qwen3" | "qwen3moe" | "olmoe" | "hunyuan-dense" | "qwen3vl" | "qwen3vlmoe" => {
                (&[], &["attn_q_norm", "attn_k_norm"])
            }
            _ => (&[], &[]),
        };
        let norms: Vec<&str> = norms.chain(post.iter().copied()).collect();
        for n in 0..2 {
            for norm in &norms {
                f.tensor(&format!("blk.{n}.{norm}.weight"), &[32]);
            }
            for norm in head {
                let length = match (architecture, *norm) {
                    ("olmoe" | "olmo2", "attn_q_norm") => 32,
                    ("olmoe" | "olmo2", _) => 16,
                    _ => 8,
                };
                f.tensor(&format!("blk.{n}.{norm}.weight"), &[length]);
            }
            for (name, cols, rows) in [
                ("attn_q", 32, 32),
                ("attn_k", 32, 16),
                ("attn_v", 32, 16),
                ("attn_output", 32, 32),
                ("ffn_gate", 32, 64),
                ("ffn_up", 32, 64),
                ("ffn_down", 64, 32),
            ] {
                f.tensor(&format!("blk.{n}.{name}.weight"), &[cols, rows]);
            }
        }
        if architecture == "bert" {
            f.become_bert();
        }
        if architecture == "deepseek2" {
            f.latent();
        }
        f.become_kin();
        f
    }

    /// Takes away what Llama's more distant kin do without, and gives them what they have instead.
    fn become_kin(&mut self) {
        let gone: &[&str] = match self.architecture {
            "arcee" | "jais2" | "nemotron" | "phi3" | "glm4" | "chatglm" => &["ffn_gate"],
            "exaone4" | "olmo2" => &["attn_norm", "ffn_norm"],
            "minicpm" => {
                let scales = ["embedding_scale", "residual_scale", "logit_scale"];
                scales.into_iter().for_each(|key| self.set(key, 1.5f32));
                return;
            }
            "command-r" | "cohere2" => &["ffn_norm"],
            "falcon" | "phi2" => &["ffn_norm", "ffn_gate"],
            "gpt2" | "gptneox" | "starcoder" | "starcoder2" => &["ffn_gate"],
            _ => return,
        };
        self.tensors.retain(|t| !gone.iter().any(|part| t.0.contains(part)));
        if let "gpt2" | "starcoder" = self.architecture {
            self.tensor("position_embd.weight", &[32, 128]);
        }
        if let "phi3" | "glm4" | "chatglm" = self.architecture {
            self.set("feed_forward_length", 64u32);
            (0..2).for_each(|n| self.tensor(&format!("blk.{n}.ffn_up.weight"), &[32, 128]));
        }
    }

    /// Norms behind the sums in place of those before, no gates, tables of positions and of types.
    fn become_bert(&mut self) {
        let gone = ["attn_norm", "ffn_norm", "ffn_gate", "output_norm"];
        self.tensors.retain(|t| !gone.iter().any(|part| t.0.contains(part)));
        for (name, dims) in [
            ("position_embd.weight", &[32, 128][..]),
            ("token_types.weight", &[32, 2]),
            ("token_embd_norm.weight", &[32]),
            ("token_embd_norm.bias", &[32]),
        ] {
            self.tensor(name, dims);
        }
        for n in 0..2 {
            for name in ["attn_output_norm", "layer_output_norm"] {
                self.tensor(&format!("blk.{n}.{name}.weight"), &[32]);
                self.tensor(&format!("blk.{n}.{name}.bias"), &[32]);
            }
        }
        self.set("attention.layer_norm_epsilon", 1e-12f32);
        self.set("attention.causal", false);
    }

    /// Keys and values of four heads, of 4 + 4 and of 8 elements, out of latents of 16.
    fn latent(&mut self) {
        for (key, value) in [
            ("attention.head_count_kv", 1),
            ("attention.key_length", 20),
            ("attention.value_length", 16),
            ("attention.kv_lora_rank", 16),
            ("attention.key_length_mla", 8),
            ("attention.value_length_mla", 8),
            ("rope.dimension_count", 4),
        ] {
            self.set(key, Value::U32(value));
        }
        for n in 0..2 {
            self.tensors.retain(|t| {
                t.0 != format!("blk.{n}.attn_k.weight") && t.0 != format!("blk.{n}.attn_v.weight")
            });
            self.tensor(&format!("blk.{n}.attn_kv_a_mqa.weight"), &[32, 20]);
            self.tensor(&format!("blk.{n}.attn_kv_a_norm.weight"), &[16]);
            self.tensor(&format!("blk.{n}.attn_k_b.weight"), &[4, 16, 4]);
            self.tensor(&format!("blk.{n}.attn_v_b.weight"), &[16, 8, 4]);
        }
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.insert(format!("{}.{key}", self.architecture), value);
    }

    fn without(&mut self, key: &str) {
        self.metadata = std::mem::replace(&mut self.metadata, Metadata::new()).without(&[key]);
    }

    fn tensor(&mut self, name: &str, dims: &[u64]) {
        self.tensors.retain(|t| t.0 != name);
        self.tensors.push((name.into(), Type::F32, dims.into()));
    }

    fn build(&self) -> Result<Model, Error> {
        self.build_for(None)
    }

    /// Builds it for texts of so many positions.
    fn build_for(&self, positions: Option<usize>) -> Result<Model, Error> {
        let mut writer = Writer::new(self.metadata.clone()).unwrap();
        for (name, ty, dims) in &self.tensors {
            writer.tensor(name, *ty, dims).unwrap();
        }
        let mut body = writer.begin(Vec::new()).unwrap();
        while let Some(bytes) = body.pending().map(|t| t.bytes) {
            body.write(&vec![0; bytes as usize]).unwrap();
        }
        let purpose = Purpose { positions, ..Purpose::default() };
        build_for(&Gguf::from_bytes(body.finish().unwrap()).unwrap(), &purpose)
    }
}

/// Builds a llama file after `change`, and checks that the error says all of `says`.
#[track_caller]
fn refused(says: &[&str], change: impl FnOnce(&mut File)) {
    refused_of("llama", says, change);
}

#[track_caller]
fn refused_of(architecture: &'static str, says: &[&str], change: impl FnOnce(&mut File)) {
    let mut file = File::new(architecture);
    change(&mut file);
    let error = file.build().expect_err("must be refused").to_string();
    for part in says {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

/// Builds a file after `change`, which must not matter.
#[track_caller]
fn accepted(architecture: &'static str, change: impl FnOnce(&mut File)) -> Model {
    let mut file = File::new(architecture);
    change(&mut file);
    file.build().unwrap()
}

/// Architectures with tensors of their own, which the tests of fixtures build.
const OWN: [&str; 14] = [
    "falcon-h1",
    "gemma3n",
    "gemma4",
    "granitehybrid",
    "lfm2",
    "lfm2moe",
    "mamba",
    "mamba2",
    "jina-bert-v2",
    "modern-bert",
    "nomic-bert",
    "qwen35",
    "qwen35moe",
    "qwen3next",
];

#[test]
fn sizes_of_recurrent_states() {
    let with = |says: &[&str], change: &dyn Fn(&mut File)| {
        refused_of("falcon-h1", says, |f| {
            for (key, value) in [
                ("conv_kernel", 4),
                ("inner_size", 64),
                ("state_size", 16),
                ("time_step_rank", 4),
                ("group_count", 2),
            ] {
                f.set(&format!("ssm.{key}"), Value::U32(value));
            }
            change(f);
        });
    };
    refused_of("falcon-h1", &["falcon-h1.ssm.conv_kernel", "missing"], |_| {});
    refused_of("lfm2", &["lfm2.shortconv.l_cache", "missing"], |_| {});
    with(&["falcon-h1.ssm.time_step_rank", "5", "64"], &|f| f.set("ssm.time_step_rank", 5u32));
    with(&["falcon-h1.ssm.group_count", "3", "4 heads"], &|f| f.set("ssm.group_count", 3u32));
    with(&["falcon-h1.ssm.state_size", "0"], &|f| f.set("ssm.state_size", 0u32));
    with(&["blk.0.ssm_in.weight"], &|_| {});
    // Rows that are not those of the sizes.
    with(&["blk.0.ssm_in.weight", "[32, 100]", "[32, 196]"], &|f| {
        f.tensor("blk.0.ssm_in.weight", &[32, 100])
    });
    with(&["falcon-h1.attention.head_count_kv", "3", "4"], &|f| f.set("attention.head_count_kv", 3u32));
    refused_of("mamba", &["mamba.ssm.dt_b_c_rms"], |f| {
        for key in ["conv_kernel", "inner_size", "state_size", "time_step_rank"] {
            f.set(&format!("ssm.{key}"), Value::U32(16));
        }
        f.set("ssm.dt_b_c_rms", true);
    });
}

#[test]
fn every_architecture_of_the_table_builds() {
    for name in cera_arch::architectures().filter(|name| !OWN.contains(name)) {
        let model = accepted(name, |_| {});
        assert_eq!((model.architecture, model.context_length), (name, 128));
        assert_eq!(model.plan.vocabulary(), 10);
        assert_eq!(model.plan.kv.len(), 2);
        assert_eq!(model.plan.values[model.plan.logits.index()].rows, RowSet::Wanted);
    }
}

#[test]
fn files_for_embeddings_do_without_the_output_matrix() {
    let pooled = |architecture, number: Option<u32>| {
        let model = accepted(architecture, |f| {
            if architecture == "llama" {
                f.tensor("output.weight", &[32, 10]);
            } else {
                f.tensor("cls.weight", &[32, 32]);
            }
            number.into_iter().for_each(|n| f.set("pooling_type", n));
        });
        let last = model.plan.ops.last().map(Op::name).unwrap_or_default();
        let output = model.plan.weights.iter().any(|w| w.name == "output.weight");
        (model.pooling, model.plan.values[model.plan.logits.index()].width, last, output)
    };
    assert_eq!(pooled("llama", None), (None, 10, "linear", true));
    assert_eq!(pooled("llama", Some(0)), (None, 10, "linear", true));
    assert_eq!(pooled("llama", Some(1)), (Some(Pooling::Mean), 32, "pool", false));
    assert_eq!(pooled("llama", Some(3)), (Some(Pooling::Last), 32, "rms_norm", false));
    assert_eq!(pooled("bert", None), (Some(Pooling::None), 32, "layer_norm", false));
    assert_eq!(pooled("bert", Some(1)), (Some(Pooling::Mean), 32, "pool", false));
    assert_eq!(pooled("bert", Some(2)), (Some(Pooling::Cls), 32, "layer_norm", false));
}

#[test]
fn heads_that_score_are_whole_and_take_one_type_of_text() {
    let scores = |f: &mut File| {
        f.set("pooling_type", 4u32);
        f.tensor("cls.output.weight", &[32, 1]);
    };
    let model = accepted("llama", scores);
    let logits = model.plan.values[model.plan.logits.index()];
    assert_eq!((model.pooling, logits.width, logits.rows), (Some(Pooling::Rank), 1, RowSet::Wanted));
    let one_type = |f: &mut File| {
        scores(f);
        f.tensor("token_types.weight", &[32, 1]);
        f.tensor("cls.weight", &[32, 32]);
    };
    let model = accepted("bert", one_type);
    let names: Vec<_> = model.plan.ops.iter().rev().take(3).map(Op::name).collect();
    assert_eq!(names, ["linear", "act", "linear"]);
    refused_of("bert", &["token_types"], |f| {
        one_type(f);
        f.tensor("token_types.weight", &[32, 2]);
    });
    refused(&["cls.output.weight"], |f| f.set("pooling_type", 4u32));
    refused_of("bert", &["classifier.pooling_type", "7"], |f| {
        one_type(f);
        f.set("classifier.pooling_type", 7u32);
    });
}

#[test]
fn an_architecture_that_is_missing_no_text_unknown_or_without_keys_is_named() {
    let mut file = File::new("llama");
    file.metadata = Metadata::new();
    assert!(file.build().unwrap_err().to_string().contains("general.architecture"));
    refused(&["general.architecture", "u32"], |f| drop(f.metadata.insert("general.architecture", 3u32)));
    refused(&["rwkv7", "gemma3", "llama", "qwen3"], |f| {
        f.metadata.insert("general.architecture", "rwkv7");
    });
    file.metadata.insert("general.architecture", "llama");
    assert!(file.build().unwrap_err().to_string().contains("llama.block_count"));
}

#[test]
fn a_block_count_that_the_tensors_do_not_have_is_refused() {
    refused(&["llama.block_count", "0"], |f| f.set("block_count", 0u32));
    let start = std::time::Instant::now();
    refused(&["llama.block_count", "1000000000", "2 blocks"], |f| f.set("block_count", 1_000_000_000u32));
    refused(&["llama.block_count", "4294967296"], |f| f.set("block_count", 1u64 << 32));
    assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
    refused(&["llama.block_count", "-1"], |f| f.set("block_count", -1i32));
    refused(&["llama.block_count", "3", "2 blocks"], |f| f.set("block_count", 3u32));
    refused(&["blk.1."], |f| f.set("block_count", 1u32));
}

#[test]
fn head_counts_that_do_not_divide_or_fit_the_matrices_are_refused() {
    refused(&["llama.attention.head_count", "0"], |f| f.set("attention.head_count", 0u32));
    refused(&["llama.attention.head_count_kv", "0"], |f| f.set("attention.head_count_kv", 0u32));
    refused(&["llama.attention.head_count_kv", "3", "4"], |f| f.set("attention.head_count_kv", 3u32));
    refused(&["llama.attention.head_count_kv", "array of 3", "2 blocks"], |f| {
        f.set("attention.head_count_kv", Value::Array(Array::U32(vec![2, 2, 2])));
    });
    refused(&["llama.attention.head_count_kv", "block 1"], |f| {
        f.set("attention.head_count_kv", Value::Array(Array::I32(vec![2, 0])));
    });
    refused(&["llama.attention.head_count", "5", "32"], |f| {
        f.set("attention.head_count", 5u32);
        f.set("attention.head_count_kv", 1u32);
    });
    // The keys' matrix makes another number of heads.
    refused(&["block 0", "keys", "16", "32"], |f| f.set("attention.head_count_kv", 4u32));
    let model = accepted("llama", |f| {
        f.set("attention.head_count_kv", Value::Array(Array::U32(vec![2, 4])));
        f.tensor("blk.1.attn_k.weight", &[32, 32]);
        f.tensor("blk.1.attn_v.weight", &[32, 32]);
    });
    assert_eq!(model.plan.kv.iter().map(|kv| kv.heads).collect::<Vec<_>>(), [2, 4]);
}

#[test]
fn lengths_that_disagree_are_refused_with_both_numbers() {
    refused(&["token_embd.weight", "[32, 10]", "[64, n]"], |f| f.set("embedding_length", 64u32));
    refused(&["llama.rope.dimension_count", "7", "8"], |f| f.set("rope.dimension_count", 7u32));
    refused(&["llama.rope.dimension_count", "10", "8"], |f| f.set("rope.dimension_count", 10u32));
    refused(&["llama.rope.dimension_count", "0"], |f| f.set("rope.dimension_count", 0u32));
    refused(&["llama.attention.value_length", "4", "8"], |f| f.set("attention.value_length", 4u32));
    refused(&["queries", "32", "64"], |f| f.set("attention.key_length", 16u32));
    refused(&["llama.attention.key_length", "4294967296"], |f| f.set("attention.key_length", 1u64 << 32));
    refused(&["llama.context_length"], |f| f.set("context_length", 0u32));
    accepted("llama", |f| f.set("rope.dimension_count", 4u32));
}

#[test]
fn numbers_that_are_not_positive_and_finite_are_refused() {
    let wrong = [("NaN", f32::NAN), ("inf", f32::INFINITY), ("-1", -1.0), ("0", 0.0)];
    for (shown, value) in wrong {
        for key in [
            "attention.layer_norm_rms_epsilon",
            "rope.freq_base",
            "rope.scaling.factor",
            "rope.scale_linear",
            "attention.scale",
        ] {
            refused(&[&format!("llama.{key}"), shown], |f| f.set(key, value));
        }
        for key in ["embedding_scale", "residual_scale", "logit_scale"] {
            refused_of("granite", &[&format!("granite.{key}"), shown], |f| f.set(key, value));
        }
        refused_of("gemma3", &["gemma3.rope.freq_base_swa", shown], |f| f.set("rope.freq_base_swa", value));
        refused_of("gpt2", &["gpt2.attention.layer_norm_epsilon", shown], |f| {
            f.set("attention.layer_norm_epsilon", value)
        });
        refused_of("command-r", &["command-r.logit_scale", shown], |f| f.set("logit_scale", value));
        refused(&["llama.rope.scaling.attn_factor", shown], |f| f.set("rope.scaling.attn_factor", value));
        if value != 0.0 {
            refused(&["llama.expert_weights_scale", shown], |f| {
                of_experts(f);
                f.set("expert_weights_scale", value);
            });
        }
    }
    refused_of("gemma3", &["gemma3.final_logit_softcapping", "-3"], |f| {
        f.set("final_logit_softcapping", -3f32)
    });
    refused(&["llama.rope.freq_base", "string"], |f| f.set("rope.freq_base", "10000"));
}

#[test]
fn integers_of_any_width_and_sign_are_taken() {
    let expected = accepted("llama", |_| {});
    let model = accepted("llama", |f| {
        f.set("block_count", Value::I32(2));
        f.set("embedding_length", Value::U16(32));
        f.set("attention.head_count", Value::U64(4));
        f.set("attention.head_count_kv", Value::I8(2));
    });
    assert_eq!(model, expected);
}

#[test]
fn tensors_of_the_wrong_shape_or_place_are_refused() {
    refused(&["blk.0.attn_norm.weight", "[31]", "[32]"], |f| f.tensor("blk.0.attn_norm.weight", &[31]));
    refused(&["blk.1.ffn_down.weight", "[32, 64]", "[64, n]"], |f| {
        f.tensor("blk.1.ffn_down.weight", &[32, 64])
    });
    refused(&["blk.0.attn_q.bias", "[16]", "[32]"], |f| f.tensor("blk.0.attn_q.bias", &[16]));
    refused(&["blk.0.attn_qkv.bias"], |f| f.tensor("blk.0.attn_qkv.bias", &[64]));
    refused(&["64", "48"], |f| f.tensor("blk.0.ffn_up.weight", &[32, 48]));
    refused(&["blk.0.attn_v.weight", "missing"], |f| f.tensors.retain(|t| t.0 != "blk.0.attn_v.weight"));
    refused(&["rope_freqs.weight", "[8]", "[4]"], |f| f.tensor("rope_freqs.weight", &[8]));
    refused_of("qwen3", &["blk.1.attn_k_norm.weight", "missing"], |f| {
        f.tensors.retain(|t| t.0 != "blk.1.attn_k_norm.weight");
    });
    refused_of("qwen3", &["blk.0.attn_q_norm.weight", "[32]", "[8]"], |f| {
        f.tensor("blk.0.attn_q_norm.weight", &[32]);
    });
    // Another width between two blocks.
    refused(&["32", "40"], |f| f.tensor("blk.0.ffn_down.weight", &[64, 40]));
}

/// Types that files may have by their format, and that no op multiplies with: whole numbers, doubles, activations.
#[test]
fn types_that_do_not_run_are_named_with_their_tensor() {
    let mut found = 0;
    for &ty in Type::ALL.iter().filter(|ty| ty.codec().is_none()) {
        // A row of whole blocks for each of them.
        let wide = |f: &mut File, of: &str| {
            for (name, width, dims) in &mut f.tensors {
                if name == of {
                    *width = ty;
                }
                dims.iter_mut().filter(|d| **d == 32).for_each(|d| *d = 256);
                if dims.as_slice() == [256, 16] {
                    dims[1] = 128;
                }
                if name.contains("ffn_down") {
                    dims[0] = 256;
                } else if name.contains("ffn_gate") || name.contains("ffn_up") {
                    dims[1] = 256;
                }
            }
            f.set("embedding_length", 256u32);
        };
        for of in
            ["token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_v.weight", "blk.1.ffn_down.weight"]
        {
            refused(&[of, ty.name()], |f| wide(f, of));
        }
        accepted("llama", |f| wide(f, "none"));
        found += 1;
    }
    assert_eq!(found, 7);
}

#[test]
fn what_changes_the_meaning_is_never_ignored() {
    // A family that has no two sets of divisors, and a file that lacks them.
    for name in ["gemma3", "starcoder2"] {
        refused_of(name, &[&format!("{name}.rope.scaling.type"), "longrope"], |f| {
            f.set("rope.scaling.type", "longrope");
        });
    }
    refused(&["rope_factors_short.weight", "missing"], |f| f.set("rope.scaling.type", "longrope"));
    refused(&["llama.rope.scaling.yarn_log_multiplier", "0.1"], |f| {
        f.set("rope.scaling.yarn_log_multiplier", 0.1f32);
    });
    for (key, value, says) in [
        ("yarn_ext_factor", 0.5, "0.5"),
        ("yarn_beta_fast", 0.5, "yarn_beta_slow"),
        ("yarn_beta_slow", -1.0, "-1"),
        ("yarn_attn_factor", f32::NAN, "NaN"),
    ] {
        refused(&[&format!("llama.rope.scaling.{key}"), says], |f| {
            f.set("rope.scaling.type", "yarn");
            f.set(&format!("rope.scaling.{key}"), value);
        });
    }
    refused_of("qwen2", &["qwen2.expert_count", "8"], |f| f.set("expert_count", 8u32));
    refused_of("gemma3", &["gemma3.leading_dense_block_count", "1"], |f| {
        f.set("leading_dense_block_count", 1u32)
    });
    refused(&["llama.attn_logit_softcapping", "50"], |f| f.set("attn_logit_softcapping", 50f32));
    refused_of("gemma3", &["gemma3.attn_logit_softcapping", "50"], |f| {
        f.set("attn_logit_softcapping", 50f32)
    });
    refused(&["llama.attention.causal", "false"], |f| f.set("attention.causal", false));
    refused_of("bert", &["bert.attention.causal", "true"], |f| f.set("attention.causal", true));
    refused(&["llama.pooling_type", "5"], |f| f.set("pooling_type", 5u32));
    refused(&["llama.embedding_scale", "12"], |f| f.set("embedding_scale", 12f32));
    refused(&["llama.hidden_activation", "gelu"], |f| f.set("hidden_activation", "gelu"));
    refused_of("modern-bert", &["modern-bert.hidden_activation", "relu"], |f| {
        f.set("hidden_activation", "relu")
    });
    refused_of("modern-bert", &["modern-bert.feed_forward_length", "missing"], |_| {});
    refused_of("nomic-bert", &["nomic-bert.attention.max_alibi_bias", "8"], |f| {
        f.set("attention.max_alibi_bias", 8f32)
    });
    refused_of("jina-bert-v2", &["jina-bert-v2.attention.max_alibi_bias", "-1"], |f| {
        f.set("attention.max_alibi_bias", -1f32)
    });
    refused(&["llama.rope.dimension_sections", "array"], |f| {
        f.set("rope.dimension_sections", Value::Array(Array::I32(vec![2, 2])));
    });
    refused_of("qwen2", &["qwen2.attention.sliding_window", "64"], |f| {
        f.set("attention.sliding_window", 64u32)
    });
    refused_of("gemma3", &["gemma3.attention.sliding_window_pattern", "array of 1"], |f| {
        f.set("attention.sliding_window_pattern", Value::Array(Array::Bool(vec![true])));
    });
    // All positions of text are one.
    for name in ["qwen2vl", "qwen3vl"] {
        let sections =
            |f: &mut File| f.set("rope.dimension_sections", Value::Array(Array::I32(vec![2, 1, 1, 0])));
        assert_eq!(accepted(name, sections).plan, accepted(name, |_| {}).plan);
    }
    accepted("llama", |f| {
        f.set("expert_count", 0u32);
        f.set("rope.scaling.attn_factor", 1f32);
        f.set("vocab_size", 10u32);
        f.metadata.insert("general.name", "anything");
    });
}

#[test]
fn latents_that_do_not_fit_or_are_joined_as_of_old() {
    refused(&["llama.attention.kv_lora_rank", "16"], |f| f.set("attention.kv_lora_rank", 16u32));
    let of = |says: &[&str], change: fn(&mut File)| refused_of("deepseek2", says, change);
    of(&["blk.0.attn_kv_b.weight", "anew"], |f| f.tensor("blk.0.attn_kv_b.weight", &[16, 48]));
    of(&["deepseek2.attention.key_length_mla", "4"], |f| f.set("attention.key_length_mla", 4u32));
    of(&["deepseek2.attention.kv_lora_rank", "24", "20"], |f| f.set("attention.kv_lora_rank", 24u32));
    of(&["blk.1.attn_k_b.weight", "[4, 16, 3]", "[4, n, 4]"], |f| {
        f.tensor("blk.1.attn_k_b.weight", &[4, 16, 3])
    });
    of(&["block 0", "heads of 20"], |f| f.tensor("blk.0.attn_k_b.weight", &[4, 15, 4]));
    of(&["block 0", "attn_v_b", "values of 7"], |f| f.tensor("blk.0.attn_v_b.weight", &[16, 7, 4]));
}

#[test]
fn windows_and_ropes_go_where_the_file_says() {
    let windows = |model: &Model| model.plan.kv.iter().map(|kv| kv.window).collect::<Vec<_>>();
    let model = accepted("llama", |f| f.set("attention.sliding_window", 64u32));
    assert_eq!(windows(&model), [Some(64), Some(64)]);
    let ropes = |model: &Model| -> Vec<(f32, f32)> {
        let rope = |op: &Op| match op {
            Op::Rope { rope, .. } => Some((rope.base, rope.scale)),
            _ => None,
        };
        model.plan.ops.iter().filter_map(rope).collect()
    };
    let model = accepted("gemma3", |f| {
        f.set("attention.sliding_window", 64u32);
        f.set("attention.sliding_window_pattern", 2u32);
        f.set("rope.freq_base", 1e6f32);
        f.set("rope.scaling.type", "linear");
        f.set("rope.scaling.factor", 8f32);
    });
    assert_eq!(windows(&model), [Some(64), None]);
    assert_eq!(ropes(&model), [(1e4, 1.0), (1e4, 1.0), (1e6, 0.125), (1e6, 0.125)]);
    // The second generation has windows in every other block, and one rope.
    let model = accepted("gemma2", |f| f.set("rope.freq_base", 1e6f32));
    assert_eq!(windows(&model), [Some(4096), None]);
    assert!(ropes(&model).iter().all(|&rope| rope == (1e6, 1.0)));
    refused_of("gemma", &["gemma.attention.sliding_window", "64"], |f| {
        f.set("attention.sliding_window", 64u32);
    });
    // Without positions at all.
    assert_eq!(ropes(&accepted("granite", |f| f.set("rope.scaling.finetuned", false))), []);
}

#[test]
fn blocks_that_predict_further_tokens_are_left_out() {
    let expected = accepted("glm4moe", |_| {});
    let further = |f: &mut File| {
        f.set("block_count", 3u32);
        f.set("nextn_predict_layers", 1u32);
        f.tensor("blk.2.attn_q.weight", &[32, 32]);
        f.tensor("blk.2.nextn.eh_proj.weight", &[64, 32]);
    };
    assert_eq!(accepted("glm4moe", further), expected);
    // Arrays may have numbers of theirs too; the file may lack their tensors.
    let model = accepted("glm4moe", |f| {
        further(f);
        f.tensors.retain(|t| !t.0.starts_with("blk.2."));
        f.set("attention.head_count_kv", Value::Array(Array::U32(vec![2, 2, 0])));
    });
    assert_eq!(model, expected);
    refused_of("glm4moe", &["blk.3.attn_q.weight"], |f| {
        further(f);
        f.tensor("blk.3.attn_q.weight", &[32, 32]);
    });
    refused_of("glm4moe", &["glm4moe.nextn_predict_layers", "2", "of 2 blocks"], |f| {
        f.set("nextn_predict_layers", 2u32);
    });
}

/// A Gemma 4 of two blocks: one with a window and heads of 8, one without and with heads of 16.
fn of_two_kinds(f: &mut File) {
    for (key, value) in [("key_length", 16), ("key_length_swa", 8), ("sliding_window", 64)] {
        f.set(&format!("attention.{key}"), Value::U32(value));
    }
    f.set("attention.sliding_window_pattern", Value::Array(Array::Bool(vec![true, false])));
    for n in 0..2 {
        let dim = 8 * (n + 1);
        for norm in ["post_attention_norm", "post_ffw_norm"] {
            f.tensor(&format!("blk.{n}.{norm}.weight"), &[32]);
        }
        for norm in ["attn_q_norm", "attn_k_norm"] {
            f.tensor(&format!("blk.{n}.{norm}.weight"), &[dim]);
        }
        f.tensor(&format!("blk.{n}.attn_q.weight"), &[32, 4 * dim]);
        f.tensor(&format!("blk.{n}.attn_k.weight"), &[32, 2 * dim]);
        f.tensor(&format!("blk.{n}.attn_v.weight"), &[32, 2 * dim]);
        f.tensor(&format!("blk.{n}.attn_output.weight"), &[4 * dim, 32]);
    }
}

#[test]
fn blocks_of_two_kinds_and_those_that_share_keys() {
    let model = accepted("gemma4", of_two_kinds);
    let kinds: Vec<_> = model.plan.kv.iter().map(|kv| (kv.head_dim, kv.window)).collect();
    assert_eq!(kinds, [(8, Some(64)), (16, None)]);
    let with = |says: &[&str], change: &dyn Fn(&mut File)| {
        refused_of("gemma4", says, |f| {
            of_two_kinds(f);
            change(f);
        });
    };
    with(&["blk.0.attn_q_norm.weight", "[16]", "[8]"], &|f| f.tensor("blk.0.attn_q_norm.weight", &[16]));
    with(&["gemma4.attention.value_length_swa", "16", "8"], &|f| f.set("attention.value_length_swa", 16u32));
    with(&["gemma4.rope.dimension_count_swa", "12", "8"], &|f| f.set("rope.dimension_count_swa", 12u32));
    with(&["gemma4.attention.shared_kv_layers", "2", "of 2 blocks"], &|f| {
        f.set("attention.shared_kv_layers", 2u32)
    });
    // The last shares with one of its own kind, and there is none.
    with(&["block 1", "of its kind"], &|f| f.set("attention.shared_kv_layers", 1u32));
    let shared = |f: &mut File| {
        of_two_kinds(f);
        f.set("attention.sliding_window_pattern", Value::Array(Array::Bool(vec![false, false])));
        f.set("attention.shared_kv_layers", 1u32);
        for (name, of) in [("attn_q", 64), ("attn_k", 32), ("attn_v", 32)] {
            f.tensor(&format!("blk.0.{name}.weight"), &[32, of]);
        }
        f.tensor("blk.0.attn_output.weight", &[64, 32]);
        f.tensor("blk.0.attn_q_norm.weight", &[16]);
        f.tensor("blk.0.attn_k_norm.weight", &[16]);
    };
    // Keys of its own that the file has are left out.
    let model = accepted("gemma4", shared);
    assert_eq!(model.plan.kv.len(), 1);
    assert!(model.plan.weights.iter().all(|w| !w.name.starts_with("blk.1.attn_k")));
    refused_of("gemma3", &["gemma3.attention.shared_kv_layers", "1"], |f| {
        f.set("attention.shared_kv_layers", 1u32);
    });
    refused_of("gemma3n", &["gemma3n.altup.active_idx", "4"], |f| {
        f.set("altup.num_inputs", 4u32);
        f.set("altup.active_idx", 4u32);
    });
}

/// Makes both blocks mixtures of four experts, two of which a row takes.
fn of_experts(f: &mut File) {
    f.tensors.retain(|t| !t.0.contains(".ffn_") || t.0.contains("ffn_norm"));
    f.set("expert_count", 4u32);
    f.set("expert_used_count", 2u32);
    for n in 0..2 {
        f.tensor(&format!("blk.{n}.ffn_gate_inp.weight"), &[32, 4]);
        f.tensor(&format!("blk.{n}.ffn_gate_exps.weight"), &[32, 24, 4]);
        f.tensor(&format!("blk.{n}.ffn_up_exps.weight"), &[32, 24, 4]);
        f.tensor(&format!("blk.{n}.ffn_down_exps.weight"), &[24, 32, 4]);
    }
}

#[test]
fn experts_are_as_the_file_says() {
    let routings = |change: &dyn Fn(&mut File)| -> Vec<(Routing, ExpertMatrices)> {
        let model = accepted("llama", |f| {
            of_experts(f);
            change(f);
        });
        let routes = model.plan.ops.iter().filter_map(|op| match op {
            Op::Route { routing, .. } => Some(*routing),
            _ => None,
        });
        let matrices = model.plan.ops.iter().filter_map(|op| match op {
            Op::Experts { matrices, .. } => Some(*matrices),
            _ => None,
        });
        routes.zip(matrices).collect()
    };
    let plain = routings(&|_| {});
    let softmax = Routing { used: 2, scoring: Scoring::Softmax, groups: None, normalised: true, scale: 1.0 };
    assert!(plain.iter().all(|(r, m)| *r == softmax && (m.count, m.inner) == (4, 24) && m.up.is_some()));
    assert_eq!(plain.len(), 2);
    let said = routings(&|f| {
        f.set("expert_gating_func", 2u32);
        f.set("expert_weights_norm", false);
        f.set("expert_weights_scale", 2.5f32);
        f.set("expert_group_count", 2u32);
        f.set("expert_group_used_count", 1u32);
    });
    let groups = Some(Groups { count: 2, used: 1, by: GroupScore::BestTwo });
    let expected = Routing { used: 2, scoring: Scoring::Sigmoid, groups, normalised: false, scale: 2.5 };
    assert_eq!(said[0].0, expected);
    // Gates and ups in one stack; biases of experts.
    let joined = routings(&|f| {
        f.tensors.retain(|t| !t.0.contains("gate_exps") && !t.0.contains("up_exps"));
        for n in 0..2 {
            f.tensor(&format!("blk.{n}.ffn_gate_up_exps.weight"), &[32, 48, 4]);
            f.tensor(&format!("blk.{n}.ffn_gate_up_exps.bias"), &[48, 4]);
        }
    });
    assert!(joined.iter().all(|(_, m)| m.inner == 24 && m.up.is_none() && m.gate.bias.is_some()));
    // A dense block before.
    let dense = |f: &mut File| {
        f.tensors.retain(|t| !t.0.starts_with("blk.0.ffn_") || t.0.contains("ffn_norm"));
        f.tensor("blk.0.ffn_gate.weight", &[32, 64]);
        f.tensor("blk.0.ffn_up.weight", &[32, 64]);
        f.tensor("blk.0.ffn_down.weight", &[64, 32]);
    };
    assert_eq!(routings(&dense).len(), 1);
    let leading = |f: &mut File| {
        dense(f);
        f.set("leading_dense_block_count", 1u32);
    };
    assert_eq!(routings(&leading).len(), 1);
}

#[test]
fn experts_that_do_not_fit_are_refused() {
    let bad = |words: &[&str], change: &dyn Fn(&mut File)| {
        refused(words, |f| {
            of_experts(f);
            change(f);
        });
    };
    bad(&["llama.expert_gating_func", "9"], &|f| f.set("expert_gating_func", 9u32));
    bad(&["llama.expert_group_scale", "2"], &|f| f.set("expert_group_scale", 2f32));
    bad(&["llama.expert_group_used_count"], &|f| f.set("expert_group_count", 2u32));
    bad(&["block 0", "5 experts of 4"], &|f| f.set("expert_used_count", 5u32));
    bad(&["block 0", "1 of 3 groups of 4 experts"], &|f| {
        f.set("expert_group_count", 3u32);
        f.set("expert_group_used_count", 1u32);
    });
    bad(&["blk.0.ffn_gate_exps.weight", "[32, 24, 3]", "[32, n, 4]"], &|f| {
        f.tensor("blk.0.ffn_gate_exps.weight", &[32, 24, 3]);
    });
    bad(&["block 1", "24", "25"], &|f| f.tensor("blk.1.ffn_up_exps.weight", &[32, 25, 4]));
    bad(&["block 1", "33", "32"], &|f| f.tensor("blk.1.ffn_down_exps.weight", &[24, 33, 4]));
    bad(&["blk.1.ffn_down_exps.bias", "[4, 32]", "[32, 4]"], &|f| {
        f.tensor("blk.1.ffn_down_exps.bias", &[4, 32]);
    });
    bad(&["blk.0.exp_probs_b.bias", "[3]", "[4]"], &|f| f.tensor("blk.0.exp_probs_b.bias", &[3]));
    bad(&["block 0", "leading_dense_block_count"], &|f| f.set("leading_dense_block_count", 1u32));
    bad(&["not 2"], &|f| {
        for name in ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"] {
            f.tensor(&format!("blk.0.{name}.weight"), &[32, 32]);
        }
        f.tensor("blk.0.ffn_gate_inp_shexp.weight", &[32, 2]);
    });
}

/// The names of a model's ops.
fn names(model: &Model) -> Vec<&'static str> {
    model.plan.ops.iter().map(Op::name).collect()
}

#[test]
fn halves_of_a_block_are_joined_as_the_file_says() {
    let norms = |model: &Model| names(model).iter().filter(|&&name| name == "layer_norm").count();
    // In turn or side by side, by two norms in each block.
    let parallel = accepted("gptneox", |_| {});
    assert_eq!(parallel, accepted("gptneox", |f| f.set("use_parallel_residual", true)));
    let in_turn = accepted("gptneox", |f| f.set("use_parallel_residual", false));
    assert!(norms(&parallel) == 5 && norms(&in_turn) == 5 && parallel != in_turn);
    // The tensors tell, whatever the key says.
    let in_turn = accepted("stablelm", |f| f.set("use_parallel_residual", true));
    let shared = accepted("stablelm", |f| f.tensors.retain(|t| !t.0.contains("ffn_norm")));
    assert_eq!((norms(&in_turn), norms(&shared)), (5, 3));
    let two =
        accepted("falcon", |f| (0..2).for_each(|n| f.tensor(&format!("blk.{n}.attn_norm_2.weight"), &[32])));
    assert_eq!((norms(&accepted("falcon", |_| {})), norms(&two)), (3, 5));
    // Halves in turn, as a file of the Falcon that has no rope would have them.
    refused_of("falcon", &["falcon", "blk.0.ffn_norm.weight"], |f| f.tensor("blk.0.ffn_norm.weight", &[32]));
    for name in ["gpt2", "phi2", "starcoder2", "falcon", "command-r", "llama"] {
        let key = format!("{name}.use_parallel_residual");
        refused_of(name, &[&key, "true"], |f| f.set("use_parallel_residual", true));
    }
}

#[test]
fn layer_norms_positions_and_joined_matrices_that_do_not_fit() {
    let mut joined = File::new("gpt2");
    joined.tensors.retain(|t| !["attn_q.", "attn_k.", "attn_v."].iter().any(|part| t.0.contains(part)));
    for n in 0..2 {
        joined.tensor(&format!("blk.{n}.attn_qkv.weight"), &[32, 64]);
        joined.tensor(&format!("blk.{n}.attn_qkv.bias"), &[64]);
    }
    assert!(joined.build().is_ok());
    joined.tensor("blk.1.attn_qkv.weight", &[32, 96]);
    let why = joined.build().unwrap_err().to_string();
    assert!(why.contains("blk.1.attn_qkv.weight") && why.contains("[32, 64]"), "{why}");
    refused_of("gpt2", &["position_embd.weight", "missing"], |f| {
        f.tensors.retain(|t| t.0 != "position_embd.weight");
    });
    refused_of("gpt2", &["position_embd.weight", "[16, 128]"], |f| {
        f.tensor("position_embd.weight", &[16, 128])
    });
    refused_of("phi2", &["position_embd.weight"], |f| f.tensor("position_embd.weight", &[32, 128]));
    // A norm of each head has a row for each.
    let heads = accepted("stablelm", |f| {
        (0..2).for_each(|n| f.tensor(&format!("blk.{n}.attn_q_norm.weight"), &[8, 4]))
    });
    assert_eq!(names(&heads).iter().filter(|&&name| name == "layer_norm").count(), 7);
    refused_of("stablelm", &["blk.0.attn_q_norm.weight", "[8, 2]", "[8, 4]"], |f| {
        f.tensor("blk.0.attn_q_norm.weight", &[8, 2]);
    });
    refused_of("command-r", &["blk.0.attn_k_norm.weight", "[8]", "[8, 2]"], |f| {
        f.tensor("blk.0.attn_k_norm.weight", &[8]);
    });
    for name in ["gpt2", "gptneox", "starcoder2", "command-r"] {
        refused_of(name, &["attention.sliding_window", "64"], |f| f.set("attention.sliding_window", 64u32));
    }
    refused_of("falcon", &["falcon.logit_scale", "0.5"], |f| f.set("logit_scale", 0.5f32));
    refused_of("mpt", &["mpt", "cohere2"], |_| {});
}

#[test]
fn command_r7b_has_positions_where_it_has_windows() {
    let windows = |model: &Model| model.plan.kv.iter().map(|kv| kv.window).collect::<Vec<_>>();
    let model = accepted("cohere2", |f| {
        f.set("attention.sliding_window", 64u32);
        f.set("attention.sliding_window_pattern", 2u32);
        f.set("logit_scale", 0.25f32);
    });
    assert_eq!(windows(&model), [Some(64), None]);
    assert_eq!(names(&model).iter().filter(|&&name| name == "rope").count(), 2);
    assert!(model.plan.ops.iter().any(|op| matches!(op, Op::Scale { by: 0.25, .. })));
}

#[test]
fn divisors_are_those_of_the_texts_that_are_asked_for() {
    let mut file = File::new("phi3");
    file.set("rope.scaling.original_context_length", 64u32);
    file.set("rope.scaling.attn_factor", 1.25f32);
    for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
        file.tensor(name, &[4]);
    }
    let used = |positions| {
        let plan = file.build_for(positions).unwrap().plan;
        let is_turned =
            |op: &Op| matches!(op, Op::Rope { rope, .. } if rope.magnitude == 1.25 && rope.factors.is_some());
        assert_eq!(plan.ops.iter().filter(|op| is_turned(op)).count(), 4);
        let mut names = plan.weights.iter().filter(|w| w.name.starts_with("rope")).map(|w| w.name.clone());
        (names.next().unwrap(), names.next())
    };
    let (short, long) = ("rope_factors_short.weight".to_owned(), "rope_factors_long.weight".to_owned());
    assert_eq!(used(Some(64)), (short, None));
    assert_eq!(used(Some(65)), (long.clone(), None));
    // As many as it was trained for, 128, and no more than that.
    assert_eq!(used(None), (long, None));
    let why = |change: &dyn Fn(&mut File)| {
        let mut file = File::new("phi3");
        change(&mut file);
        file.build().unwrap_err().to_string()
    };
    let lacking = why(&|f| f.tensor("rope_factors_long.weight", &[4]));
    assert!(lacking.contains("rope_factors_short.weight"), "{lacking}");
    let halved = why(&|f| f.tensor("rope_factors_short.weight", &[2]));
    assert!(halved.contains("[2]") && halved.contains("[4]"), "{halved}");
}

#[test]
fn norms_and_windows_of_the_later_kin() {
    let windows = |model: &Model| model.plan.kv.iter().map(|kv| kv.window).collect::<Vec<_>>();
    let ropes = |model: &Model| -> Vec<(f32, f32)> {
        let rope = |op: &Op| match op {
            Op::Rope { rope, .. } => Some((rope.base, rope.scale)),
            _ => None,
        };
        model.plan.ops.iter().filter_map(rope).collect()
    };
    let local = |f: &mut File| {
        f.set("attention.sliding_window", 64u32);
        f.set("attention.sliding_window_pattern", Value::Array(Array::Bool(vec![true, false])));
        f.set("rope.scaling.type", "linear");
        f.set("rope.scaling.factor", 4f32);
    };
    let model = accepted("olmo2", local);
    assert_eq!(windows(&model), [Some(64), None]);
    assert_eq!(ropes(&model), [(1e4, 1.0), (1e4, 1.0), (1e4, 0.25), (1e4, 0.25)]);
    let model = accepted("exaone4", local);
    assert_eq!((windows(&model), ropes(&model)), (vec![Some(64), None], vec![(1e4, 0.25); 2]));
    assert_eq!(ropes(&accepted("exaone4", |_| {})), [(1e4, 1.0); 4]);
    assert_eq!(windows(&accepted("phi3", |f| f.set("attention.sliding_window", 64u32))), [Some(64); 2]);
    // 0 says that there is none (Phi 4).
    assert_eq!(windows(&accepted("phi3", |f| f.set("attention.sliding_window", 0u32))), [None; 2]);
    for (name, norm) in
        [("glm4", "post_ffw_norm"), ("olmo2", "post_attention_norm"), ("seed_oss", "attn_norm")]
    {
        let norm = format!("blk.1.{norm}.weight");
        refused_of(name, &[&norm, "missing"], |f| f.tensors.retain(|t| t.0 != norm));
    }
    refused_of("olmo2", &["blk.0.attn_norm.weight"], |f| f.tensor("blk.0.attn_norm.weight", &[32]));
    refused_of("phi3", &["blk.0.ffn_up.weight", "[32, 64]", "[32, 128]"], |f| {
        f.tensor("blk.0.ffn_up.weight", &[32, 64])
    });
    refused_of("glm4", &["glm4.feed_forward_length", "missing"], |f| {
        f.without("glm4.feed_forward_length");
    });
    refused_of("arcee", &["blk.0.ffn_gate.weight"], |f| f.tensor("blk.0.ffn_gate.weight", &[32, 64]));
    refused_of("minicpm", &["minicpm.logit_scale", "missing"], |f| {
        f.without("minicpm.logit_scale");
    });
    // Heads turn, then are normalised.
    let order: Vec<_> = names(&accepted("hunyuan-dense", |_| {}))
        .into_iter()
        .filter(|n| ["rope", "head_norm"].contains(n))
        .collect();
    assert_eq!(order[..2], ["rope", "head_norm"]);
}
