"""What a tiny model of a family is made of; the families stand in `families/`, one file for each group of kin."""
from collections.abc import Callable
from dataclasses import dataclass, field

VOCAB = 512

SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def rope(theta, **more):
    return dict(rope_type="default", rope_theta=theta) | more


@dataclass
class Family:
    """One fixture: transformers' classes by prefix, the configuration, and what to change to see that it matters."""

    prefix: str
    config: dict
    ablations: dict = field(default_factory=dict)  # name -> changed configuration entries
    neutral: dict = field(default_factory=dict)  # name -> (part of the parameters' names, value they are set to)
    config_class: str = ""  # where it is not PREFIX + "Config"
    model_class: str = ""  # where it is not PREFIX + "ForCausalLM"
    embed_std: float = 0.3
    final_norm: float = 1.0  # mean weight of the last norm: brings the spread of tied logits up
    zero_centred_norms: bool = False  # the weight stored is (factor - 1)
    # Draws what the common rules do not cover: (name, a standard normal of its shape) -> tensor, or None.
    draw: Callable = lambda name, drawn: None
    encoder: bool = False  # gives the last hidden state, and no logits
    saved: dict = field(default_factory=dict)  # entries that the saved configuration is to have
    dense: list = field(default_factory=list)  # widths of matrices behind an encoder (sentence-transformers' Dense)
    converter: list = field(default_factory=list)  # options of llama.cpp's converter
    # What becomes of the saved tensors, for a model that transformers has under another name: (tensors, configuration).
    rewritten: Callable | None = None
    # A block that predicts a further token follows the others in the file. It is the last one's, and what joins it to them.
    predicts: bool = False
    # What parameters are called in the file: (pattern, replacement); those that become nothing are left out.
    renamed: list = field(default_factory=list)
    # Entries of config.json that transformers writes otherwise than the converter reads them.
    written: dict = field(default_factory=dict)


# Where the embedding is the output matrix too, small rows keep the input token from predicting itself, and a large last
# norm spreads the logits again.
TIED_EMBED_STD = 0.1
TIED_FINAL_NORM = 3.0
