#!/usr/bin/env python3
"""Tells what PyTorch has on this machine that its training steps depend on: versions, how much
workspace it gives to cuBLASLt, and which attention it prefers.

    python3 torch_libraries.py

The workspace decides which kernels cuBLASLt chooses, and versions of PyTorch differ in it; the last
line says what to set so that stepcal gives as much. It is read from cuBLASLt's own log.
"""

import os
import re
import sys
import tempfile

HEURISTIC = re.compile(r"AlgoGetHeuristic.*maxWorkspaceSizeinBytes=(\d+)")


def workspace_of(log):
    """The bytes that the last question for kernels in cuBLASLt's log allows; None: no question."""
    found = HEURISTIC.findall(log)
    return int(found[-1]) if found else None


def main():
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        # Read when the library is loaded.
        os.environ.update(CUBLASLT_LOG_LEVEL="5", CUBLASLT_LOG_FILE=log.name)
        import torch  # pylint: disable=import-outside-toplevel

        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
        if not torch.cuda.is_available():
            print("no CUDA device: its libraries say nothing")
            return
        rows = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
        print("sum of a product:", float((rows @ rows).float().mean()))
        bias = torch.ones(1024, device="cuda", dtype=torch.bfloat16)
        torch.nn.functional.linear(rows, rows, bias)
        heads = rows.view(4, 16, 256, 64)
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        torch.cuda.synchronize()
        order = getattr(torch._C, "_get_sdp_priority_order", lambda: "not told by this version")
        print("attention, by preference (1 FlashAttention, 2 memory-efficient, 0 math, 3 cuDNN):", order())
        size = workspace_of(log.read())
        if size is None:
            print("cuBLASLt's workspace: not told by its log")
        else:
            print(f"cuBLASLt's workspace: {size} bytes, for stepcal CUBLASLT_WORKSPACE_SIZE={size // 1024}")


if __name__ == "__main__":
    sys.exit(main())
