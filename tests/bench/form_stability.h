#pragma once

#include <string>

namespace stepsim::bench {

/// Prints the errors of every form that a fit could take on whole sizes, models, runs and ranges
/// held out inside training rows, table by table of a folder in the form of data/kernels/, with
/// their mean and their worst: a form that is good on all tables is stable, one that is good on
/// some is lucky. Returns the number of tables found.
int print_form_stability(const std::string& folder);

}  // namespace stepsim::bench
