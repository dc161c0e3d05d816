#include "tests/calibrate/cuda/graph_interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace stepsim::cuda {
namespace {

using Index = std::array<std::int64_t, 4>;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// A tensor's values, dense and row-major.
struct Values {
  GraphDims dims{};
  std::vector<double> values;

  explicit Values(const GraphDims& dimensions)
      : dims(dimensions),
        values(static_cast<std::size_t>(dims[0] * dims[1] * dims[2] * dims[3]), kNothing) {}
  [[nodiscard]] double& at(const Index& i) {
    return values[static_cast<std::size_t>(((i[0] * dims[1] + i[1]) * dims[2] + i[2]) * dims[3] +
                                           i[3])];
  }
  /// Dimensions of size 1 broadcast.
  [[nodiscard]] double broadcast(Index i) {
    for (std::size_t d = 0; d < 4; ++d) {
      i[d] = dims[d] == 1 ? 0 : i[d];
    }
    return at(i);
  }
};

void each(const GraphDims& dims, const std::function<void(const Index&)>& visit) {
  Index i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0]) {
    for (i[1] = 0; i[1] < dims[1]; ++i[1]) {
      for (i[2] = 0; i[2] < dims[2]; ++i[2]) {
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) {
          visit(i);
        }
      }
    }
  }
}

class Interpreter {
 public:
  explicit Interpreter(GraphMemory& memory) : memory_(memory) {}

  void run(const SdpaGraph& graph) {
    for (const GraphOperation& step : graph.operations) {
      Values result = evaluate(step);
      if (step.y->role != GraphRole::Inner) {
        store(*step.y, result);
      }
      values_.insert_or_assign(step.y, std::move(result));
    }
  }

 private:
  /// Where an element lies in memory; -1 past the end of a packed sequence.
  std::int64_t address(const GraphTensor& tensor, const Index& i) {
    std::int64_t at =
        i[1] * tensor.strides[1] + i[2] * tensor.strides[2] + i[3] * tensor.strides[3];
    if (tensor.offsets == nullptr) {
      return at + i[0] * tensor.strides[0];
    }
    const auto sample = static_cast<std::size_t>(i[0]);
    const bool columns_are_tokens = tensor.dims[3] > 1 && tensor.strides[3] != 1;
    const std::int64_t token = columns_are_tokens ? i[3] : i[2];
    if (static_cast<double>(token) >= memory_.at(GraphRole::Lengths)[sample]) {
      return -1;
    }
    return at + static_cast<std::int64_t>(memory_.at(tensor.offsets->role)[sample]);
  }

  void store(const GraphTensor& tensor, Values& result) {
    std::vector<double>& memory = memory_.at(tensor.role);
    each(tensor.dims, [&](const Index& i) {
      if (const std::int64_t at = address(tensor, i); at >= 0) {
        memory.at(static_cast<std::size_t>(at)) = result.at(i);
      }
    });
  }

  Values& value_of(const GraphTensor& tensor) {
    if (const auto known = values_.find(&tensor); known != values_.end()) {
      return known->second;
    }
    Values read(tensor.dims);
    const std::vector<double>& memory = memory_.at(tensor.role);
    each(tensor.dims, [&](const Index& i) {
      if (const std::int64_t at = address(tensor, i); at >= 0) {
        read.at(i) = memory.at(static_cast<std::size_t>(at));
      }
    });
    return values_.emplace(&tensor, std::move(read)).first->second;
  }

  std::int64_t limit(const GraphTensor* override_by, std::int64_t sample, std::int64_t size) {
    return override_by == nullptr
               ? size
               : static_cast<std::int64_t>(value_of(*override_by).at({sample, 0, 0, 0}));
  }

  /// Elements outside the overridden sizes stay not-a-number: nothing may depend on them.
  Values multiply(const GraphOperation& step) {
    Values& a = value_of(*step.x);
    Values& b = value_of(*step.b);
    Values c(step.y->dims);
    each(c.dims, [&](const Index& i) {
      if (i[2] >= limit(step.m, i[0], c.dims[2]) || i[3] >= limit(step.n, i[0], c.dims[3])) {
        return;
      }
      const std::int64_t inner = limit(step.k, i[0], a.dims[3]);
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += a.at({i[0], i[1] * a.dims[1] / c.dims[1], i[2], k}) *
               b.at({i[0], i[1] * b.dims[1] / c.dims[1], k, i[3]});
      }
      c.at(i) = sum;
    });
    return c;
  }

  Values reduce(const GraphOperation& step) {
    Values& x = value_of(*step.x);
    Values y(step.y->dims);
    const bool is_max = step.mode == GraphMode::Max;
    each(x.dims, [&](const Index& i) {
      Index to{};
      for (std::size_t d = 0; d < 4; ++d) {
        to[d] = i[d] * y.dims[d] / x.dims[d];
      }
      double& result = y.at(to);
      const bool first = i[1] * y.dims[1] % x.dims[1] == 0 && (y.dims[3] != 1 || i[3] == 0);
      result = first ? x.at(i) : is_max ? std::max(result, x.at(i)) : result + x.at(i);
    });
    return y;
  }

  Values evaluate(const GraphOperation& step) {
    switch (step.mode) {
      case GraphMode::MatMul:
        return multiply(step);
      case GraphMode::Max:
      case GraphMode::Sum:
        return reduce(step);
      default:
        break;
    }
    Values& x = value_of(*step.x);
    Values y(step.y->dims);
    each(y.dims, [&](const Index& i) {
      if (step.mode == GraphMode::Transpose) {
        y.at(i) = x.at({i[0], i[1], i[3], i[2]});
        return;
      }
      const double b = step.b == nullptr ? 0 : value_of(*step.b).broadcast(i);
      y.at(i) = pointwise(step, i, x.at(i), b);
    });
    return y;
  }

  double pointwise(const GraphOperation& step, const Index& i, double x, double b) {
    switch (step.mode) {
      case GraphMode::Add:
        return x + b;
      case GraphMode::Subtract:
        return x - b;
      case GraphMode::Multiply:
        return x * b;
      case GraphMode::Divide:
        return x / b;
      case GraphMode::Exp:
        return std::exp(x);
      case GraphMode::Log:
        return std::log(x);
      case GraphMode::RowIndex:
        return static_cast<double>(i[2]);
      case GraphMode::ColumnIndex:
        return static_cast<double>(i[3]);
      case GraphMode::Less:
        return x < b ? 1 : 0;
      case GraphMode::Greater:
        return x > b ? 1 : 0;
      case GraphMode::GreaterEqual:
        return x >= b ? 1 : 0;
      case GraphMode::And:
        return x != 0 && b != 0 ? 1 : 0;
      case GraphMode::Select:
        return value_of(*step.mask).at(i) != 0 ? x : b;
      default:
        return x;
    }
  }

  GraphMemory& memory_;
  std::map<const GraphTensor*, Values> values_;
};

}  // namespace

void interpret(const SdpaGraph& graph, GraphMemory& memory) {
  Interpreter(memory).run(graph);
}

}  // namespace stepsim::cuda
