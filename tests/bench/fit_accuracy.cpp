// How well the fitted cost forms predict measurements they have not seen, beside the reference
// errors of the same splits: fit_accuracy --data DIR, a folder in the form of data/kernels/ (one
// card a folder; tables that are absent are left out). See its INDEX.md for splits and scores.
// With --forms first it prints print_form_stability() instead.
//
// Forms are chosen by choose_form() from training rows alone: one for all series of a group, by
// the errors inside the training rows of every fourth series of the split's first part. The number
// of processors is found from the training rows too. Exit status: 0 done, 2 bad input.
#include <cstdlib>
#include <functional>
#include <span>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "tests/bench/form_stability.h"
#include "tests/bench/groups.h"
#include "tests/source_root.h"

namespace stepsim::bench {
namespace {

int run(const std::string& folder) {
  Report report(read_bars(folder));
  int tables = 0;
  const auto with = [&](const char* ending, const std::function<void(const std::string&)>& task) {
    if (const auto path = find_table(folder, ending)) {
      task(*path);
      ++tables;
    }
  };
  with("_all_reduce.csv", [&](const std::string& path) { score_all_reduce(path, &report); });
  with("_layers_fwd_bwd.csv", [&](const std::string& path) { score_layers(path, &report); });
  with("_attention_prefill.csv", [&](const std::string& path) { score_prefill(path, &report); });
  with("_mlp.csv", [&](const std::string& path) {
    const std::vector<MlpSeries> all = read_mlp(path);
    score_unseen(path, all, &report);
    score_mlp(path, all, &report);
  });
  if (tables == 0) {
    throw InputError(
        fmt::format("{}: holds no table *_mlp.csv, *_attention_prefill.csv, *_all_reduce.csv or "
                    "*_layers_fwd_bwd.csv",
                    folder));
  }
  fmt::print("\n{} of {} scores are at least as good as the best reference form\n",
             report.compared() - report.behind(),
             report.compared());
  return 0;
}

/// --data DIR, else the kernels of $STEPSIM_DATA or of ../shared/data beside the project.
std::string data_folder(std::span<const std::string> options) {
  if (options.size() == 2 && options[0] == "--data") {
    return options[1];
  }
  if (!options.empty()) {
    throw InputError("usage: fit_accuracy [--forms] [--data DIR]");
  }
  return test::data_folder() + "/kernels";
}

int run_options(std::span<const std::string> options) {
  const bool forms = !options.empty() && options.front() == "--forms";
  const std::string folder = data_folder(options.subspan(forms ? 1 : 0));
  if (!forms) {
    return run(folder);
  }
  print_form_stability(folder);
  return 0;
}

}  // namespace
}  // namespace stepsim::bench

int main(int argc, char** argv) {
  try {
    return stepsim::bench::run_options(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "fit_accuracy: {}\n", error.what());
    return 2;
  }
}
