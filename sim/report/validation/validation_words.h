#pragma once

#include <string>
#include <vector>

#include "sim/report/validation/validation_sources.h"
#include "sim/study/validate.h"

namespace stepsim {

/// The part in plain words, as the policy's records state it.
[[nodiscard]] std::string part_words(const PolicyValidation& policy, const PartError& part);

/// What the policies show together, a sentence each: order, regret, coverage, machine, prediction.
[[nodiscard]] std::vector<std::string> findings(const Validation& validation,
                                                const ValidationSources& sources);

/// Whether the prediction holds for a bound on the error of each mean, a fraction; if not, for
/// which policies not, and which part of the step is off.
[[nodiscard]] std::string verdict(const Validation& validation,
                                  const ValidationSources& sources,
                                  double bound);

/// How sure the verdict is: intervals, regret, and what the live runs leave open.
[[nodiscard]] std::string certainty(const Validation& validation, double bound);

/// That the machine was slower or faster in the live run than when it was calibrated, by the
/// sentinel, or busier or less busy than while its costs were recorded, by which figures, and what
/// to do; empty where it was not, or no record tells.
[[nodiscard]] std::string machine_line(const Validation& validation,
                                       const ValidationSources& sources);

/// What to do about a prediction that does not hold, or live runs that cannot tell; may be empty.
[[nodiscard]] std::vector<std::string> advice(const Validation& validation,
                                              const ValidationSources& sources,
                                              double bound);

/// The next command to try.
[[nodiscard]] std::string next_command(const Validation& validation,
                                       const ValidationSources& sources,
                                       double bound);

}  // namespace stepsim
