#include "costmodel/model/tensor_list.h"

#include <charconv>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
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

/// How a list is made of a model in Python.
constexpr const char* kHowToList =
    "; write the columns name,shape,requires_grad: for n, p in model.named_parameters(): print(n, "
    "'x'.join(map(str, p.shape)), p.requires_grad, sep=',')";

std::unique_ptr<const CsvTable> open_list(const std::string& path) {
  try {
    return std::make_unique<const CsvTable>(path);
  } catch (const InputError& error) {
    const std::string message = error.what();
    if (message.find("a table (CSV)") == std::string::npos &&
        message.find("no table (CSV)") == std::string::npos) {
      throw;
    }
    // config.json and safetensors files are what people have at hand.
    throw InputError(SourcePlace{path}, "{}", message.substr(message.find("is ")) + kHowToList);
  }
}

/// True for "True" of Python, "true" and "1".
bool read_flag(const CsvTable& table, std::size_t row, CsvTable::Column column) {
  const std::string_view text = table.text(row, column);
  if (text == "True" || text == "true" || text == "1") {
    return true;
  }
  if (text != "False" && text != "false" && text != "0") {
    table.fail(row, column, "expected True or False");
  }
  return false;
}

class TensorListReader {
 public:
  explicit TensorListReader(const CsvTable& table)
      : table_(table),
        name_(table.column("name")),
        shape_(table.column("shape")),
        requires_grad_(table.find("requires_grad")),
        dtype_(table.find("dtype")) {
    const std::vector<std::string> known = {
        "name", "shape", "forward", "backward", "requires_grad", "dtype"};
    table.require_known(known);
    if (table.find("forward") || table.find("backward")) {
      forward_ = table.column("forward");
      backward_ = table.column("backward");
    }
  }

  [[nodiscard]] TensorList read() {
    std::int64_t frozen_first = 0;  // Forward work before the first gradient's.
    for (std::size_t row = 0; row < table_.rows(); ++row) {
      TensorBlock tensor = read_row(row);
      if (!requires_grad_ || read_flag(table_, row, *requires_grad_)) {
        read_dtype(row);
        tensor.forward += std::exchange(frozen_first, 0);
        list_.tensors.push_back(std::move(tensor));
      } else if (list_.tensors.empty()) {
        frozen_first += tensor.forward;  // The backward ends before it.
      } else {
        list_.tensors.back().forward += tensor.forward;
        list_.tensors.back().backward += tensor.backward;
      }
    }
    if (list_.tensors.empty() && table_.rows() > 0) {
      table_.fail(0, *requires_grad_, "no parameter has a gradient");
    }
    return std::move(list_);
  }

 private:
  [[nodiscard]] TensorBlock read_row(std::size_t row) const {
    constexpr std::int64_t kMaxWork = std::int64_t{1} << 50;
    TensorBlock tensor;
    tensor.name = table_.text(row, name_);
    tensor.shape = parse_shape(table_.text(row, shape_));
    if (tensor.shape.empty()) {
      table_.fail(row, shape_, "expected sizes as 512x256x3x3");
    }
    tensor.forward = tensor.backward = assumed_work(tensor.shape);
    if (forward_) {
      tensor.forward = table_.integer(row, *forward_, 0, kMaxWork);
      tensor.backward = table_.integer(row, *backward_, 0, kMaxWork);
    }
    return tensor;
  }

  void read_dtype(std::size_t row) {
    if (!dtype_) {
      return;
    }
    constexpr std::string_view kTorch = "torch.";
    std::string_view name = table_.text(row, *dtype_);
    name.remove_prefix(name.starts_with(kTorch) ? kTorch.size() : 0);
    Dtype dtype = Dtype::F32;
    try {
      dtype = parse_dtype(name);
    } catch (const InputError& error) {
      table_.fail(row, *dtype_, error.what());
    }
    if (list_.dtype && *list_.dtype != dtype) {
      table_.fail(row,
                  *dtype_,
                  fmt::format("the gradients before it are {}; those of several dtypes are in "
                              "buckets of their own, which a list cannot say",
                              name_of(*list_.dtype)));
    }
    list_.dtype = dtype;
  }

  const CsvTable& table_;
  CsvTable::Column name_;
  CsvTable::Column shape_;
  std::optional<CsvTable::Column> requires_grad_;
  std::optional<CsvTable::Column> dtype_;
  std::optional<CsvTable::Column> forward_;
  std::optional<CsvTable::Column> backward_;
  TensorList list_;
};

}  // namespace

std::int64_t assumed_work(const std::vector<std::int64_t>& shape) {
  return shape.size() > 1 ? 1 : 0;
}

TensorList read_tensor_list(const std::string& path) {
  const std::unique_ptr<const CsvTable> table = open_list(path);
  return TensorListReader(*table).read();
}

TransformerConfig tensor_chain(const std::string& name,
                               std::vector<TensorBlock> tensors,
                               Dtype dtype) {
  TransformerConfig model;
  model.parameter_dtype = dtype;
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
