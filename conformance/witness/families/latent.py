"""YaRN, attention sinks, latent attention: Llama with YaRN, and who has the others."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

# Of a 32-wide head's sixteen pairs 0 and 1 are kept, those from 6 on are scaled, and the ramp lies between.
YARN = rope(
    10000.0, rope_type="yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=0.5
)

FAMILIES = {
    "llama-yarn": Family(
        "Llama",
        SHAPE
        | dict(
            head_dim=32,
            intermediate_size=64,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            rope_parameters=YARN,
        ),
        dict(
            yarn_unscaled=dict(rope_parameters=rope(10000.0)),
            yarn_factor=dict(rope_parameters=YARN | dict(factor=4.0)),
            yarn_original=dict(rope_parameters=YARN | dict(original_max_position_embeddings=128)),
            yarn_fast=dict(rope_parameters=YARN | dict(beta_fast=8.0)),
            yarn_slow=dict(rope_parameters=YARN | dict(beta_slow=1.0)),
            yarn_not_rounded=dict(rope_parameters=YARN | dict(truncate=False)),
            yarn_magnitude=dict(rope_parameters=YARN | dict(attention_factor=1.0)),
        ),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
}
