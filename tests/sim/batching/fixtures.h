#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"

namespace stepsim::test {

/// The reference case of that id; nothing (and the test skipped) without the reference data.
[[nodiscard]] std::optional<Json> fixture(const std::string& id);

/// All reference cases whose id starts so, in file order; empty (and skipped) without the data.
[[nodiscard]] std::vector<Json> fixtures(const std::string& id_prefix);

/// counts_len1_up of a histogram of the reference data: [length - 1] number of sequences.
[[nodiscard]] std::optional<std::vector<std::int64_t>> histogram_counts(const std::string& id);

using Ids = std::vector<std::int64_t>;

}  // namespace stepsim::test
