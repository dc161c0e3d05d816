#include "calibrate/cuda/ops/op_memory.h"

#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "tests/calibrate/cuda/host_array.h"

namespace stepsim::cuda {
namespace {

/// Different numbers, none of them far from what a normal distribution has.
bool is_random(const Array& array, std::int64_t count, double most) {
  std::set<double> seen;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = load(array, i);
    if (!(std::abs(value) < most)) {
      return false;
    }
    seen.insert(value);
  }
  return static_cast<std::int64_t>(seen.size()) > count / 4;
}

}  // namespace

TEST_CASE("what an op reads is random, also where the memory has grown, and in any dtype") {
  const Stream stream;
  for (const Dtype drawn : {Dtype::F32, Dtype::Tf32, Dtype::Bf16, Dtype::F16}) {
    CAPTURE(name_of(drawn));
    OpMemory memory(stream, drawn);
    CHECK(is_random(memory.read(0, 7, drawn), 7, 8));
    CHECK(is_random(memory.read(0, 999, drawn), 999, 8));
    CHECK(memory.read(0, 10, drawn).data == memory.read(0, 20, drawn).data);
    // Two numbers of 16 bits are one of 32, of another size.
    CHECK(is_random(memory.read(1, 501, Dtype::F32), 501, 1e6));
    // What is written lies elsewhere.
    CHECK(memory.write(0, 10, drawn).data != memory.read(0, 10, drawn).data);
    memory.release();
    CHECK(is_random(memory.read(0, 50, drawn), 50, 8));
  }
}

}  // namespace stepsim::cuda
