#include "calibrate/import/kineto/kineto_dims.h"

#include <array>
#include <charconv>

namespace stepsim {
namespace {

struct TellingOp {
  std::string_view name;
  KinetoTensorOf of;
  std::size_t place;  ///< Among the op's arguments.
};

constexpr std::array<TellingOp, 13> kTellingOps = {{
    {"aten::embedding", KinetoTensorOf::Embedding, 1},
    {"aten::conv1d", KinetoTensorOf::Conv1d, 0},
    {"aten::conv2d", KinetoTensorOf::Conv2d, 0},
    {"aten::conv3d", KinetoTensorOf::Conv3d, 0},
    {"aten::linear", KinetoTensorOf::Linear, 0},
    {"aten::lstm", KinetoTensorOf::Recurrent, 0},
    {"aten::gru", KinetoTensorOf::Recurrent, 0},
    {"aten::rnn_tanh", KinetoTensorOf::Recurrent, 0},
    {"aten::rnn_relu", KinetoTensorOf::Recurrent, 0},
    {"aten::bmm", KinetoTensorOf::Product, 0},
    {"aten::baddbmm", KinetoTensorOf::Product, 1},
    {"aten::scaled_dot_product_attention", KinetoTensorOf::Attention, 0},
    {"torch::autograd::AccumulateGrad", KinetoTensorOf::Gradient, 0},
}};

}  // namespace

std::optional<std::vector<std::int64_t>> whole_numbers(std::string_view text) {
  std::vector<std::int64_t> values;
  const auto* at = text.data();
  const auto* const end = text.data() + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t value = 0;
    const auto [after, error] = std::from_chars(at, end, value);
    if (error != std::errc()) {
      return std::nullopt;
    }
    values.push_back(value);
    at = after;
  }
  return values;
}

std::optional<std::string_view> inner_list(std::string_view text, std::size_t which) {
  std::optional<std::size_t> begin;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') {
      begin = at + 1;
    } else if (text[at] == ']' && begin) {
      if (which == 0) {
        return text.substr(*begin, at - *begin);
      }
      --which;
      begin.reset();
    }
  }
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> dims_of(std::string_view dims, std::size_t which) {
  const auto list = inner_list(dims, which);
  auto sizes = list ? whole_numbers(*list) : std::nullopt;
  if (!sizes) {
    return std::nullopt;
  }
  std::int64_t product = 1;
  for (const std::int64_t size : *sizes) {
    if (size < 0 || (size > 0 && product > kMaxKinetoElements / size)) {
      return std::nullopt;
    }
    product *= size;
  }
  return sizes;
}

std::int64_t elements_in(const std::vector<std::int64_t>& dims) {
  std::int64_t product = 1;
  for (const std::int64_t size : dims) {
    product *= size;
  }
  return product;
}

std::optional<std::pair<KinetoTensorOf, std::size_t>> tensor_of(std::string_view op) {
  for (const TellingOp& telling : kTellingOps) {
    if (telling.name == op) {
      return std::pair(telling.of, telling.place);
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> table_of_numbers(std::string_view types, std::string_view dims) {
  std::string_view left = inner_list(types, 0).value_or("");
  for (std::size_t place = 0; !left.empty(); ++place) {
    const std::size_t comma = left.find(',');
    const std::string_view type = left.substr(0, comma);
    if (type == "long int" || type == "int") {
      const auto sizes = dims_of(dims, place);
      if (sizes && sizes->size() == 2) {
        return place;
      }
    }
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
  return std::nullopt;
}

}  // namespace stepsim
