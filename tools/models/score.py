"""Scores tokens by Hugging Face's transformers, in float32 on a CPU, for cmd/coppice's TestRealTokens.

    python score.py FILE.gguf

Needs transformers, accelerate, torch and gguf, and no network. Prints its versions as a line of JSON. Then, for each line of its input,
{"prompt": [...], "tokens": [...]}, it prints a line {"logprobs": [...], "best": [...], "gaps": [...]}: of each of tokens
the natural logarithm of its probability after the ones before it, the most probable token there, and by how much
its logarithm exceeds that of the second. Weights are unpacked to float32: the only rounding is theirs.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import torch
import transformers


def main(path: str) -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    directory, file = os.path.split(os.path.abspath(path))
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, gguf_file=file, dtype=torch.float32)
    model.eval()
    print(json.dumps(f"{transformers.__version__}, torch {torch.__version__}"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        prompt, tokens = asked["prompt"], torch.tensor(asked["tokens"])
        with torch.no_grad():
            logits = model(torch.tensor([prompt + asked["tokens"]])).logits[0, len(prompt) - 1 : -1]
        logprobs = torch.log_softmax(logits.double(), dim=-1)
        top = logprobs.topk(2, dim=-1)
        answer = {
            "logprobs": logprobs[torch.arange(len(tokens)), tokens].tolist(),
            "best": top.indices[:, 0].tolist(),
            "gaps": (top.values[:, 0] - top.values[:, 1]).tolist(),
        }
        print(json.dumps({k: [round(v, 5) if isinstance(v, float) else v for v in values] for k, values in answer.items()}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
