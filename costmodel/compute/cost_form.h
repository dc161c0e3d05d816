#pragma once

#include <span>
#include <string_view>

#include "costmodel/io/json_file.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

struct OpCost;

/// How a cost depends on the op and its batch. cost_form.cpp holds a row for each.
enum class CostForm {
  Table,           ///< A table over variable_of().
  PerSampleTable,  ///< Samples times a table over the padded length (parts of dense attention).
  Features,        ///< The sum of coefficient * feature.
  Roofline,        ///< A sum over [1, flops, bytes] alone, for sizes that were never measured.
  FeaturesRatio,   ///< Features times a curve over ratio_variable(), constant outside its knots.
  RooflineRatio    ///< Roofline times gemm_ratio(), for GEMM sizes that were never measured.
};

/// All that there is to say about a form, but how it is fitted (calibrate/fit/form_fits.cpp).
struct CostFormRow {
  CostForm form;
  std::string_view name;   ///< In profiles: "per_sample_table".
  std::string_view title;  ///< In reports: "per-sample table".
  int since_version;       ///< The first version of the profile format that has the form.
  bool over_length;        ///< Its measured range is one of padded lengths, not of variable_of().
  /// Seconds of one op. Raises InputError when the form cannot price it.
  double (*seconds)(const OpCost& cost, const Op& op, const BatchShape& batch);
  /// Reads the form's members of an entry, whose class is known already. Raises InputError.
  void (*read)(JsonReader& entry, OpCost& cost);
  void (*write)(const OpCost& cost, Json& entry);
};

/// [form]
[[nodiscard]] std::span<const CostFormRow> cost_form_rows();
[[nodiscard]] const CostFormRow& form_row(CostForm form);
/// Finds a form by its name in profiles. Raises InputError.
[[nodiscard]] CostForm parse_cost_form(std::string_view name);

/// The number that an entry states its measured range of.
[[nodiscard]] double range_variable(CostForm form, const Op& op, const BatchShape& batch);

/// The version of the profile format that added the feature "padded*length^2".
inline constexpr int kPaddingVersion = 5;
/// The first version of the profile format that can hold this entry.
[[nodiscard]] int since_version(const OpCost& cost);

}  // namespace stepsim
