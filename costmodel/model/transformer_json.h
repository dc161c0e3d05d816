#pragma once

#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// Writes all fields of a model, as plan and samples files hold them.
[[nodiscard]] Json to_json(const TransformerConfig& config);

/// Reads and checks a model that to_json() wrote. Raises InputError that names the member.
[[nodiscard]] TransformerConfig transformer_from_json(JsonReader& reader);

}  // namespace stepsim
