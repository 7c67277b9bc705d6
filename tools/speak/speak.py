"""Trains the small model that speaks: 3.6 million parameters of Llama's shape, on the text of corpus.py, on a CPU.

    python3 tools/speak/corpus.py TEXTS
    python3 tools/speak/speak.py TEXTS OUT.gguf

It writes a GGUF file of Q8_0. It keeps its state in OUT.state, and goes on from there when it is started again; it says how long it will take: an
hour on two cores. check.py proves the file; cmd/internal/speak has the one that the command runs without --model. It needs the packages of
requirements.txt. The seed fixes the order of the text and the first weights; sums of floats depend on the processor, so two machines end with
different weights of the same quality.

The model learns prose, and dialogues in which somebody asks about a word and hears a paragraph that has it. It knows nothing and reasons
about nothing: it speaks so that caches, drafts and samplers can be seen at work on a trained model's logits.
"""

import json
import math
import pathlib
import random
import sys
import time

try:
    import gguf
    import numpy as np
    import tokenizers
    import torch
    import torch.nn.functional as F
    from torch import nn
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: pip install -r tools/speak/requirements.txt\n\n{__doc__}")

SEED = 1704  # the year of the Opticks
VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 3072, 256, 4, 4, 2, 64, 672
ROPE_THETA, EPS, POSITIONS = 100_000.0, 1e-5, 8192
STEPS, WARMUP, BATCH_TOKENS = 1200, 60, 8192
LONG_FROM, SHORT, LONG = 0.9, 512, 2048  # the last tenth of the steps has longer sequences
MATRIX_RATE, VECTOR_RATE = 0.01, 0.002
REPEATS = {"opticks.txt": 4, "austen.txt": 1, "moby-dick.txt": 1, "addresses.txt": 1}  # how often a pass reads a text
OPTICKS_FROM = 1 / 3  # from this share of the steps on, only the Opticks makes dialogues
HELD_OUT = 40  # of so many stretches of ten paragraphs, one is never learnt
END, OPEN, CLOSE = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SYSTEM = "You answer in the words of Sir Isaac Newton's Opticks."
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def main(texts: str, out: str) -> None:
    torch.manual_seed(SEED)
    learnt, held = split(texts)
    words = tokenizer(learnt)
    data = Data(words, learnt)
    model = Model()
    train(model, data, words, held, pathlib.Path(out + ".state"))
    write(model, words, out)


def split(texts: str) -> tuple[dict, dict]:
    """Returns the stretches of paragraphs to learn from, and those held out, by the name of the text."""
    learnt, held = {}, {}
    for name in REPEATS:
        paragraphs = pathlib.Path(texts, name).read_text().strip().split("\n\n")
        stretches = [paragraphs[i : i + 10] for i in range(0, len(paragraphs), 10)]
        held[name] = stretches[HELD_OUT // 2 :: HELD_OUT] or stretches[-1:]
        learnt[name] = [s for s in stretches if s not in held[name]]
    return learnt, held


def tokenizer(texts: dict) -> tokenizers.Tokenizer:
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END, OPEN, CLOSE],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = (p for name, stretches in texts.items() for _ in range(REPEATS[name]) for s in stretches for p in s)
    t.train_from_iterator(lines, trainer)
    return t


ASKS = (
    "What is {}?", "Tell me of {}.", "What do you know about {}?", "Why {}?", "Describe {}.", "What can you say of {}?", "{}?",
    "Explain {} to me.", "What do you think of {}?", "How does one come to {}?", "What are {}?", "How do you explain {}?",
)  # fmt: skip
COMMON = 1 / 2000  # a word that is more frequent than this is no subject


class Data:
    """Sequences of tokens to learn from, without an end."""

    def __init__(self, words: tokenizers.Tokenizer, texts: dict):
        self.words, self.random = words, random.Random(SEED)
        self.stretches = [(name, s) for name, all in texts.items() for _ in range(REPEATS[name]) for s in all]
        count: dict[str, int] = {}
        for _, s in self.stretches:
            for word in " ".join(s).lower().split():
                count[word] = count.get(word, 0) + 1
        total = sum(count.values())
        self.subject = {w for w, n in count.items() if len(w) > 3 and w.isalpha() and 3 <= n < total * COMMON}
        self.subject |= {"light", "rays", "colours", "colour", "prism", "glass", "water", "heat", "white", "bodies"}
        self.left: list[int] = []
        self.step, self.text = 0, self.endless()

    def endless(self):
        while True:
            yield from self.pieces()

    def pieces(self):
        """Yields the text of each stretch: as prose, or as a dialogue."""
        self.random.shuffle(self.stretches)
        for name, stretch in self.stretches:
            others = 0.25 if self.step < STEPS * OPTICKS_FROM else 0
            if self.random.random() < (0.6 if name == "opticks.txt" else others):
                yield self.dialogue(stretch)
            else:
                yield "\n".join(stretch) + END

    def dialogue(self, paragraphs: list[str]) -> str:
        text = ""
        if self.random.random() < 0.3:
            text = f"{OPEN}system\n{SYSTEM}{CLOSE}\n"
        for p in paragraphs:
            subjects = [w for w in {w.strip(".,;:?!\"'()") for w in p.lower().split()} if w in self.subject]
            word = self.random.choice(sorted(subjects)) if subjects else "this"
            question = self.random.choice(ASKS).format(self.random.choice(("", "", "", "the ")) + word)
            question = question[0].upper() + question[1:]
            sentences = p.split(". ")
            at = next((i for i, s in enumerate(sentences) if word in s.lower()), 0)
            answer = ". ".join(sentences[at : at + self.random.randint(2, 7)])
            text += f"{OPEN}user\n{question}{CLOSE}\n{OPEN}assistant\n{answer.strip()}{CLOSE}\n"
        return text + END

    def batch(self, length: int) -> torch.Tensor:
        """Returns [BATCH_TOKENS / length, length + 1] tokens."""
        need = BATCH_TOKENS // length * (length + 1)
        while len(self.left) < need:  # one piece after another, so that the mixture follows the step
            self.left += self.words.encode(next(self.text)).ids
        out, self.left = self.left[:need], self.left[need:]
        return torch.tensor(out).view(-1, length + 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        wide = HEADS * HEAD_DIM
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(HIDDEN)), nn.Parameter(torch.ones(HIDDEN))
        self.q, self.k, self.v, self.o = matrix(wide, HIDDEN), matrix(KV_HEADS * HEAD_DIM, HIDDEN), matrix(KV_HEADS * HEAD_DIM, HIDDEN), matrix(HIDDEN, wide)
        self.gate, self.up, self.down = matrix(FFN, HIDDEN), matrix(FFN, HIDDEN), matrix(HIDDEN, FFN)

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        h = F.rms_norm(x, (HIDDEN,), self.attn_norm, EPS)
        q = F.linear(h, self.q).view(b, n, HEADS, HEAD_DIM).transpose(1, 2)
        k = F.linear(h, self.k).view(b, n, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = F.linear(h, self.v).view(b, n, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(b, n, -1), self.o)
        h = F.rms_norm(x, (HIDDEN,), self.ffn_norm, EPS)
        return x + F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(VOCAB, HIDDEN) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, ids):
        at = torch.arange(ids.shape[1])[:, None] * ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        x = self.embed[ids]
        for layer in self.layers:
            x = layer(x, at.cos(), at.sin())
        return F.linear(F.rms_norm(x, (HIDDEN,), self.norm, EPS), self.embed)


def matrix(rows: int, cols: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, cols) / math.sqrt(cols))


def rotate(x, cos, sin):
    """Turns pairs of neighbours, as GGUF's arch llama does; Hugging Face's form pairs the halves."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def train(model: Model, data: Data, words, held: dict, state: pathlib.Path) -> None:
    matrices = [p for layer in model.layers for p in layer.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if not any(p is m for m in matrices)]
    optimizers = (
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(vectors, lr=VECTOR_RATE, weight_decay=0.01, betas=(0.9, 0.95)),
    )
    rates = [g["lr"] for o in optimizers for g in o.param_groups]
    begin = 0
    if state.exists():
        kept = torch.load(state, weights_only=False)
        model.load_state_dict(kept["model"])
        for o, s in zip(optimizers, kept["optimizers"]):
            o.load_state_dict(s)
        begin, data.left = kept["step"], kept["left"]
        data.random.setstate(kept["random"])
    since, mean = time.monotonic(), None
    for step in range(begin, STEPS):
        share = min((step + 1) / WARMUP, 1) * (1 - max(0, step / STEPS - 0.4) / 0.6)  # up, level, and down to zero
        for g, rate in zip((g for o in optimizers for g in o.param_groups), rates):
            g["lr"] = rate * share
        data.step = step
        ids = data.batch(LONG if step >= STEPS * LONG_FROM else SHORT)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vectors, 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad(set_to_none=True)
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if step % 20 == 19:
            took = (time.monotonic() - since) / (step + 1 - begin)
            print(f"step {step + 1} of {STEPS}, loss {mean:.3f}, {took:.2f} s a step, {took * (STEPS - step - 1) / 60:.0f} minutes left", flush=True)
        if step % 100 == 99 or step + 1 == STEPS:
            keep = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step + 1, "left": data.left}
            torch.save(keep | {"random": data.random.getstate()}, state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)
        if step % 500 == 499 or step + 1 == STEPS:
            for name, stretches in held.items():
                print(f"held out of {name}: {bits(model, words, stretches):.3f} bits a byte", flush=True)


@torch.no_grad()
def bits(model: Model, words, stretches: list) -> float:
    """Returns the bits a byte that the model needs for text that it has not learnt."""
    loss = size = 0
    for s in stretches[:20]:
        text = "\n".join(s)
        ids = torch.tensor(words.encode(END + text).ids[: SHORT + 1])
        loss += F.cross_entropy(model(ids[None, :-1])[0].float(), ids[1:], reduction="sum").item()
        size += len(words.decode(ids[1:].tolist(), skip_special_tokens=False).encode())
    return loss / size / math.log(2)


def write(model: Model, words, out: str) -> None:
    w = gguf.GGUFWriter(out, "llama")
    w.add_name("Coppice Speak")
    w.add_description("3.6 million parameters, trained on the Opticks and other prose in the public domain")
    w.add_license("CC0-1.0")
    w.add_context_length(POSITIONS)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(ROPE_THETA)
    w.add_layer_norm_rms_eps(EPS)
    w.add_vocab_size(VOCAB)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    bpe = json.loads(words.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    control = {END, OPEN, CLOSE}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in control else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]])
    w.add_bos_token_id(tokens.index(END))
    w.add_eos_token_id(tokens.index(CLOSE))
    w.add_eot_token_id(tokens.index(CLOSE))
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    for name, p in tensors(model):
        put(w, name, p)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tensors(model: Model):
    """Yields the parameters with their names in GGUF files."""
    yield "token_embd.weight", model.embed
    yield "output_norm.weight", model.norm
    for i, l in enumerate(model.layers):
        names = {"attn_norm": l.attn_norm, "attn_q": l.q, "attn_k": l.k, "attn_v": l.v, "attn_output": l.o}
        names |= {"ffn_norm": l.ffn_norm, "ffn_gate": l.gate, "ffn_up": l.up, "ffn_down": l.down}
        for name, p in names.items():
            yield f"blk.{i}.{name}.weight", p


def put(w: gguf.GGUFWriter, name: str, p: nn.Parameter) -> None:
    values = p.detach().float().numpy()
    if values.ndim == 1:
        w.add_tensor(name, values.astype(np.float32))
        return
    kind = gguf.GGMLQuantizationType.Q8_0
    w.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
