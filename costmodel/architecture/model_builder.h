#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/architecture/described_model.h"

namespace stepsim {

/// The sizes of an attention.
struct AttentionSizes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;  ///< Tokens; 0: unlimited.
  std::int64_t keys = 0;    ///< That each query meets, of another sequence; 0: its own.
};

/// Collects the parameters and the ops of a model. Parameters are told in the order in which the
/// modules are registered, ops in the order in which they run; the name of an op joins them.
class ModelBuilder {
 public:
  explicit ModelBuilder(const DescribedRun& run) : run_(run) {}

  DescribedModel model;  ///< Its sizes are the caller's to set.

  // Parameters. `op` is the whole name, "layer3.q".
  void tensor(const std::string& name,
              std::vector<std::int64_t> shape,
              const std::string& op,
              bool frozen = false);
  /// An nn.Linear: weight [out][in], and a bias.
  void linear(
      const std::string& name, std::int64_t in, std::int64_t out, bool bias, const std::string& op);
  /// A norm: weight, and a bias.
  void norm(const std::string& name, std::int64_t width, bool bias, const std::string& op);

  // Ops. Their names get the prefix of the part that begin() named.
  void begin(const std::string& prefix) { prefix_ = prefix; }
  /// The rows of the ops that follow: each token, or each sample `each` times.
  void rows(RowUnit unit, std::int64_t each = 1);
  Op& op(std::string_view name, OpClass op_class, std::int64_t n, std::int64_t k = 0);
  Op& product(std::string_view name, std::int64_t in, std::int64_t out) {
    return op(name, OpClass::Gemm, out, in);
  }
  void norm_op(std::string_view name, std::int64_t width) { op(name, OpClass::Norm, width); }
  void add(std::string_view name, std::int64_t width) { op(name, OpClass::Elementwise, width); }
  /// Scores, softmax and context of dense attention, or one fused op.
  void attention(const AttentionSizes& sizes, const std::string& name = "attention");
  /// A class of linear head over the whole batch: its loss runs over the rows of the ops before.
  void loss(std::int64_t classes) { op("loss", OpClass::CrossEntropy, classes); }

  [[nodiscard]] bool dense() const { return run_.attention == AttentionKind::Dense; }

 private:
  DescribedRun run_;
  std::string prefix_;
  RowUnit unit_ = RowUnit::Tokens;
  std::int64_t each_ = 1;
};

}  // namespace stepsim
