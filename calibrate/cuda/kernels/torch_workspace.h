#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

/// The workspaces that PyTorch gives to cuBLAS and cuBLASLt, which decide what kernels they choose.
/// Source: PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize and
/// parseCUDABlasLtWorkspaceSize. Other versions give cuBLASLt 4 MiB on Ampere and 32 MiB on Hopper
/// (pytorch/pytorch#120925). #168175 (January 2026) has both libraries share one buffer, of which
/// cuBLASLt may use 1 MiB as before; with #173002 (March 2026) it may use all that cuBLAS has,
/// unless TORCH_CUBLASLT_UNIFIED_WORKSPACE is 0; #183923 (May 2026) takes that back. What the
/// PyTorch of a machine has, torch_libraries.py tells; CUBLASLT_WORKSPACE_SIZE then says so here.
namespace stepsim::cuda {

/// Bytes for cuBLAS: 8.1 MiB (":4096:2:16:8"), and 32 MiB on Hopper.
///
/// Args:
///     config: CUBLAS_WORKSPACE_CONFIG, pairs of KiB and count as ":4096:8"; null, or text without
///         a pair: the default.
[[nodiscard]] inline std::int64_t torch_cublas_workspace(int compute_major,
                                                         int compute_minor,
                                                         const char* config) {
  constexpr std::int64_t kKibibyte = 1024;
  const bool hopper = compute_major == 9 && compute_minor == 0;
  const std::int64_t usual = (hopper ? 4096 * 8 : 4096 * 2 + 16 * 8) * kKibibyte;
  std::string_view rest = config == nullptr ? "" : config;
  std::int64_t total = 0;
  bool found = false;
  while (true) {
    std::int64_t pair[2] = {};
    for (std::int64_t& number : pair) {
      if (rest.empty() || rest.front() != ':') {
        return found ? total * kKibibyte : usual;
      }
      rest.remove_prefix(1);
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      if (error != std::errc() || number < 0) {
        return found ? total * kKibibyte : usual;
      }
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    }
    total += pair[0] * pair[1];
    found = true;
  }
}

/// Bytes for cuBLASLt: 1 MiB, or what CUBLASLT_WORKSPACE_SIZE says in KiB (null, or no number: the
/// default), and no more than `cublas`, the bytes that cuBLAS has.
[[nodiscard]] inline std::int64_t torch_cublaslt_workspace(const char* kibibytes,
                                                           std::int64_t cublas) {
  std::int64_t size = 1024;
  const std::string_view text = kibibytes == nullptr ? "" : kibibytes;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && number >= 0) {
    size = number;
  }
  return std::min(size * 1024, cublas);
}

}  // namespace stepsim::cuda
