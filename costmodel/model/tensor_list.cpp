#include "costmodel/model/tensor_list.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
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
    "; write the columns name,shape,dtype,requires_grad: for n, p in model.named_parameters(): "
    "print(n, 'x'.join(map(str, p.shape)), p.dtype, p.requires_grad, sep=',')";

/// What to do with the files that people have at hand in place of such a list.
std::string foreign_list(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".safetensors.index.json")) {
    return "is an index of safetensors, which has names and files but no shapes: give the list of "
           "the model";
  }
  if (name.ends_with(".safetensors")) {
    return "holds weights, by name and not in the order of the model: give the list of the model";
  }
  std::string begin(4096, '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
  if (begin.find("Layer (type") != std::string::npos) {
    return "is a table of torchinfo, which counts parameters by layer and has no list of tensors: "
           "give that of the model";
  }
  return "";
}

std::unique_ptr<const CsvTable> open_list(const std::string& path) {
  if (const std::string reason = foreign_list(path); !reason.empty()) {
    throw InputError(SourcePlace{path}, "{}", reason + kHowToList);
  }
  try {
    return std::make_unique<const CsvTable>(path);
  } catch (const InputError& error) {
    const std::string message = error.what();
    if (message.find("a table (CSV)") == std::string::npos &&
        message.find("no table (CSV)") == std::string::npos) {
      throw;
    }
    // A config.json is what people have at hand.
    throw InputError(SourcePlace{path},
                     "{}",
                     message.substr(message.find("is ")) + kHowToList +
                         "; `stepsim models config.json --csv tensors.csv` writes it for the "
                         "families that it lists");
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
      tensor.dtype = read_dtype(row);
      if (!requires_grad_ || read_flag(table_, row, *requires_grad_)) {
        tensor.forward += std::exchange(frozen_first, 0);
        list_.tensors.push_back(std::move(tensor));
        continue;
      }
      if (list_.tensors.empty()) {
        frozen_first += tensor.forward;  // The backward ends before it.
      } else {
        list_.tensors.back().forward += tensor.forward;
        list_.tensors.back().backward += tensor.backward;
      }
      list_.frozen.push_back({std::move(tensor.name),
                              std::move(tensor.shape),
                              tensor.dtype.value_or(Dtype::F32),
                              false});
    }
    if (list_.tensors.empty() && table_.rows() > 0) {
      table_.fail(0, *requires_grad_, "no parameter has a gradient");
    }
    choose_dtype();
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

  [[nodiscard]] std::optional<Dtype> read_dtype(std::size_t row) const {
    if (!dtype_) {
      return {};
    }
    constexpr std::string_view kTorch = "torch.";
    std::string_view name = table_.text(row, *dtype_);
    name.remove_prefix(name.starts_with(kTorch) ? kTorch.size() : 0);
    try {
      return parse_dtype(name);
    } catch (const InputError& error) {
      table_.fail(row, *dtype_, error.what());
    }
  }

  /// The type of most gradients is the model's; tensors of that type say nothing of their own.
  void choose_dtype() {
    if (!dtype_) {
      return;
    }
    std::map<Dtype, std::int64_t> elements;
    for (const TensorBlock& tensor : list_.tensors) {
      elements[*tensor.dtype] += elements_of(tensor.shape);
    }
    const auto most =
        std::ranges::max_element(elements, {}, &std::pair<const Dtype, std::int64_t>::second);
    if (most == elements.end()) {
      return;
    }
    list_.dtype = most->first;
    for (TensorBlock& tensor : list_.tensors) {
      if (tensor.dtype == list_.dtype) {
        tensor.dtype.reset();
      }
    }
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
                               Dtype dtype,
                               std::vector<Parameter> frozen) {
  TransformerConfig model;
  model.parameter_dtype = dtype;
  model.family = ModelFamily::Blocks;
  model.name = name;
  model.hidden = model.heads = model.kv_heads = model.ffn = model.vocab = 1;
  model.max_length = std::int64_t{1} << 20;
  model.layers = static_cast<std::int64_t>(tensors.size());
  model.tensors = std::move(tensors);
  model.frozen = std::move(frozen);
  check(model);
  return model;
}

}  // namespace stepsim
