"""The models that the campaign trains, written as PyTorch users write them: in fp32, with dense
attention over the padded batch. Parameters are registered in the order of the published modules."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def attention(query, key, value, heads, bias):
    """Softmax attention over (batch, length, hidden), with `bias` added to the scores."""
    batch, length, hidden = query.shape

    def split(rows):
        return rows.view(batch, length, heads, hidden // heads).transpose(1, 2)

    scores = split(query) @ split(key).transpose(2, 3) / math.sqrt(hidden // heads)
    context = F.softmax(scores + bias, dim=-1) @ split(value)
    return context.transpose(1, 2).reshape(batch, length, hidden)


def key_bias(mask):
    """Turns a mask (batch, length) with ones at tokens into a bias that hides the padding."""
    return (1.0 - mask)[:, None, None, :] * -1e9


class ClassifierBlock(nn.Module):
    """A pre-norm block: the norms come before attention and MLP."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.heads = model["heads"]
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, model["ffn"])
        self.fc2 = nn.Linear(model["ffn"], hidden)

    def forward(self, rows, bias):
        query, key, value = self.qkv(self.norm1(rows)).chunk(3, dim=-1)
        rows = rows + self.proj(attention(query, key, value, self.heads, bias))
        return rows + self.fc2(F.gelu(self.fc1(self.norm2(rows))))


class TokenClassifier(nn.Module):
    """The token-skew lab's model: a masked mean over the tokens and one label per sample."""

    def __init__(self, model):
        super().__init__()
        self.embedding = nn.Embedding(model["vocab"], model["hidden"])
        self.layers = nn.ModuleList(ClassifierBlock(model) for _ in range(model["layers"]))
        self.classifier = nn.Linear(model["hidden"], model["classes"])

    def forward(self, tokens, mask, labels):
        rows = self.embedding(tokens)
        bias = key_bias(mask)
        for layer in self.layers:
            rows = layer(rows, bias)
        weights = mask[:, :, None]
        pooled = (rows * weights).sum(dim=1) / weights.sum(dim=1)
        return F.cross_entropy(self.classifier(pooled), labels)


class DistilBertBlock(nn.Module):
    """A post-norm block: the norms come after attention and MLP."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.heads = model["heads"]
        self.q_lin = nn.Linear(hidden, hidden)
        self.k_lin = nn.Linear(hidden, hidden)
        self.v_lin = nn.Linear(hidden, hidden)
        self.out_lin = nn.Linear(hidden, hidden)
        self.sa_layer_norm = nn.LayerNorm(hidden)
        self.lin1 = nn.Linear(hidden, model["ffn"])
        self.lin2 = nn.Linear(model["ffn"], hidden)
        self.output_layer_norm = nn.LayerNorm(hidden)

    def forward(self, rows, bias):
        context = attention(
            self.q_lin(rows), self.k_lin(rows), self.v_lin(rows), self.heads, bias
        )
        rows = self.sa_layer_norm(rows + self.out_lin(context))
        return self.output_layer_norm(rows + self.lin2(F.gelu(self.lin1(rows))))


class DistilBert(nn.Module):
    """DistilBERT with a classifier on the first token."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.word_embeddings = nn.Embedding(model["vocab"], hidden)
        self.position_embeddings = nn.Embedding(model["max_length"], hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(DistilBertBlock(model) for _ in range(model["layers"]))
        self.pre_classifier = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, model["classes"])

    def forward(self, tokens, mask, labels):
        positions = torch.arange(tokens.shape[1])
        rows = self.norm(self.word_embeddings(tokens) + self.position_embeddings(positions))
        bias = key_bias(mask)
        for layer in self.layers:
            rows = layer(rows, bias)
        return F.cross_entropy(self.classifier(F.relu(self.pre_classifier(rows[:, 0]))), labels)


class GptBlock(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.heads = model["heads"]
        self.ln_1 = nn.LayerNorm(hidden)
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, model["ffn"])
        self.mlp_proj = nn.Linear(model["ffn"], hidden)

    def forward(self, rows, bias):
        query, key, value = self.c_attn(self.ln_1(rows)).chunk(3, dim=-1)
        rows = rows + self.c_proj(attention(query, key, value, self.heads, bias))
        return rows + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(rows))))


class Gpt2(nn.Module):
    """GPT-2 with tied embeddings. The loss leaves padded positions out."""

    def __init__(self, model):
        super().__init__()
        self.wte = nn.Embedding(model["vocab"], model["hidden"])
        self.wpe = nn.Embedding(model["max_length"], model["hidden"])
        self.layers = nn.ModuleList(GptBlock(model) for _ in range(model["layers"]))
        self.ln_f = nn.LayerNorm(model["hidden"])
        # As published. With torch's N(0, 1) the tied head's softmax underflows to subnormal
        # numbers, with which products take 30 times as long on some processors.
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, tokens, mask, labels):
        length = tokens.shape[1]
        rows = self.wte(tokens) + self.wpe(torch.arange(length))
        bias = torch.full((length, length), -1e9).triu(1)
        for layer in self.layers:
            rows = layer(rows, bias)
        logits = F.linear(self.ln_f(rows), self.wte.weight)
        targets = torch.where(mask > 0, tokens.roll(-1, dims=1), -100)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


MODELS = {"token_classifier": TokenClassifier, "distilbert": DistilBert, "gpt2": Gpt2}


def make_model(model):
    """Returns the model that "model" in a plan's header describes."""
    torch.manual_seed(1)
    return MODELS[model["family"]](model)
