#pragma once

#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// All fields of a model, as the plan and samples files carry them.
[[nodiscard]] Json to_json(const TransformerConfig& config);

/// The inverse; the result is checked. Raises InputError that names the member.
[[nodiscard]] TransformerConfig transformer_from_json(JsonReader& reader);

}  // namespace stepsim
