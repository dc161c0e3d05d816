#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/diff/record_diff.h"

namespace stepsim {

/// The files that were compared, as a command line has them.
struct DiffFiles {
  std::vector<std::string> before;
  std::vector<std::string> after;
};

/// "faster", "slower" or "no difference"
[[nodiscard]] const char* name_of(DiffVerdict verdict);
/// "the forward of rank 1 takes 9.8 % longer (+3.20 ms a step, +2.90 to +3.50); so rank 0 waits …"
[[nodiscard]] std::string cause_text(const RecordDiff& diff, const DiffCause& cause);
/// What steps that something held up add to the mean step, in milliseconds.
[[nodiscard]] double held_up_ms(const HeldUpSteps& side);

/// The answer in one sentence: faster, slower or no difference, by how much.
[[nodiscard]] std::string diff_headline(const RecordDiff& diff);
/// Why, the largest reason first; one sentence each.
[[nodiscard]] std::vector<std::string> diff_reasons(const RecordDiff& diff);
/// The commands to go on with, each with what it is for.
[[nodiscard]] std::vector<std::string> diff_next(const RecordDiff& diff, const DiffFiles& files);

/// Verdict, reasons and what to do; the parts of the step; sizes of batches. Lines are as wide as
/// the screen, 80 columns where it is none.
[[nodiscard]] std::string diff_text(const RecordDiff& diff,
                                    const DiffFiles& files,
                                    const Screen& screen = {});
/// {"format": "stepsim-diff/1", …}
[[nodiscard]] Json diff_json(const RecordDiff& diff, const DiffFiles& files);
/// One row a part and rank.
[[nodiscard]] std::string diff_csv(const RecordDiff& diff);

}  // namespace stepsim
