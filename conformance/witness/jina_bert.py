"""Jina's second BERT (arXiv:2310.19923), which transformers lacks, made of its BERT: no positions, ALiBi, GELU gates.

ALiBi's slopes are those of its paper (arXiv:2108.12409) for a number of heads that is a power of two.
"""
import torch
import transformers


class JinaBertConfig(transformers.BertConfig):
    alibi: float = 8.0


class Gated(torch.nn.Module):
    """A gate and what it multiplies, in one matrix without bias."""

    def __init__(self, config):
        super().__init__()
        self.dense = torch.nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.act = transformers.activations.ACT2FN[config.hidden_act]

    def forward(self, x):
        gate, up = self.dense(x).chunk(2, dim=-1)
        return self.act(gate) * up


class JinaBertModel(transformers.BertModel):
    config_class = JinaBertConfig

    def __init__(self, config):
        super().__init__(config, add_pooling_layer=False)
        for layer in self.encoder.layer:
            layer.intermediate = Gated(config)

    def forward(self, input_ids, **more):
        with torch.no_grad():
            self.embeddings.position_embeddings.weight.zero_()
        places = torch.arange(input_ids.shape[1])
        distance = (places[None, :] - places[:, None]).abs().float()
        heads = torch.arange(1, self.config.num_attention_heads + 1)
        slopes = 2.0 ** (-self.config.alibi * heads / self.config.num_attention_heads)
        bias = -slopes[:, None, None] * distance
        return super().forward(input_ids, attention_mask=bias[None], **more)
