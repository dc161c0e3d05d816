#include "costmodel/model/tensor_list.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "costmodel/io/csv_table.h"

namespace stepsim {
namespace {

/// "512x256x3x3"; empty when it is no such text.
std::vector<std::int64_t> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size <= 0) {
      return {};
    }
    shape.push_back(size);
    if (stop == end) {
      return shape;
    }
    if (*stop != 'x') {
      return {};
    }
    at = stop + 1;
  }
}

}  // namespace

std::int64_t assumed_work(const std::vector<std::int64_t>& shape) {
  return shape.size() > 1 ? 1 : 0;
}

std::vector<TensorBlock> read_tensor_list(const std::string& path) {
  constexpr std::int64_t kMaxWork = std::int64_t{1} << 50;
  const CsvTable table(path);
  const auto name = table.column("name");
  const auto shape = table.column("shape");
  const auto stated = table.find("forward");
  const auto forward = stated ? stated : table.find("backward");
  std::vector<TensorBlock> tensors;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    TensorBlock tensor;
    tensor.name = table.text(row, name);
    tensor.shape = parse_shape(table.text(row, shape));
    if (tensor.shape.empty()) {
      table.fail(row, shape, "expected sizes as 512x256x3x3");
    }
    tensor.forward = tensor.backward = assumed_work(tensor.shape);
    if (forward) {
      tensor.forward = table.integer(row, table.column("forward"), 0, kMaxWork);
      tensor.backward = table.integer(row, table.column("backward"), 0, kMaxWork);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

TransformerConfig tensor_chain(const std::string& name, std::vector<TensorBlock> tensors) {
  TransformerConfig model;
  model.family = ModelFamily::Blocks;
  model.name = name;
  model.hidden = model.heads = model.kv_heads = model.ffn = model.vocab = 1;
  model.max_length = std::int64_t{1} << 20;
  model.layers = static_cast<std::int64_t>(tensors.size());
  model.tensors = std::move(tensors);
  check(model);
  return model;
}

}  // namespace stepsim
